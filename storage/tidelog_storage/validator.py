"""Checks of a produced batch, and the fields that only the broker may set.

On the plain path (codec kept, CreateTime, topic not compacted, no lower limit of timestamps) only
the header and the CRC are checked, and the batch stays in the caller's buffer; Kafka also iterates
over the records. If the topic's settings concern single records, `inspection.py` looks at them.
`log.py` calls this before every append as
leader; sequences of producers are `producer_state.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

from tidelog_protocol.batch import (
    CRC_START,
    LENGTH_FIELD,
    LENGTH_OVERHEAD,
    MAGIC_POSITION,
    header_fields,
    write_place,
)
from tidelog_protocol.checksum import crc32c
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import (
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    crc_is_valid,
    placed,
    read_header,
    read_magic,
    set_offset_and_epoch,
    set_timestamp,
)
from tidelog_storage.inspection import inspect_at_once, is_due
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog_storage.config import LogConfig
    from tidelog_storage.inspection import AppendTarget, Inspection

_OVERHEAD_OF_OLDEST_FORMAT = 14
ZSTD_VERSION_MIN = 7
_CODEC_MAX = int(Codec.ZSTD)
_new = tuple.__new__


class ValidatedAppend(NamedTuple):
    """A batch ready to be written, and its header with the final offset and epoch."""

    buffer: memoryview  # the caller's own buffer, or another one after recompression
    header: BatchHeader


def place_plain(
    records: memoryview, next_offset: int, leader_epoch: int, now_ms: int, config: LogConfig
) -> BatchHeader | None:
    """The hot path: make all checks at once for a client's batch that is stored unchanged.

    For logs that keep batches, and clients that may send zstd. None if the batch is not plainly
    valid; `validate_slowly` then decides.
    """
    size = len(records)
    if not HEADER_BYTES <= size <= config.batch_bytes_max:
        return None
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = header_fields(records)
    if (
        magic == MAGIC
        and length == size - LENGTH_OVERHEAD
        and base_offset == 0
        and 0 <= attributes <= _CODEC_MAX  # neither stamped by a broker, transactional nor control
        and delta == count - 1
        and count > 0
        and (producer_id < 0 or base_sequence >= 0)
        and max_timestamp - now_ms <= config.message_timestamp_after_max_ms
        and crc32c(records[CRC_START:], 0) == crc
    ):
        write_place(records, 0, next_offset, length, leader_epoch)
        # Name by name: a slice of all fields, and a sum, make this function take 8 % longer.
        return _new(
            BatchHeader,
            (
                next_offset,
                length,
                leader_epoch,
                magic,
                crc,
                attributes,
                delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
            ),
        )
    return None


def validate_slowly(
    records: memoryview, target: AppendTarget, inspection: Inspection | None = None
) -> ValidatedAppend:
    """Check the one batch in `records` (writable) and set its offset, epoch and timestamp type.

    TooMuchAtOnceError for one whose `inspection` must be done first. StorageError with the code for
    the client, and with `record_errors` where single records are at fault; `records` may have its
    header changed then.
    """
    if inspection is None:
        header = _checked_header(records, target)
        if is_due(header, target):
            inspection = inspect_at_once(records, header, target)
    size, max_timestamp = len(records), NO_TIMESTAMP
    if inspection is None:
        max_timestamp = header.max_timestamp
    elif inspection.refusal is not None:
        raise cast("StorageError", inspection.take_refusal())
    else:
        records, header, size = inspection.buffer, inspection.header, inspection.size
        max_timestamp = inspection.max_timestamp
    config = target.config
    if config.uses_log_append_time:
        header = set_timestamp(records, 0, header, LOG_APPEND_TIME, target.now_ms)
    elif max_timestamp != header.max_timestamp or header.timestamp_type != CREATE_TIME:
        header = set_timestamp(records, 0, header, CREATE_TIME, max_timestamp)
    set_offset_and_epoch(records, 0, target.next_offset, target.leader_epoch)
    _check_final_size(len(records), size, config, target.topic_partition)
    return ValidatedAppend(records, placed(header, target.next_offset, target.leader_epoch))


def _checked_header(records: memoryview, target: AppendTarget) -> BatchHeader:
    """Return the header of the one batch; StorageError if it or the CRC is wrong."""
    config, where, from_client = target.config, target.topic_partition, target.from_client
    header = _the_batch(records, target.produce_version)
    size = header.size_in_bytes
    if from_client and header.base_offset != 0:
        _refuse(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {where} should be 0, but it is"
            f" {header.base_offset}",
        )
    if size > config.max_message_bytes:
        _refuse(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {size} bytes which exceeds the"
            f" maximum configured value of {config.max_message_bytes}).",
        )
    if not crc_is_valid(records, header):
        _refuse(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}) in topic partition {where}.",
        )
    if from_client:
        _check_header(header, where)
    return header


def _refuse(code: ErrorCode, message: str) -> NoReturn:
    raise StorageError(code, message)


# -- the header ------------------------------------------------------------------------------------


def _the_batch(records: memoryview, version: int) -> BatchHeader:
    """Return the header of the only batch, which must be whole and of an allowed format and
    codec."""
    if len(records) < HEADER_BYTES or records[MAGIC_POSITION] != MAGIC:
        _refuse_shape(records, read_magic(records), version)
    header = read_header(records)
    size = header.size_in_bytes
    if size != len(records) or size < HEADER_BYTES:
        _refuse_length(size, len(records), version)
    codec = header.codec
    if codec > Codec.ZSTD:
        # Kafka's CompressionType.forId fails unexpectedly.
        _refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {codec}")
    if codec == Codec.ZSTD and version < ZSTD_VERSION_MIN:
        _refuse(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return header


def _refuse_shape(records: memoryview, magic: int, version: int) -> NoReturn:
    """Raise the error of a field that does not begin with a batch of version 2."""
    if magic > MAGIC or (magic < 0 and len(records) > MAGIC_POSITION):
        _refuse(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    length = int.from_bytes(records[LENGTH_FIELD], "big", signed=True)
    if len(records) < LENGTH_OVERHEAD or len(records) < length + LENGTH_OVERHEAD:
        _refuse_empty(version)
    if length < _OVERHEAD_OF_OLDEST_FORMAT or magic == MAGIC:
        _refuse_small(length)
    _refuse(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {version} are only allowed to contain record batches with"
        " magic version 2",
    )


def _refuse_length(size: int, given: int, version: int) -> NoReturn:
    """Raise the error of a batch whose length is not that of the field."""
    if size < HEADER_BYTES:
        _refuse_small(size - LENGTH_OVERHEAD)
    if size > given:
        _refuse_empty(version)
    _refuse(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {version} are only allowed to contain exactly one record"
        " batch per partition",
    )


def _refuse_small(length: int) -> NoReturn:
    _refuse(
        ErrorCode.CORRUPT_MESSAGE,
        f"Record size {length} is less than the minimum record overhead"
        f" ({_OVERHEAD_OF_OLDEST_FORMAT})",
    )


def _refuse_empty(version: int) -> NoReturn:
    """Raise the error of a field without a whole batch: Kafka's iterator stops before a torn
    one."""
    _refuse(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {version} must have at least one record batch per"
        " partition",
    )


def _check_header(header: BatchHeader, where: object) -> None:
    """Check that the client's header fields are consistent."""
    count = header.records_count
    if header.last_offset_delta != count - 1 or count <= 0:
        _refuse_count(header, where)
    if header.is_control:
        _refuse(
            ErrorCode.INVALID_RECORD,
            f"Clients are not allowed to write control records in topic partition {where}",
        )
    if header.base_sequence < 0 <= header.producer_id:
        _refuse(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId"
            f" {header.producer_id} in topic partition {where}",
        )


def _refuse_count(header: BatchHeader, where: object) -> NoReturn:
    count, delta = header.records_count, header.last_offset_delta
    offsets = f"[{header.base_offset}, {header.base_offset + delta}]"
    if delta < 0:
        message = f"Batch has an invalid offset range: {offsets} in topic partition {where}"
    elif count <= 0:
        message = f"Invalid reported count for record batch: {count} in topic partition {where}"
    else:
        message = (
            f"Inconsistent batch offset range {offsets} and count of records {count} in topic"
            f" partition {where}"
        )
    _refuse(ErrorCode.INVALID_RECORD, message)


# -- what the broker sets --------------------------------------------------------------------------


def _check_final_size(size: int, size_before: int, config: LogConfig, where: object) -> None:
    if size > config.segment_size:
        _refuse(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition {where}, which exceeds the"
            f" maximum configured segment size of {config.segment_size}.",
        )
    if size != size_before and size > config.max_message_bytes:
        _refuse(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition {where} which exceeds the"
            f" maximum configured size of {config.max_message_bytes}.",
        )
