"""Values that the storage room shares with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class TopicPartition(NamedTuple):
    """A partition by name; its folder and checkpoint lines are named after it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    """End offset of a leader epoch (`end_offset_for`), (-1, -1) when undefined."""

    offset: int
    leader_epoch: int


class OffsetAndTimestamp(NamedTuple):
    """Answer of a look-up by time; -1 stands for "none" in each field."""

    offset: int
    timestamp: int
    leader_epoch: int


class RecordError(NamedTuple):
    """One refused record of a batch (Produce v8+: `BatchIndexAndErrorMessage`)."""

    batch_index: int
    message: str | None = None


class StorageError(Exception):
    """An expected error, with the error code for the client."""

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        record_errors: Sequence[RecordError] = (),
    ) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
        self.record_errors = tuple(record_errors)


def damage_below(path: str, offset: int, keep: int) -> StorageError:
    """Return the error of a log that is damaged or ends at `offset`, although everything below
    `keep` was durable."""
    return StorageError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{path} is damaged or ends at offset {offset}, but all below {keep} was on disk:"
        " put back a whole copy",
    )


class Damage(NamedTuple):
    """Offsets [first_offset, end_offset) can't be read: bytes [position, end_position) of the
    segment of `base_offset`, whose file may not be there at all."""

    base_offset: int
    first_offset: int
    end_offset: int
    position: int
    end_position: int
    why: str

    def __str__(self) -> str:
        end = "the end" if self.end_offset == 2**63 - 1 else self.end_offset - 1
        return f"offsets {self.first_offset} to {end}: {self.why}"


class AppendResult(NamedTuple):
    """The result of an append. `duplicate`: the batch was already in the log, nothing was
    written."""

    first_offset: int
    last_offset: int
    log_append_time: int  # -1 for CreateTime topics
    log_start_offset: int
    duplicate: bool = False


class Records(NamedTuple):
    """Whole batches as on disk, to be sent unchanged; `size` bytes in total.

    `first_batch_incomplete`: empty, because the first batch is larger than the limit.
    """

    parts: Sequence[bytes | memoryview]
    size: int
    next_offset: int  # offset after the last batch, or the requested offset if empty
    first_batch_incomplete: bool = False


class OutOfRange(NamedTuple):
    """The offset is below the log start or above the log end."""

    log_start_offset: int
    log_end_offset: int


class InRemoteTier(NamedTuple):
    """The offset is at or above the log start, but below the local log start.

    `leader_epoch` is that of the offset in the leader epoch cache, -1 if unknown.
    """

    offset: int
    leader_epoch: int
    local_log_start_offset: int


ReadOutcome = Records | OutOfRange | InRemoteTier


class SealedFiles(NamedTuple):
    """The files of a sealed segment, to be copied to the remote tier (KIP-405).

    Offsets `base_offset` up to, not including, `next_base_offset`. The producer snapshot is that of
    `next_base_offset`; `transaction_index` is None if the segment has no aborted transaction.
    """

    base_offset: int
    next_base_offset: int
    size: int
    max_timestamp: int
    log: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: str


class AbortedTransaction(NamedTuple):
    """One entry of the transaction index that overlaps a read."""

    producer_id: int
    first_offset: int
