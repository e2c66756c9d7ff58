"""The log of a partition: appends, rolls, reads within limits, offsets, durability."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, batch, check_indexes, config, offsets, open_log
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import (
    ControlType,
    build_end_transaction_marker,
    iter_batches,
    read_header,
)
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.slices import FIRST_BYTES
from tidelog_storage.types import OutOfRange, Records, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.simulation.disk import SimDisk, SimFiles
    from tidelog_storage.log import Log

FOLDER = "data/t-0"


@pytest.fixture
def log(files):
    return open_log(files)


def refused(code, call, *args, **options):
    with pytest.raises(StorageError) as caught:
        call(*args, **options)
    assert caught.value.code == code
    return caught.value


def one(outcome):
    assert isinstance(outcome, Records)
    return [header.base_offset for part in outcome.parts for _, header in iter_batches(part)]


# -- appending -------------------------------------------------------------------------------------


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 0)
    assert log.last_stable_offset == log.size_in_bytes == log.recovery_point == 0
    assert log.read(0, 100, upper_bound=0) == Records((), 0, 0)
    assert log.max_timestamp_offset() is None
    assert log.offset_for_timestamp(0) is None


def test_offsets_and_epoch_are_written_in_place(log: Log) -> None:
    first = log.append_as_leader(batch(3), leader_epoch=4, now_ms=NOW)
    assert first == (0, 2, -1, 0, False)
    data = batch(2)
    second = log.append_as_leader(data, leader_epoch=5, now_ms=NOW)
    assert second[:2] == (3, 4)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (3, 5)
    assert log.log_end_offset == 5
    assert log.high_watermark == 0, "the partition moves it"
    assert [tuple(entry) for entry in log.epochs.entries] == [(4, 0), (5, 3)]
    assert log.end_offset_for_epoch(4) == (3, 4)


def test_log_append_time_is_returned(files: SimFiles) -> None:
    log = open_log(files, settings=config(message_timestamp_type="LogAppendTime"))
    result = append(log, 2, timestamp=5, now_ms=NOW + 7)
    assert result.log_append_time == NOW + 7
    assert log.max_timestamp_offset() == (0, NOW + 7, 0)


def test_a_refused_batch_changes_nothing(log: Log) -> None:
    append(log, 2)
    data = batch(2)
    data[70] ^= 1
    refused(ErrorCode.CORRUPT_MESSAGE, log.append_as_leader, data, leader_epoch=7, now_ms=NOW)
    assert log.log_end_offset == 2
    assert log.epochs.latest_epoch == 0


def test_a_retry_is_answered_with_the_first_offsets(log: Log) -> None:
    options = {"producer_id": 3, "producer_epoch": 0}
    append(log, 2, base_sequence=0, **options)
    first = append(log, 2, base_sequence=2, **options)
    append(log, 1)
    log.maybe_increment_log_start(1, "test")
    size = log.size_in_bytes
    again = append(log, 2, base_sequence=2, **options)
    assert again.duplicate
    assert again[:2] == first[:2] == (2, 3)
    assert again.log_start_offset == 1
    assert log.size_in_bytes == size
    error = refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, append, log, 1, base_sequence=9, **options
    )
    assert "t-0" in str(error)


def test_a_full_disk_refuses_and_recovers(disk: SimDisk, log: Log) -> None:
    append(log, 1)
    disk.capacity_bytes = disk.used_bytes() + 50
    refused(ErrorCode.KAFKA_STORAGE_ERROR, append, log, 5)
    assert log.log_end_offset == 1
    disk.capacity_bytes = None
    assert append(log, 2).first_offset == 1
    assert offsets(log) == [(0, 0), (1, 2)]
    check_indexes(log)


def test_a_full_disk_at_a_roll(disk: SimDisk, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, 1)

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr("tidelog.simulation.disk.SimFiles.open", fail)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, log.roll, NOW)
    log.roll(NOW)
    append(log, 1)
    assert offsets(log) == [(0, 0), (1, 1)]


def test_flush_messages_makes_durable_at_once(disk: SimDisk, files: SimFiles) -> None:
    log = open_log(files, settings=config(flush_messages=3))
    append(log, 2)
    assert log.recovery_point == 0
    append(log, 1)
    assert log.recovery_point == 3
    disk.power_failure()
    assert offsets(open_log(disk.files(), clean=False)) == [(0, 1), (2, 2)]


# -- following -------------------------------------------------------------------------------------


def test_a_follower_keeps_bytes_offsets_and_epochs(files: SimFiles, log: Log) -> None:
    for epoch in (0, 0, 2):
        append(log, 2, leader_epoch=epoch)
    taken = log.read(0, 1 << 20, upper_bound=6)
    follower = open_log(files, "data/f-0")
    result = follower.append_as_follower(memoryview(taken.parts[0]), leader_epoch=2, now_ms=NOW)
    assert result is not None
    assert result[:2] == (0, 5)
    assert follower.epochs.entries == log.epochs.entries
    assert follower.read(0, 1 << 20, upper_bound=6) == taken


def test_a_follower_stops_at_a_newer_epoch_and_a_torn_batch(log: Log) -> None:
    data = b"".join(
        batch(1, base_offset=offset, leader_epoch=epoch)
        for offset, epoch in [(0, 1), (1, 1), (2, 3)]
    )
    log.append_as_follower(memoryview(data), leader_epoch=1, now_ms=NOW)
    assert log.log_end_offset == 2
    assert log.epochs.latest_epoch == 1
    torn = bytes(batch(1, base_offset=2, leader_epoch=3))[:-1]
    assert log.append_as_follower(memoryview(torn), leader_epoch=3, now_ms=NOW) is None
    assert log.append_as_follower(memoryview(b""), leader_epoch=3, now_ms=NOW) is None


def test_a_follower_refuses_what_is_wrong(log: Log) -> None:
    append(log, 2)

    def follow(data):
        log.append_as_follower(memoryview(bytes(data)), leader_epoch=0, now_ms=NOW)

    refused(ErrorCode.OFFSET_OUT_OF_RANGE, follow, batch(1, base_offset=1))
    bad = batch(1, base_offset=2)
    bad[-1] ^= 1
    refused(ErrorCode.CORRUPT_MESSAGE, follow, bad)
    bad = batch(1, base_offset=2)
    bad[16] = 1
    refused(ErrorCode.CORRUPT_MESSAGE, follow, bad)
    assert log.log_end_offset == 2


# -- rolling ---------------------------------------------------------------------------------------


def test_rolls_by_size(log: Log) -> None:
    size = len(batch(1))
    for _ in range(2000 // size):
        append(log, 1)
    assert len(log.segments) == 1
    append(log, 1)
    assert log.segments.base_offsets == [0, 2000 // size]
    assert log.segments.first.size <= 2000


def test_rolls_by_the_age_of_the_first_batch(files: SimFiles) -> None:
    log = open_log(files, settings=config(segment_ms=1000))
    append(log, 1, timestamp=NOW)
    append(log, 1, timestamp=NOW + 1000)
    append(log, 1, timestamp=NOW - 5000, now_ms=NOW + 9000)
    assert len(log.segments) == 1
    append(log, 1, timestamp=NOW + 1001)
    assert log.segments.base_offsets == [0, 3]


def test_rolls_by_the_clock_without_timestamps(files: SimFiles) -> None:
    log = open_log(files, settings=config(segment_ms=1000))
    append(log, 1, timestamp=-1)
    append(log, 1, timestamp=-1, now_ms=NOW + 1000)
    assert len(log.segments) == 1
    append(log, 1, timestamp=-1, now_ms=NOW + 1001)
    assert len(log.segments) == 2


def test_rolls_when_an_index_is_full(files: SimFiles) -> None:
    log = open_log(files, settings=config(index_interval_bytes=0, segment_index_bytes=40))
    for index in range(12):
        append(log, 1, timestamp=NOW)
        assert len(log.segments.active.offset_index) <= 5
        del index
    assert log.segments.base_offsets == [0, 6]
    log = open_log(
        files, "data/u-0", settings=config(index_interval_bytes=0, segment_index_bytes=40)
    )
    for index in range(12):
        append(log, 1, timestamp=NOW + index)
    assert log.segments.base_offsets == [0, 3, 6, 9], "a time index entry has 12 bytes"


@pytest.mark.parametrize("batches", [1, 2])
def test_an_index_of_so_many_slots_makes_segments_of_so_many_batches(
    files: SimFiles, batches: int
) -> None:
    """As Apache Kafka's tiered tests have it: one slot is that of the sealed segment's end."""
    settings = config(index_interval_bytes=1, segment_index_bytes=12 * batches)
    log = open_log(files, settings=settings)
    for index in range(6):
        append(log, 1, timestamp=NOW + index)
    assert log.segments.base_offsets == list(range(0, 6, batches))


def test_an_active_segment_goes_by_the_configuration_that_comes_after_it_was_loaded(
    files: SimFiles,
) -> None:
    log = open_log(files, settings=config())
    append(log, 1, timestamp=NOW)
    log.close()
    log = open_log(files, settings=config())  # as a manager loads it, with the broker's defaults
    log.config = config(segment_index_bytes=12)
    append(log, 1, timestamp=NOW)
    append(log, 1, timestamp=NOW)
    assert log.segments.base_offsets == [0, 1, 2]


def test_rolls_before_offsets_outgrow_31_bits(log: Log) -> None:
    append(log, 1)
    far = batch(1, base_offset=(1 << 31) + 1, leader_epoch=0)
    log.append_as_follower(far, leader_epoch=0, now_ms=NOW)
    assert log.segments.base_offsets == [0, (1 << 31) + 1]
    assert offsets(log) == [(0, 0), ((1 << 31) + 1, (1 << 31) + 1)]


def test_a_follower_rolls_at_its_end_though_the_leader_has_compacted_what_comes(log: Log) -> None:
    append(log, 1)
    while len(log.segments) == 1:
        end = log.log_end_offset
        compacted = batch(2, base_offset=end + 10, leader_epoch=0)
        log.append_as_follower(compacted, leader_epoch=0, now_ms=NOW)
    assert log.segments.base_offsets == [0, end]
    assert log.log_end_offset == end + 12
    assert offsets(log, start=end) == [(end + 10, end + 11)]


def test_jitter_rolls_earlier_and_the_same_each_time(files: SimFiles) -> None:
    bases = []
    for name in ("a-0", "b-0"):
        settings = config(segment_ms=10_000, segment_jitter_ms=9_000)
        log = open_log(files, f"data/{name}", settings=settings)
        for index in range(60):
            append(log, 1, timestamp=NOW + index * 500)
        bases.append(log.segments.base_offsets)
    assert bases[0] == bases[1], "the same partition"
    gaps = {after - before for before, after in zip(bases[0], bases[0][1:], strict=False)}
    assert len(gaps) > 1
    assert max(gaps) <= 21


def test_rolling_an_empty_segment_does_nothing(log: Log) -> None:
    assert log.roll(NOW) is log.segments.active
    append(log, 1)
    heard = []
    log._context = log._context._replace(on_roll=heard.append)
    log.roll(NOW)
    log.roll(NOW)
    assert log.segments.base_offsets == [0, 1]
    assert heard == [log]


# -- reading ---------------------------------------------------------------------------------------


@pytest.fixture
def ten(files):
    """Ten batches of two records, in one segment; all are of one size."""
    log = open_log(files, settings=config(index_interval_bytes=300))
    for _ in range(10):
        append(log, 2)
    return log


SIZE = len(batch(2))


@pytest.mark.parametrize(
    ("offset", "max_bytes", "bound", "found"),
    [
        (0, 10 * SIZE, 20, list(range(0, 20, 2))),
        (0, 10 * SIZE - 1, 20, list(range(0, 18, 2))),
        (5, 3 * SIZE, 20, [4, 6, 8]),
        (5, 3 * SIZE + SIZE - 1, 20, [4, 6, 8]),
        (5, 99 * SIZE, 12, [4, 6, 8, 10]),
        (0, SIZE - 1, 20, [0]),
        (0, 0, 20, [0]),
        (19, 0, 20, [18]),
        (12, 99, 12, []),
        (13, 99, 12, []),
        (20, 99, 20, []),
    ],
)
def test_reads_whole_batches_within_limits(
    ten: Log, offset: int, max_bytes: int, bound: int, found: list[int]
) -> None:
    outcome = ten.read(offset, max_bytes, upper_bound=bound)
    assert one(outcome) == found
    assert outcome.size == sum(len(part) for part in outcome.parts) == len(found) * SIZE
    assert outcome.next_offset == (found[-1] + 2 if found else offset)


def test_a_first_batch_that_is_too_large(ten: Log) -> None:
    for max_bytes in (0, 10, SIZE - 1):
        outcome = ten.read(4, max_bytes, upper_bound=20, min_one_batch=False)
        assert outcome == Records((), 0, 4, first_batch_incomplete=True)
    assert one(ten.read(4, SIZE, upper_bound=20, min_one_batch=False)) == [4]


@pytest.mark.parametrize("size", [FIRST_BYTES - 300, FIRST_BYTES, 3 * FIRST_BYTES])
def test_a_first_batch_is_given_whole_whatever_its_size(files: SimFiles, size: int) -> None:
    log = open_log(files, settings=config())
    for _ in range(3):
        append(log, 1, size=size)
    batch_bytes = log.size_in_bytes // 3
    for max_bytes in (0, SIZE, FIRST_BYTES, batch_bytes - 1, batch_bytes, batch_bytes + 1):
        outcome = log.read(1, max_bytes, upper_bound=3)
        assert (one(outcome), outcome.size, outcome.next_offset) == ([1], batch_bytes, 2)
        (part,) = outcome.parts
        assert len(part) == batch_bytes


def test_out_of_range(ten: Log) -> None:
    ten.maybe_increment_log_start(4, "test")
    for offset in (-1, 3, 21):
        assert ten.read(offset, 99, upper_bound=20) == OutOfRange(4, 20)
    assert one(ten.read(5, 1, upper_bound=20)) == [4]


@pytest.mark.parametrize("min_one_batch", [True, False])
def test_sequential_reads_meet_every_batch_once(ten: Log, min_one_batch: bool) -> None:
    for max_bytes in range(SIZE, 5 * SIZE, 37):
        offset, found = 0, []
        while offset < 20:
            outcome = ten.read(offset, max_bytes, upper_bound=20, min_one_batch=min_one_batch)
            found += one(outcome)
            offset = outcome.next_offset
        assert found == list(range(0, 20, 2))


def test_a_read_ends_with_its_segment(log: Log) -> None:
    for _ in range(6):
        append(log, 10)
    bases = log.segments.base_offsets
    assert len(bases) > 1
    outcome = log.read(0, 1 << 20, upper_bound=60)
    assert outcome.next_offset == bases[1]
    assert one(log.read(bases[1], 1 << 20, upper_bound=60))[0] == bases[1]


def test_a_reader_at_the_end_continues_after_a_roll(log: Log) -> None:
    append(log, 1)
    assert log.read(0, 99, upper_bound=1).next_offset == 1
    log.roll(NOW)
    append(log, 1)
    assert one(log.read(1, 99, upper_bound=2)) == [1]


def test_more_readers_than_places(ten: Log) -> None:
    for start in [*range(20)] * 10:
        assert one(ten.read(start, 1, upper_bound=20)) == [start // 2 * 2]


def test_large_reads_are_views_and_outlive_truncation(tmp_path: Path) -> None:
    log = open_log(OsFileSystem(), tmp_path / "t-0", settings=config())
    for _ in range(20):
        append(log, 1, size=50_000)
    outcome = log.read(0, 1 << 20, upper_bound=20)
    assert isinstance(outcome.parts[0], memoryview)
    before = bytes(outcome.parts[0])
    log.truncate_to(1, NOW)
    append(log, 1, size=50_000)
    assert bytes(outcome.parts[0]) == before
    assert offsets(log) == [(0, 0), (1, 1)]
    log.release()


def test_gaps_are_read_over(log: Log) -> None:
    append(log, 2)
    for offset in (10, 11, 50):
        log.append_as_follower(batch(1, base_offset=offset), leader_epoch=0, now_ms=NOW)
        log.roll(NOW)
    for asked, found in [(2, 10), (9, 10), (12, 50), (49, 50)]:
        assert one(log.read(asked, 1, upper_bound=51)) == [found]


# -- offsets ---------------------------------------------------------------------------------------


def test_high_watermark_is_clamped(log: Log) -> None:
    append(log, 10)
    assert log.set_high_watermark(5) == 5
    assert log.set_high_watermark(99) == log.high_watermark == 10
    log.maybe_increment_log_start(7, "test")
    assert log.set_high_watermark(3) == 7


def test_log_start_stays_below_the_high_watermark(log: Log) -> None:
    append(log, 10)
    log.set_high_watermark(5)
    error = refused(
        ErrorCode.OFFSET_OUT_OF_RANGE, log.maybe_increment_log_start, 6, "delete records"
    )
    assert "delete records" in str(error)
    assert log.maybe_increment_log_start(5, "test")
    assert not log.maybe_increment_log_start(4, "test")
    assert log.log_start_offset == 5
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 5)]


def test_times(files: SimFiles) -> None:
    log = open_log(files, settings=config(internal_segment_bytes=500, index_interval_bytes=100))
    times = [5, 3, 9, 7, 9, 20, 11]
    for time in times:
        append(log, 2, timestamp=NOW + 10 * time)
    assert len(log.segments) > 1
    assert log.max_timestamp_offset() == (11, NOW + 201, 0)
    found = {time: log.offset_for_timestamp(NOW + time) for time in (0, 51, 52, 91, 92, 201, 202)}
    assert {time: found[time] and found[time].offset for time in found} == {
        0: 0, 51: 1, 52: 4, 91: 5, 92: 10, 201: 11, 202: None
    }  # fmt: skip
    log.maybe_increment_log_start(5, "test")
    assert log.offset_for_timestamp(0) == (5, NOW + 91, 0)


# -- transactions ----------------------------------------------------------------------------------


def end_transaction(log, kind, producer_id):
    marker = build_end_transaction_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    return log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW, from_client=False
    )


def test_last_stable_offset_and_aborted_transactions(files: SimFiles, log: Log) -> None:
    append(log, 2)
    options = {"producer_epoch": 0, "transactional": True}
    append(log, 2, producer_id=1, base_sequence=0, **options)
    append(log, 2, producer_id=2, base_sequence=0, **options)
    assert log.high_watermark == 6
    assert log.last_stable_offset == 2
    end_transaction(log, ControlType.ABORT, 1)
    assert log.last_stable_offset == 2, "the marker is not replicated"
    log.set_high_watermark(7)
    assert log.last_stable_offset == 4
    log.roll(NOW)
    end_transaction(log, ControlType.COMMIT, 2)
    log.set_high_watermark(8)
    assert log.last_stable_offset == 8
    assert log.aborted_transactions(0, 8) == [(1, 2)]
    assert log.aborted_transactions(7, 8) == []
    log.close()
    for clean in (True, False):
        again = open_log(files, clean=clean, high_watermark=8)
        assert again.aborted_transactions(0, 8) == [(1, 2)]
        assert again.last_stable_offset == 8
