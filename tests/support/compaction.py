"""Compacting logs in tests: what the broker's maintenance does, without its loop."""

from __future__ import annotations

from tidelog_protocol.records import (
    ControlType,
    Record,
    build_batch,
    build_end_transaction_marker,
)
from tidelog_storage.compaction.cleaner import CleanerLimits, LogCleaner
from tidelog_storage.manager import LogManager
from tidelog_storage.types import TopicPartition

from .logs import NOW, config, read_all

PARTITION = TopicPartition("t", 0)
COMPACTED = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": 1000,
    "index_interval_bytes": 200,
    "min_cleanable_dirty_ratio": 0,
    "file_delete_delay_ms": 1000,
    "delete_retention_ms": 10_000,
}


def compacted(**values):
    """A LogConfig of a compacted topic with small segments."""
    return config(**(COMPACTED | values))


def open_manager(files, settings=None, **options):
    """A manager over `data`; the same after a restart."""
    settings = settings or compacted()
    manager = LogManager(files, ["data"], settings, **options)
    manager.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)
    for _, log in manager.items():  # noqa: PERF102 - no dictionary: this loads them
        log.config = settings  # as the broker does
    return manager


def open_compacted(files, **values):
    """A manager and its one log."""
    settings = compacted(**values)
    manager = open_manager(files, settings)
    log = manager.create(PARTITION, b"i" * 16, settings)
    log.assign_epoch(0)
    return manager, log


def cleaner_of(manager, map_bytes=1 << 20):
    return LogCleaner(manager, CleanerLimits(map_bytes, 1.0))


def run_pass(cleaner, cleaning, now_ms, *, after_step=lambda: None):
    """One pass to its end; whether it came to one."""
    try:
        flush = cleaning.prepare_flush()
        if flush is not None:
            flush()
            cleaning.log.flushed(flush)
        checkpoint = cleaner.prepare_checkpoint(cleaning)
        if checkpoint is None:
            return False
        checkpoint()
        while True:
            progress = cleaning.rewriting.step()
            after_step()
            if not cleaner.advance(cleaning, progress, now_ms):
                break
        checkpoint = cleaner.finish(cleaning) if progress.is_done else None
        if checkpoint is None:
            return False
        checkpoint()
        return True
    finally:
        cleaner.end(cleaning)


def clean(manager, now_ms=NOW, **options):
    """Passes until nothing is dirty enough; how many there were."""
    cleaner = cleaner_of(manager, **options)
    passes = 0
    while (cleaning := cleaner.begin(now_ms)) is not None:
        assert run_pass(cleaner, cleaning, now_ms)
        passes += 1
        assert passes < 1000
    return passes


def put(log, *pairs, timestamp=NOW, from_client=True, **options):
    """Append one batch of (key, value) records as leader; the high watermark follows."""
    records = [
        Record(index, timestamp + index, key, value) for index, (key, value) in enumerate(pairs)
    ]
    result = log.append_as_leader(
        memoryview(bytearray(build_batch(records, **options))),
        leader_epoch=0,
        now_ms=timestamp,
        from_client=from_client,
    )
    log.set_high_watermark(log.log_end_offset)
    return result


def fill(log, count=60, timestamp=NOW):
    """One record after the other, of three keys."""
    for index in range(count):
        put(log, (b"k%d" % (index % 3), b"%d" % index), timestamp=timestamp + index)


def end_transaction(log, producer_id, *, commit, producer_epoch=0, timestamp=NOW):
    """Append a marker."""
    marker = build_end_transaction_marker(
        ControlType.COMMIT if commit else ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=0,
        timestamp=timestamp,
    )
    result = log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, now_ms=timestamp, from_client=False
    )
    log.set_high_watermark(log.log_end_offset)
    return result


def records_of(log):
    """(offset, key, value) of all records but markers, as a reader gets them."""
    return [
        (record.offset, record.key, record.value)
        for header, records in read_all(log)
        if not header.is_control
        for record in records
    ]


def view_of(log):
    """The newest value of each key; without those deleted."""
    newest = {key: value for _, key, value in records_of(log)}
    return {key: value for key, value in newest.items() if value is not None}
