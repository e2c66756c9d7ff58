"""Looks at the records of a produced batch: decompression, checks of each record, recompression.

Needed only where the topic's settings concern single records (`is_due`). A small batch is done at
once, in the append. What a large one takes is not known before: `inspect_at_once` gives up at a
small budget, and the caller does the three steps of `Inspection` elsewhere, then appends. The
limits here hold in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.batch import HEADER_BYTES
from tidelog_protocol.compression import decompressed
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.records import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    iter_payload,
    read_header,
    with_codec,
)
from tidelog_storage.types import RecordError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_storage.config import LogConfig
    from tidelog_storage.types import TopicPartition

BATCH_DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Ours, beside Kafka's limit per record: a small zstd batch can announce gigabytes."""

RECORD_HEADERS_MAX = 2000
BATCH_HEADERS_MAX = 1_000_000
"""Ours, too: an empty header is two bytes in a batch, and a hundred in memory."""

BATCH_RECORDS_MAX = 1_000_000
"""Ours: records of one batch that the broker looks into."""

SLICE_ITEMS = 500
"""Records and headers that are checked in a slice: about 2 ms."""

ITEMS_AT_ONCE = 2000
BYTES_AT_ONCE = 1 << 20
"""What an append looks into itself. More takes another client's time."""

_INT64_MAX = 2**63 - 1
_SHOWN_ERRORS = 3


class AppendTarget(NamedTuple):
    """Where and how a batch is appended. `from_client` False skips checks that only untrusted
    producers need; `topic_partition` is for error messages."""

    next_offset: int
    leader_epoch: int
    now_ms: int
    config: LogConfig
    topic_partition: TopicPartition
    produce_version: int = 13
    from_client: bool = True


class TooMuchAtOnceError(Exception):
    """A client's batch takes too long to look into at once; nothing was appended. `inspection` is
    to be done in steps, and given to the append."""

    def __init__(self, inspection: Inspection) -> None:
        super().__init__("a batch that takes long to look into")
        self.inspection = inspection


class Inspection:
    """Looking into one batch, in three steps: `decompress`, all of `check`, `recompress`.

    The first and the last run C code over megabytes and may leave the loop; the other is Python
    code, in slices. A refusal ends the steps and is raised by the append. `buffer` and `header` are
    what is to be appended, `max_timestamp` what is right for it, `size` that of the client's batch.
    """

    def __init__(self, records: memoryview, header: BatchHeader, target: AppendTarget) -> None:
        self.buffer = records
        self.size = len(records)
        self.header = header
        self.max_timestamp = header.max_timestamp
        self.refusal: StorageError | None = None
        self._target = target
        self._payload: Any = b""

    def keep_own_copy(self) -> None:
        """Copy the batch: the caller's buffer is going to be used again."""
        self.buffer = memoryview(bytearray(self.buffer))

    def decompress(self) -> None:
        """Take the records out of the batch."""
        try:
            self.decompress_within(BATCH_DECOMPRESSED_BYTES_MAX)
        except ProtocolError as error:
            self._refuse(error)

    def decompress_within(self, bytes_max: int) -> None:
        """The same, within fewer bytes; ProtocolError, also for more."""
        header = self.header
        payload = self.buffer[HEADER_BYTES:]
        if not header.records_count and not payload:
            return  # compaction keeps empty batches, with their codec bits, for the last sequence
        self._payload = memoryview(decompressed(header.codec, payload, bytes_max))

    def check(self) -> Iterator[int]:
        """Check every record of a client's batch, with a pause after each slice, which tells how
        many records and headers are done; find the largest timestamp, which may be wrong in the
        header."""
        if not self._target.from_client or self.refusal is not None:
            return
        try:
            yield from self._check()
        except ProtocolError as error:
            self._refuse(error)
        except StorageError as error:
            self.refusal = error

    def _check(self) -> Iterator[int]:
        header, target = self.header, self._target
        config = target.config
        if header.records_count > BATCH_RECORDS_MAX:
            raise ProtocolError(f"batch with more than {BATCH_RECORDS_MAX} records")
        errors: list[RecordError] = []
        invalid_timestamp = False
        largest = NO_TIMESTAMP
        record_bytes_max = config.max_decompressed_message_bytes if header.codec else _INT64_MAX
        headers = 0
        pause_at = SLICE_ITEMS
        for index, record in enumerate(iter_payload(header, self._payload, RECORD_HEADERS_MAX)):
            _check_shape(index, record, header, record_bytes_max)
            headers += len(record.headers)
            if headers > BATCH_HEADERS_MAX:
                raise ProtocolError(f"batch with more than {BATCH_HEADERS_MAX} record headers")
            largest = max(largest, record.timestamp)
            text = _timestamp_error(record, header, config, target.now_ms)
            if config.is_compacted and record.key is None:
                text = (
                    "Compacted topic cannot accept message without key in topic partition"
                    f" {target.topic_partition}"
                )
            elif text is not None:
                invalid_timestamp = True
            if text is not None:
                errors.append(RecordError(batch_index=index, message=text))
            if index + headers >= pause_at:
                pause_at = index + headers + SLICE_ITEMS
                yield index + headers
        if errors:
            raise _rejection(errors, invalid_timestamp=invalid_timestamp)
        self.max_timestamp = largest

    def recompress(self) -> None:
        """Compress by the topic's codec, if it is another one."""
        codec = self._target.config.target_codec
        if self.refusal is None and codec is not None and codec != self.header.codec:
            level = self._target.config.compression_level
            self.buffer = memoryview(
                bytearray(with_codec(self.header, codec, self._payload, level))
            )
            self.header = read_header(self.buffer)
        self._payload = b""

    def take_refusal(self) -> StorageError | None:
        """Return why the batch is refused, once: an error that is raised refers to its callers, and
        megabytes that it refers to would wait for the garbage collector."""
        refusal, self.refusal = self.refusal, None
        return refusal

    def _refuse(self, error: ProtocolError) -> None:
        where = self._target.topic_partition
        self.refusal = StorageError(ErrorCode.INVALID_RECORD, f"{error} in topic partition {where}")


