"""Truncation, retention and durability of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, batch, check_indexes, config, offsets, open_log
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import Records, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.simulation.disk import SimDisk, SimFiles
    from tidelog_storage.log import Log

FOLDER = "data/t-0"
SETTINGS = config(internal_segment_bytes=800, index_interval_bytes=200)


@pytest.fixture
def log(files):
    """Ten batches of two records in several segments."""
    log = open_log(files, settings=SETTINGS)
    for index in range(10):
        append(log, 2, timestamp=NOW + 10 * index, leader_epoch=index // 4)
    return log


ALL = [(base, base + 1) for base in range(0, 20, 2)]


# -- truncation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(0, 20, 2))
def test_truncate(files: SimFiles, log: Log, offset: int) -> None:
    assert log.truncate_to(offset, NOW)
    left = [pair for pair in ALL if pair[1] < offset]
    assert offsets(log) == left
    assert log.log_end_offset == log.high_watermark == offset
    assert log.epochs.latest_epoch == (-1 if not offset else (offset - 1) // 8)
    check_indexes(log)
    result = append(log, 3, leader_epoch=7)
    assert result.first_offset == offset
    again = open_log(files, settings=SETTINGS, clean=False)
    assert offsets(again) == [*left, (offset, offset + 2)]
    check_indexes(again)


def test_a_cut_lowers_what_the_checkpoint_may_say_after_a_roll(files: SimFiles) -> None:
    """A roll lowers the recovery point in memory alone, so that the segment is flushed again with
    its indexes."""
    lowered = []
    log = open_log(files, settings=SETTINGS, on_recovery_point_lowered=lowered.append)
    for _ in range(3):
        append(log, 2)
    log.flush()
    assert log.recovery_point == 6  # a checkpoint says so
    append(log, 2)
    log.roll(NOW)
    assert log.recovery_point == 0
    log.truncate_to(4)
    assert lowered == [0]
    log.truncate_to(2)
    assert lowered == [0], "it says so already"


def test_a_producer_whose_batch_is_deleted_in_part_is_known_after_a_crash(
    files: SimFiles, log: Log
) -> None:
    append(log, 4, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    log.maybe_increment_log_start(22, "DeleteRecords")
    again = open_log(files, settings=SETTINGS, clean=False, log_start_offset=22, high_watermark=24)
    assert again.producers.producers[9].batches[-1].last_offset == 23
    assert again.last_stable_offset == log.last_stable_offset == 22


def test_truncate_at_or_past_the_end_cuts_only_epochs(log: Log) -> None:
    log.assign_epoch(5)
    assert not log.truncate_to(25)
    assert log.epochs.latest_epoch == 5
    assert not log.truncate_to(20)
    assert log.epochs.latest_epoch == 2
    assert offsets(log) == ALL


def test_truncate_inside_of_a_batch_drops_it_and_keeps_the_offset(log: Log) -> None:
    log.truncate_to(5)
    assert offsets(log) == ALL[:2]
    assert log.log_end_offset == 5
    assert log.read(4, 99, upper_bound=5) == Records((), 0, 4)


def test_truncate_below_the_first_segment(log: Log) -> None:
    log.set_high_watermark(20)
    log.maybe_increment_log_start(15, "test")
    log.delete_old_segments(NOW)
    assert log.segments.first.base_offset > 6
    log.truncate_to(6, NOW)
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    assert append(log, 1).first_offset == 6


def test_truncate_below_the_log_start_moves_it(log: Log) -> None:
    log.maybe_increment_log_start(5, "test")
    log.truncate_to(4)
    assert log.log_start_offset == 4


def test_truncate_fully(files: SimFiles, log: Log) -> None:
    log.truncate_fully_and_start_at(100, now_ms=NOW)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert log.epochs.entries == []
    assert log.producers.producers == {}
    assert append(log, 1, leader_epoch=9).first_offset == 100
    log.close()
    names = files.list(FOLDER)
    assert {name[:20] for name in names if name.endswith(".log")} == {f"{100:020d}"}
    log = open_log(files, settings=SETTINGS)
    log.truncate_fully_and_start_at(200, 50, now_ms=NOW)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 200, 200)


def test_truncated_and_grown_again_is_indexed_like_a_fresh_log(tmp_path: Path) -> None:
    """The indexes after a cut are those that a rebuild gives."""
    files = OsFileSystem()
    settings = config(internal_segment_bytes=5000, index_interval_bytes=700)
    for cut in range(2, 100, 7):
        folder = tmp_path / f"{cut}-0"
        log = open_log(files, folder, settings)
        for end in (100, 130):
            while log.log_end_offset < end:
                append(log, 1, size=log.log_end_offset % 5, timestamp=NOW + log.log_end_offset)
            if end == 100:
                log.truncate_to(cut, NOW)
        log.close()
        found = {path.name: path.read_bytes() for path in folder.glob("*index")}
        assert sum(map(len, found.values())) > 100
        open_log(files, folder, settings, clean=False).release()
        assert {path.name: path.read_bytes() for path in folder.glob("*index")} == found


def test_readers_find_their_way_after_a_cut(log: Log) -> None:
    """Positions that were remembered, of the next batch or an upper bound, are others now."""
    end = 20
    for offset in range(0, 20, 2):
        log.read(offset, 1, upper_bound=20)
        log.read(offset, 1 << 20, upper_bound=14)
    log.truncate_to(2, NOW)
    while log.log_end_offset < end:
        append(log, 2, size=3, leader_epoch=9)
    for offset in range(0, 20, 2):
        outcome = log.read(offset, 1, upper_bound=20)
        assert outcome.parts[0][:8] == offset.to_bytes(8, "big")
    assert log.read(0, 1 << 20, upper_bound=14).next_offset == 14
    assert offsets(log) == ALL


def test_producer_state_goes_back(log: Log) -> None:
    options = {"producer_id": 3, "producer_epoch": 0}
    for sequence in range(6):
        append(log, 1, base_sequence=sequence, leader_epoch=2, **options)
        if sequence == 2:
            log.roll(NOW)
    log.truncate_to(22, NOW)
    assert log.producers.producers[3].last_sequence == 1
    assert append(log, 1, base_sequence=2, leader_epoch=2, **options).first_offset == 22
    log.truncate_to(20, NOW)
    assert 3 not in log.producers.producers


def test_aborted_transactions_are_noted_once(log: Log) -> None:
    append(log, 1, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_end_transaction_marker(
        ControlType.ABORT, producer_id=3, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=2, now_ms=NOW, from_client=False
    )
    append(log, 1, leader_epoch=2)
    log.truncate_to(22, NOW)
    assert log.aborted_transactions(0, 22) == [(3, 20)]
    log.truncate_to(21, NOW)
    assert log.aborted_transactions(0, 22) == []
    assert log.last_stable_offset == 20


def test_a_truncation_is_durable_before_the_next_append(
    disk: SimDisk, files: SimFiles, log: Log
) -> None:
    """Else removed segments could come back behind new batches, or new bytes pass as flushed."""
    heard = []
    log.flush()
    log._context = log._context._replace(on_recovery_point_lowered=heard.append)
    log.truncate_to(4, NOW)
    assert heard == [4]
    for seed in range(20):
        disk.rng.seed(seed)
        disk.power_failure()
        files = disk.files()
        assert offsets(open_log(files, settings=SETTINGS, clean=False)) == ALL[:2]


# -- retention -------------------------------------------------------------------------------------


def with_retention(log, **settings):
    log.config = config(internal_segment_bytes=800, **settings)
    return log


def test_retention_by_size(log: Log) -> None:
    sizes = [segment.size for segment in log.segments]
    bases = log.segments.base_offsets
    with_retention(log, retention_bytes=sum(sizes) - sizes[0])
    assert log.delete_old_segments(NOW) == 1
    assert log.log_start_offset == log.segments.first.base_offset == bases[1]
    assert log.delete_old_segments(NOW) == 0, "one more would leave less than the limit"
    with_retention(log, retention_bytes=0)
    assert log.delete_old_segments(NOW) == len(bases) - 1
    assert (log.log_start_offset, log.size_in_bytes) == (20, 0)
    assert append(log, 1).first_offset == 20


def test_retention_by_time(log: Log) -> None:
    newest = [segment.max_timestamp for segment in log.segments]
    with_retention(log, retention_ms=1000)
    assert log.delete_old_segments(newest[0] + 1000) == 0, "the age must exceed the limit"
    assert log.delete_old_segments(newest[0] + 1001) == 1
    assert log.delete_old_segments(NOW * 2) == len(newest) - 1
    assert log.segments.base_offsets == [20]


def test_retention_by_log_start_also_without_the_delete_policy(log: Log) -> None:
    bases = log.segments.base_offsets
    with_retention(log, cleanup_policy=["compact"], retention_ms=0, retention_bytes=0)
    assert log.delete_old_segments(NOW * 2) == 0
    log.maybe_increment_log_start(bases[2] - 1, "test")
    assert log.delete_old_segments(NOW) == 1
    assert log.log_start_offset == bases[2] - 1, "in the middle of a segment"
    assert log.segments.base_offsets == bases[1:]


def test_nothing_above_the_high_watermark_goes(log: Log) -> None:
    bases = log.segments.base_offsets
    log.set_high_watermark(bases[2])
    with_retention(log, retention_bytes=0)
    assert log.delete_old_segments(NOW) == 2
    log.set_high_watermark(20)
    assert log.delete_old_segments(NOW) == len(bases) - 2


def test_no_limits(log: Log) -> None:
    with_retention(log, retention_ms=-1, retention_bytes=-1)
    assert log.delete_old_segments(NOW * 9) == 0


def test_a_later_check_continues_where_one_stopped(files: SimFiles) -> None:
    """The oldest segment has the newest record: size frees it, then time the next one."""
    log = open_log(files, settings=SETTINGS)
    for timestamp in (NOW + 10_000, NOW, NOW + 10_000):
        append(log, 1, timestamp=timestamp)
        log.roll(NOW)
    excess = log.size_in_bytes - log.segments.first.size
    with_retention(log, retention_bytes=excess, retention_ms=1000)
    assert log.delete_old_segments(NOW + 5000) == 2


def test_files_go_after_a_delay(files: SimFiles, log: Log) -> None:
    with_retention(log, retention_bytes=0, file_delete_delay_ms=500)
    log.delete_old_segments(NOW)
    deleted = [name for name in files.list(FOLDER) if name.endswith(".deleted")]
    assert [name for name in deleted if ".log." in name]
    log.removals.run(NOW + 499)
    assert deleted == [name for name in files.list(FOLDER) if name.endswith(".deleted")]
    log.removals.run(NOW + 500)
    assert not [name for name in files.list(FOLDER) if name.endswith(".deleted")]
    assert len(log.removals) == 0
    snapshots = [name for name in files.list(FOLDER) if name.endswith(".snapshot")]
    assert snapshots == [f"{20:020d}.snapshot"]


def test_loading_removes_what_waited_for_its_removal(files: SimFiles, log: Log) -> None:
    with_retention(log, retention_bytes=0)
    log.delete_old_segments(NOW)
    log.close()
    open_log(files, settings=SETTINGS)
    assert not [name for name in files.list(FOLDER) if name.endswith(".deleted")]


# -- durability ------------------------------------------------------------------------------------


def test_two_step_flush(disk: SimDisk, files: SimFiles, log: Log) -> None:
    task = log.prepare_flush()
    assert task is not None
    assert task.offset == 20
    append(log, 1, leader_epoch=2)
    task()
    assert log.recovery_point == 0, "the loop takes note of it"
    log.flushed(task)
    assert log.recovery_point == 20
    log.flush()
    assert log.prepare_flush() is None
    disk.power_failure()
    assert offsets(open_log(disk.files(), settings=SETTINGS, clean=False)) == [*ALL, (20, 20)]


def test_flush_up_to_the_active_segment(log: Log) -> None:
    base = log.segments.active.base_offset
    task = log.prepare_flush(base)
    task()
    log.flushed(task)
    assert log.recovery_point == base
    assert log.prepare_flush(base) is None


def test_a_flush_from_before_a_truncation_does_not_count(log: Log) -> None:
    task = log.prepare_flush()
    log.truncate_to(10, NOW)
    while log.log_end_offset < 30:
        append(log, 2, leader_epoch=9)
    task()
    log.flushed(task)
    assert log.recovery_point <= 10


def test_a_flush_may_run_while_segments_go(tmp_path: Path) -> None:
    log = open_log(OsFileSystem(), tmp_path / "t-0", SETTINGS)
    for _ in range(10):
        append(log, 2)
    task = log.prepare_flush()
    with_retention(log, retention_bytes=0)
    log.delete_old_segments(NOW)
    log.removals.run(NOW * 2)
    log.release()
    task()


def test_idle_segments_are_released(log: Log) -> None:
    log.flush()
    log.read(0, 1, upper_bound=20)
    first = log.segments.first
    log.segments.release_idle(log.recovery_point)
    assert first.has_open_file
    log.segments.release_idle(log.recovery_point)
    assert not first.has_open_file
    assert offsets(log) == ALL


def test_a_clean_stop_syncs_only_what_it_must(disk: SimDisk, files: SimFiles, log: Log) -> None:
    log.close()
    again = open_log(files, settings=SETTINGS)
    assert again.recovery_point == 20
    disk.syncs = 0
    again.close()
    assert disk.syncs == 0
    for seed in range(10):
        disk.rng.seed(seed)
        disk.power_failure()
        again = open_log(disk.files(), settings=SETTINGS)
        assert offsets(again) == ALL
        check_indexes(again)


def test_errors_of_the_disk_name_the_partition(
    files: SimFiles, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.flush()
    for _ in range(2):
        log.segments.release_idle(log.recovery_point)
    files.remove(f"{FOLDER}/{0:020d}.log")
    with pytest.raises(StorageError, match="t-0") as caught:
        log.read(0, 1, upper_bound=20)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_batches_of_a_reader_may_be_kept(log: Log) -> None:
    """A small read is a copy of its own."""
    outcome = log.read(0, 1, upper_bound=20)
    before = bytes(outcome.parts[0])
    log.truncate_to(0, NOW)
    append(log, 2, size=9)
    assert bytes(outcome.parts[0]) == before != bytes(batch(2, size=9))
