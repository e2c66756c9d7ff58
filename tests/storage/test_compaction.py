"""Compaction of whole logs: what stays, what goes when, what is off limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.compaction import (
    PARTITION,
    clean,
    cleaner_of,
    compacted,
    end_transaction,
    fill,
    open_compacted,
    open_manager,
    put,
    records_of,
    run_pass,
    view_of,
)
from support.logs import NOW, check_indexes, read_all
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import Codec
from tidelog_storage.compaction.offset_map import ENTRY_BYTES, OffsetMap
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.simulation.disk import SimFiles
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager

CHECKPOINT = "data/cleaner-offset-checkpoint"
LATER = NOW + 20_000  # beyond delete.retention.ms


@pytest.fixture
def opened(files):
    return open_compacted(files)


def restart(disk, manager, **values):
    manager.shutdown()
    disk.kill()
    manager = open_manager(disk.files(), compacted(**values))
    log = manager.get(PARTITION)
    log.set_high_watermark(log.log_end_offset)
    return manager, log


def headers(log):
    return [header for header, _ in read_all(log)]


# -- keys ------------------------------------------------------------------------------------------


def test_the_newest_record_of_each_key_stays_where_it_was(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    for index in range(300):
        put(log, (b"k%d" % (index % 7), b"v%d" % index), (b"x%d" % index, b"once"))
    before = dict(enumerate(records_of(log)))
    end, size = log.log_end_offset, log.size_in_bytes
    active = log.segments.active.base_offset
    assert clean(manager) == 1
    left = records_of(log)
    assert all(before[offset] == (offset, key, value) for offset, key, value in left)
    counters = [row for row in left if row[0] < active and row[1].startswith(b"k")]
    assert [row[2] for row in counters] == [
        b"v%d" % index for index in range(active // 2 - 7, active // 2)
    ]
    assert sum(row[1].startswith(b"x") for row in left) == 300
    assert log.log_end_offset == end
    assert log.size_in_bytes < size
    check_indexes(log)
    assert clean(manager) == 0, "nothing is dirty now"


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_keep_edges_codec_and_timestamps(
    opened: tuple[LogManager, Log], codec: Codec
) -> None:
    manager, log = opened
    put(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec=codec)
    put(log, (b"a", b"4"), (b"c", b"5"), timestamp=NOW + 50, codec=codec)
    log.roll(NOW)
    clean(manager)
    first, second = read_all(log)
    assert (first[0].base_offset, first[0].last_offset) == (0, 2)
    assert (first[0].codec, first[0].records_count) == (codec, 1)
    assert (first[0].base_timestamp, first[0].max_timestamp) == (NOW + 1, NOW + 1)
    assert [(record.offset, record.timestamp) for record in first[1]] == [(1, NOW + 1)]
    assert second[0].records_count == 2
    assert second[0].base_timestamp == NOW + 50


def test_log_append_time_is_kept(files: SimFiles) -> None:
    manager, log = open_compacted(files, message_timestamp_type="LogAppendTime")
    put(log, (b"a", b"1"), (b"b", None), timestamp=NOW + 7)
    put(log, (b"a", b"2"))
    log.roll(NOW)
    clean(manager)
    ((header, records), _) = read_all(log)
    assert header.has_delete_horizon
    assert header.max_timestamp == NOW + 7
    assert [record.timestamp for record in records] == [NOW + 7]


def test_records_without_a_key_go(files: SimFiles) -> None:
    """They are from before the topic was compacted."""
    manager, log = open_compacted(files, cleanup_policy="delete")
    put(log, (None, b"1"), (b"a", b"2"), (None, b"3"))
    put(log, (None, b"4"))
    put(log, (b"b", b"5"))
    log.roll(NOW)
    log.config = compacted()
    clean(manager)
    assert records_of(log) == [(1, b"a", b"2"), (4, b"b", b"5")]


def test_long_keys_with_the_same_beginning_differ(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    keys = [b"k" * length + tail for length in (14, 15, 16, 200) for tail in (b"a", b"b")]
    for value in (b"1", b"2"):
        put(log, *[(key, value) for key in keys])
    log.roll(NOW)
    clean(manager)
    assert view_of(log) == dict.fromkeys(keys, b"2")
    assert len(records_of(log)) == len(keys)


# -- tombstones ------------------------------------------------------------------------------------


def test_tombstones_stay_for_a_while_from_the_first_pass_on(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None), (b"b", b"3"), timestamp=NOW + 5)
    log.roll(NOW)
    assert clean(manager, NOW + 100) == 1
    ((header, records),) = read_all(log)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 100 + 10_000
    assert header.max_timestamp == NOW + 6
    assert [record.timestamp for record in records] == [NOW + 5, NOW + 6]
    for now_ms, there in ((NOW + 10_099, True), (NOW + 10_100, False)):
        put(log, (b"c", b"%d" % now_ms))
        log.roll(NOW)
        assert clean(manager, now_ms) == 1
        assert ((2, b"a", None) in records_of(log)) == there
        assert read_all(log)[0][0].base_timestamp == NOW + 10_100, "once and for all"
    assert view_of(log)[b"b"] == b"3"


# -- producers -------------------------------------------------------------------------------------


def test_a_producers_last_batch_stays_empty_so_that_its_sequence_is_known(
    disk: SimDisk, files: SimFiles
) -> None:
    manager, log = open_compacted(files)
    for sequence in (0, 2):
        options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        put(log, (b"a", b"1"), (b"b", b"2"), **options)
    put(log, (b"a", b"3"), (b"b", b"4"))
    log.roll(NOW)
    clean(manager)
    empty, full = headers(log)
    assert (empty.base_offset, empty.last_offset, empty.records_count) == (2, 3, 0)
    assert (empty.producer_id, empty.base_sequence, empty.last_sequence) == (7, 2, 3)
    assert (empty.base_timestamp, empty.max_timestamp) == (-1, NOW + 1)
    assert full.base_offset == 4
    manager.shutdown()
    disk.kill()
    for name in files.disk.names.copy():
        if name.endswith(".snapshot"):
            del files.disk.names[name]
    manager = open_manager(disk.files(), compacted())
    log = manager.get(PARTITION)
    assert log.producers.producers[7].last_sequence == 3
    with pytest.raises(StorageError) as refusal:
        put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=9)
    assert refusal.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    put(log, (b"a", b"5"), producer_id=7, producer_epoch=0, base_sequence=4)
    log.roll(NOW)
    clean(manager)
    assert 2 not in [header.base_offset for header in headers(log)], "it has a newer batch now"


def test_the_last_batch_of_a_pass_stays_so_that_readers_come_to_the_end(
    opened: tuple[LogManager, Log],
) -> None:
    manager, log = opened
    put(log, (b"a", b"1"))
    log.roll(NOW)
    put(log, (b"a", b"2"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 3, commit=False)
    put(log, (b"a", None))
    log.roll(NOW)
    clean(manager)
    clean(manager, LATER)
    put(log, (b"z", b"3"))
    log.roll(NOW)
    assert clean(manager, LATER) == 1
    last = headers(log)[-1]
    assert last.next_offset == log.log_end_offset


# -- transactions ----------------------------------------------------------------------------------


def transact(log, key, *, commit, producer_id=5, sequence=0):
    put(
        log,
        (key, b"%d" % sequence),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    end_transaction(log, producer_id, commit=commit)


def test_aborted_records_go_at_once_and_their_markers_later(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    put(log, (b"a", b"old"))
    transact(log, b"a", commit=False)
    transact(log, b"a", commit=False, sequence=1)
    transact(log, b"b", commit=True, sequence=2)
    log.roll(NOW)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert len(aborted) == 2
    clean(manager)
    # The first abort lost its records, its marker and its entry stay as long as in Kafka.
    assert records_of(log) == [(0, b"a", b"old"), (5, b"b", b"2")]
    assert [header.base_offset for header in headers(log) if header.is_control] == [2, 4, 6]
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    put(log, (b"c", b"1"))
    log.roll(NOW)
    clean(manager)
    assert log.aborted_transactions(0, log.log_end_offset) == []
    markers = [header for header in headers(log) if header.is_control]
    assert [header.has_delete_horizon for header in markers] == [True, True, False]
    put(log, (b"c", b"2"))
    log.roll(NOW)
    clean(manager, LATER)
    assert [header.base_offset for header in headers(log) if header.is_control] == [6]
    assert records_of(log)[0] == (0, b"a", b"old")


def test_a_commit_marker_stays_until_its_records_are_superseded(
    opened: tuple[LogManager, Log],
) -> None:
    manager, log = opened
    transact(log, b"a", commit=True)
    transact(log, b"b", commit=True, producer_id=6)
    put(log, (b"a", b"new"), producer_id=5, producer_epoch=0, base_sequence=1)
    log.roll(NOW)
    for now_ms in (NOW, NOW, LATER):
        clean(manager, now_ms)
        put(log, (b"c", b"x"))
        log.roll(NOW)
    clean(manager, LATER)
    assert [header.base_offset for header in headers(log) if header.is_control] == [3]


def test_nothing_is_touched_from_the_first_open_transaction_on(
    opened: tuple[LogManager, Log],
) -> None:
    manager, log = opened
    for index in range(40):
        put(log, (b"a", b"%d" % index))
    put(log, (b"t", b"1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    open_from = log.log_end_offset - 1
    for index in range(40):
        put(log, (b"a", b"%d" % index))
    assert clean(manager) == 1
    left = records_of(log)
    untouched = log.segments.floor(open_from).base_offset
    assert [row[0] for row in left if row[0] >= untouched] == list(
        range(untouched, log.log_end_offset)
    )
    assert len([row for row in left if row[0] < untouched]) == 1
    end_transaction(log, 5, commit=True)
    log.roll(NOW)
    assert clean(manager) == 1
    assert len(records_of(log)) == 2


def test_nothing_is_touched_beyond_the_high_watermark(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    for index in range(60):
        put(log, (b"a", b"%d" % index))
    log.set_high_watermark(30)
    clean(manager)
    untouched = log.segments.floor(30).base_offset
    assert [row[0] for row in records_of(log)][-60 + untouched :] == list(range(untouched, 60))


# -- when ------------------------------------------------------------------------------------------


def test_the_dirty_ratio_decides(files: SimFiles) -> None:
    manager, log = open_compacted(files, min_cleanable_dirty_ratio=0.6)
    fill(log)
    assert clean(manager) == 1
    clean_bytes = sum(segment.size for segment in log.segments) - log.segments.active.size
    while log.segments.active.base_offset < 100:
        put(log, *[(b"u%d-%d" % (log.log_end_offset, i), b"x" * 30) for i in range(10)])
    assert clean(manager) == 1
    assert clean_bytes < 400
    put(log, (b"k1", b"x"))
    log.roll(NOW)
    assert clean(manager) == 0, "little is dirty"


def test_young_records_wait_and_old_ones_do_not(files: SimFiles) -> None:
    manager, log = open_compacted(files, min_compaction_lag_ms=1000)
    fill(log)
    assert clean(manager, NOW + 1000) == 0
    assert clean(manager, NOW + 1100) == 1
    manager, log = open_compacted(
        SimDisk(1).files(), min_cleanable_dirty_ratio=1, max_compaction_lag_ms=5000
    )
    fill(log, 30)
    log.roll(NOW)
    assert clean(manager, NOW + 5000) == 0
    assert clean(manager, NOW + 5001) == 1
    assert clean(manager, NOW + 9000) == 0


def test_the_dirtiest_log_is_first(files: SimFiles) -> None:
    manager, log = open_compacted(files)
    fill(log)
    clean(manager)
    fill(log, 20)
    log.roll(NOW)
    other = manager.create(PARTITION._replace(partition=1), b"i" * 16, compacted())
    other.assign_epoch(0)
    fill(other)
    cleaner = cleaner_of(manager)
    first = cleaner.begin(NOW)
    second = cleaner.begin(NOW)
    assert (first.log, second.log) == (other, log)
    assert cleaner.begin(NOW) is None, "each has a pass"
    for cleaning in (first, second):
        assert run_pass(cleaner, cleaning, NOW)


def test_small_segments_become_one(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    fill(log, 600)
    many = len(log.segments)
    clean(manager)
    assert len(log.segments) == many, "they were large before the first pass"
    fill(log, 20)
    log.roll(NOW)
    clean(manager)
    assert len(log.segments) <= 4
    assert log.segments.size_in_bytes < 1000
    assert [snapshot for snapshot in log.producers.snapshots if snapshot > 0] == [
        base for base in log.segments.base_offsets if base
    ]


def test_a_full_map_takes_several_passes(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    for turn in range(3):
        for index in range(50):
            put(log, (b"k%d" % index, b"%d" % turn))
    log.roll(NOW)
    before = view_of(log)
    assert clean(manager, map_bytes=20 * ENTRY_BYTES) == 8
    assert view_of(log) == before
    assert len(records_of(log)) == 50


def test_a_map_holds_what_it_is_allowed() -> None:
    full = OffsetMap(10 * ENTRY_BYTES, 0.5)
    assert [full.put(b"%d" % index, index) for index in range(6)] == [True] * 5 + [False]
    assert (len(full), full.latest_offset, full.newest(b"4"), full.newest(b"5")) == (5, 4, 4, -1)
    assert OffsetMap(0).entries_max == 1


def test_compact_and_delete(files: SimFiles) -> None:
    manager, log = open_compacted(
        files, cleanup_policy=["compact", "delete"], retention_ms=5000, retention_bytes=-1
    )
    fill(log)
    clean(manager)
    assert log.log_start_offset == 0
    fill(log, timestamp=NOW + 6000)
    log.roll(NOW)
    clean(manager)
    sum(manager.upkeep.retention(NOW + 11_050))
    assert log.log_start_offset > 0
    assert all(record[0] >= log.log_start_offset for record in records_of(log))
    fill(log, timestamp=NOW + 12_000)
    log.roll(NOW)
    assert clean(manager) == 1, "the checkpoint below the log start counts for nothing"


def test_only_compacted_topics_are(files: SimFiles) -> None:
    manager, log = open_compacted(files, cleanup_policy="delete")
    fill(log)
    assert clean(manager) == 0


# -- readers ---------------------------------------------------------------------------------------


def test_readers_step_over_gaps_from_anywhere(disk: SimDisk, files: SimFiles) -> None:
    manager, log = open_compacted(files)
    for index in range(200):
        put(log, (b"k%d" % (index % 11), b"%d" % index), timestamp=NOW + index)
    clean(manager)
    for _ in range(2):
        rows = records_of(log)
        end = log.log_end_offset
        for offset in range(end):
            found = [
                record.offset
                for _, records in read_all(log, 100, start=offset)
                for record in records
            ]
            assert [one for one in found if one >= offset] == [
                row[0] for row in rows if row[0] >= offset
            ]
            assert log.epochs.epoch_for_offset(offset) == 0
        for age in range(200):
            found = log.offset_for_timestamp(NOW + age)
            expected = next((row[0] for row in rows if row[0] >= age), None)
            assert (found and found.offset) == expected
        assert log.max_timestamp_offset().offset == end - 1
        manager, log = restart(disk, manager)
    assert clean(manager) == 0, "the checkpoint is read again"


# -- the checkpoint --------------------------------------------------------------------------------


def test_a_deleted_topic_leaves_the_checkpoint(disk: SimDisk, files: SimFiles) -> None:
    manager, log = open_compacted(files)
    fill(log)
    clean(manager)
    assert manager.compacted_to(PARTITION) > 0
    manager.delete(PARTITION)
    manager.upkeep.prepare_checkpoints()()
    assert files.read_bytes(CHECKPOINT) == b"0\n0\n"
    log = manager.create(PARTITION, b"j" * 16, compacted())
    log.assign_epoch(0)
    fill(log, 200)
    assert manager.compacted_to(PARTITION) is None
    assert clean(manager) == 1
    assert files.read_bytes(CHECKPOINT) == b"0\n1\nt 0 %d\n" % log.segments.active.base_offset


@pytest.mark.parametrize("content", [b"", b"0\n1\nt 0\n", b"7\n0\n", b"0\n1\nnone 3 20\n"])
def test_a_checkpoint_that_says_nothing_costs_a_pass(
    disk: SimDisk, files: SimFiles, content: bytes
) -> None:
    manager, log = open_compacted(files)
    fill(log)
    clean(manager)
    before = records_of(log)
    files.write_atomic(CHECKPOINT, content)
    manager, log = restart(disk, manager)
    assert manager.compacted_to(PARTITION) is None
    assert clean(manager) == 1
    assert records_of(log) == before
