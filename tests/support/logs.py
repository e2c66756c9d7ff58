"""Building, opening and reading logs in tests."""

from __future__ import annotations

from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records
from tidelog_storage.config import LogConfig
from tidelog_storage.loading import Checkpointed, LogContext
from tidelog_storage.recovery import load_log
from tidelog_storage.types import Records, TopicPartition

PARTITION = TopicPartition("t", 0)
NOW = 1_700_000_000_000
SMALL = LogConfig({"internal.segment.bytes": 2000, "index.interval.bytes": 200})


def config(**values):
    """A LogConfig with Kafka's names, dots as underscores."""
    return LogConfig({name.replace("_", "."): value for name, value in values.items()})


def batch(count=1, *, timestamp=NOW, size=50, base_offset=0, **options):
    """A writable batch of `count` records, as it comes from a client."""
    records = [
        Record(base_offset + index, timestamp + index, b"k", bytes([index % 251]) * size)
        for index in range(count)
    ]
    return memoryview(bytearray(build_batch(records, base_offset=base_offset, **options)))


def open_log(files, folder="data/t-0", settings=SMALL, *, clean=True, **options):
    """Load a log; `recovery_point`, `log_start_offset`, `high_watermark` as checkpointed."""
    names = ("recovery_point", "log_start_offset", "high_watermark", "compacted_to")
    known = {name: options.pop(name) for name in names if name in options}
    context = LogContext(files, str(folder), PARTITION, NOW, **options)
    return load_log(context, settings, Checkpointed(had_clean_shutdown=clean, **known))


def append(log, count=1, *, leader_epoch=0, now_ms=NOW, **options):
    """Append a batch as leader and let the high watermark follow."""
    result = log.append_as_leader(batch(count, **options), leader_epoch=leader_epoch, now_ms=now_ms)
    log.set_high_watermark(log.log_end_offset)
    return result


def read_all(log, max_bytes=1 << 20, start=None):
    """(header, records) of every batch from the log start (or `start`) to the log end."""
    offset = log.log_start_offset if start is None else start
    found = []
    while offset < log.log_end_offset:
        outcome = log.read(offset, max_bytes, upper_bound=log.log_end_offset)
        assert isinstance(outcome, Records), outcome
        if not outcome.size:
            break  # a gap at the end: truncated inside of a batch
        data = b"".join(outcome.parts)
        assert len(data) == outcome.size
        for position, header in iter_batches(data):
            found.append((header, list(iter_records(data, position))))
        assert outcome.next_offset > offset
        offset = outcome.next_offset
    return found


def offsets(log, **options):
    """(base, last) offset of every batch."""
    return [(header.base_offset, header.last_offset) for header, _ in read_all(log, **options)]


def check_indexes(log):
    """Every index entry of every segment says what the records say."""
    for segment in log.segments:
        starts = {}
        newest = -1
        newest_at = {}
        for position, header, _ in segment.batches():
            starts[position] = header.last_offset
            newest = max(newest, header.max_timestamp)
            newest_at[header.last_offset] = newest
        assert sum(1 for _ in starts) == 0 or max(starts) < segment.size
        index = segment.offset_index
        for offset, position in zip(index.offsets, index.positions, strict=True):
            assert starts[position] == segment.base_offset + offset
        assert segment.know_timestamps() == newest
        times = segment.time_index
        for timestamp, offset in zip(times.timestamps, times.offsets, strict=True):
            last = segment.base_offset + offset
            assert newest_at[last] == timestamp
