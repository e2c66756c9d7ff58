"""Check a leader's batches before a follower appends them unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import BatchHeader, crc_is_valid, iter_batches
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_storage.types import UNDEFINED_EPOCH, StorageError

if TYPE_CHECKING:
    from tidelog_storage.seams import Buffer


class ReplicatedBatch(NamedTuple):
    """A valid batch and its position in the buffer."""

    header: BatchHeader
    position: int


def check_replicated(
    records: Buffer, log_end_offset: int, leader_epoch: int, latest_epoch: int
) -> list[ReplicatedBatch]:
    """Return the batches to append; they fill the buffer up to the end of the last one.

    A torn batch at the end is left out, and so is everything from a batch of an epoch above
    `leader_epoch` on (KAFKA-18723): it is fetched once that leader is known here. StorageError
    CORRUPT_MESSAGE for a bad batch, OFFSET_OUT_OF_RANGE for offsets that do not rise.

    The checksum does not cover the leader epoch. One below `latest_epoch`, the log's newest, is
    damage: it would drop newer epochs from the cache, which followers use to truncate.
    """
    batches: list[ReplicatedBatch] = []
    next_offset = log_end_offset
    try:
        for position, header in iter_batches(records):
            if header.leader_epoch > leader_epoch:
                break
            if UNDEFINED_EPOCH != header.leader_epoch < latest_epoch:
                raise StorageError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"batch at offset {header.base_offset} has leader epoch {header.leader_epoch}"
                    f" behind epoch {latest_epoch}",
                )
            latest_epoch = max(latest_epoch, header.leader_epoch)
            if header.last_offset_delta < 0 or not crc_is_valid(records, header, position):
                raise StorageError(
                    ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset} is corrupt"
                )
            if header.base_offset < next_offset:
                raise StorageError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {header.base_offset} is below the next offset {next_offset}",
                )
            batches.append(ReplicatedBatch(header, position))
            next_offset = header.next_offset
    except ProtocolError as error:
        raise StorageError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return batches