def inspect_at_once(records: memoryview, header: BatchHeader, target: AppendTarget) -> Inspection:
    """Do all steps; TooMuchAtOnceError for a large batch of a client."""
    inspection = Inspection(records, header, target)
    if not target.from_client:
        inspection.decompress()
    else:
        if header.records_count > ITEMS_AT_ONCE or len(records) > BYTES_AT_ONCE:
            raise TooMuchAtOnceError(inspection)
        try:
            inspection.decompress_within(BYTES_AT_ONCE)
        except ProtocolError:  # too large, or malformed: the steps will tell
            raise TooMuchAtOnceError(inspection) from None
        for items in inspection.check():
            if items > ITEMS_AT_ONCE:
                raise TooMuchAtOnceError(Inspection(records, header, target))
    inspection.recompress()
    return inspection


def is_due(header: BatchHeader, target: AppendTarget) -> bool:
    """Return whether the records must be checked as well as the header."""
    config = target.config
    codec = config.target_codec
    if codec is not None and codec != header.codec and not header.is_control:
        return True
    if not target.from_client:
        return False
    if config.is_compacted:
        return True
    if config.uses_log_append_time:
        return header.timestamp_type == LOG_APPEND_TIME  # an error for each record
    return (
        header.max_timestamp - target.now_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != _INT64_MAX
    )


def _check_shape(index: int, record: Record, header: BatchHeader, bytes_max: int) -> None:
    delta = record.offset - header.base_offset
    if delta != index:
        raise ProtocolError(f"offset delta {delta} of record {index}")
    size = len(record.key or b"") + len(record.value or b"")
    if size > bytes_max:
        raise ProtocolError(f"decompressed record of {size} bytes, at most {bytes_max} are allowed")


def _timestamp_error(
    record: Record, header: BatchHeader, config: LogConfig, now_ms: int
) -> str | None:
    timestamp = record.timestamp
    if not config.uses_log_append_time and timestamp != NO_TIMESTAMP:
        before = config.message_timestamp_before_max_ms
        after = config.message_timestamp_after_max_ms
        if -after <= now_ms - timestamp <= before:
            return None
        return (
            f"Timestamp {timestamp} of message with offset {record.offset} is out of range. The"
            f" timestamp should be within [{_int64(now_ms - before)}, {_int64(now_ms + after)}]"
        )
    if header.timestamp_type == LOG_APPEND_TIME:
        return (
            f"Invalid timestamp type in message with offset {record.offset}. Producer should not"
            " set timestamp type to LogAppendTime."
        )
    return None


def _int64(value: int) -> int:
    """Return `value` in Java's long arithmetic, for error messages."""
    return (value + 2**63) % 2**64 - 2**63


def _rejection(errors: list[RecordError], *, invalid_timestamp: bool) -> StorageError:
    if invalid_timestamp:
        return StorageError(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            errors,
        )
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
        for error in errors[:_SHOWN_ERRORS]
    )
    return StorageError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors in total, and"
        f" only showing the first three errors at most: [{shown}]",
        errors,
    )
