"""Scrubbing segments: what rots is found, what is read around it, and what a copy repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, SMALL, append, check_indexes, offsets, open_log, read_all
from tidelog.simulation.disk import MachineDiedError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import (
    ControlType,
    Record,
    build_batch,
    build_end_transaction_marker,
)
from tidelog_storage.scrub import SegmentCheck, extent_of
from tidelog_storage.scrub_repair import SegmentRepair, check_copy
from tidelog_storage.segment import Segment, SegmentOptions
from tidelog_storage.types import AbortedTransaction, Damage, Records, StorageError

if TYPE_CHECKING:
    from tidelog.simulation.disk import SimDisk, SimFiles
    from tidelog_storage.log import Log


@pytest.fixture
def log(files):
    """Sealed, durable segments of some batches each, in two leader epochs."""
    made = open_log(files)
    for number in range(60):
        append(made, 2, leader_epoch=number // 30, timestamp=NOW + number)
    made.flush()
    assert len(made.segments) > 4
    return made


def check(files, log, number=1, *, has_gaps=False):
    segment = list(log.segments)[number]
    done = SegmentCheck(files, extent_of(log, segment, has_gaps=has_gaps))
    done.run()
    return segment, done


def batches_of(segment):
    return [(position, header, bytes(data)) for position, header, data in segment.batches()]


def test_whole_segments_are_found_whole(files: SimFiles, log: Log) -> None:
    for number in range(len(log.segments)):
        _, done = check(files, log, number)
        assert (done.damages, done.index_faults) == ([], [])
        assert done.read_bytes == list(log.segments)[number].size


@pytest.mark.parametrize("at", range(100))
def test_a_flipped_bit_is_found_wherever_it_is_in_a_batch(
    disk: SimDisk, files: SimFiles, log: Log, at: int
) -> None:
    """The first sixteen bytes are outside of the checksum: they are checked by their neighbours."""
    segment = list(log.segments)[1]
    batches = batches_of(segment)
    position, header, _ = batches[2]
    disk.flip(segment.path(".log"), position + at, at % 8)
    _, done = check(files, log)
    (damage,) = done.damages
    assert (damage.first_offset, damage.end_offset) == (header.base_offset, header.next_offset)
    assert (damage.position, damage.end_position) == (position, position + header.size_in_bytes)


@pytest.mark.parametrize("at", [3, 9, 14, 16, 19, 70])
def test_what_lies_around_a_damage_is_served_and_the_damage_is_not(
    disk: SimDisk, files: SimFiles, log: Log, at: int
) -> None:
    whole = read_all(log)
    segment = list(log.segments)[1]
    position, bad, _ = batches_of(segment)[2]
    disk.flip(segment.path(".log"), position + at, 1)
    _, done = check(files, log)
    log.set_damages(segment.base_offset, done.damages)
    for max_bytes in (1, 300, 1 << 20):
        found, offset = [], 0
        while offset < log.log_end_offset:
            if offset == bad.base_offset:
                with pytest.raises(StorageError, match=f"offsets {offset} to") as caught:
                    log.read(offset, max_bytes, upper_bound=log.log_end_offset)
                assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
                offset = bad.next_offset
            outcome = log.read(offset, max_bytes, upper_bound=log.log_end_offset)
            assert isinstance(outcome, Records)
            found.append(offset)
            offset = outcome.next_offset
        assert bad.next_offset in found
    good = [header for header, _ in whole if header.base_offset != bad.base_offset]
    seen = [header for header, _ in read_all(log, start=bad.next_offset)]
    assert seen == [header for header in good if header.base_offset >= bad.next_offset]


@pytest.mark.parametrize("left", [0, 1, 61, 500])
def test_a_segment_that_was_cut_lacks_its_end(files: SimFiles, log: Log, left: int) -> None:
    segment = list(log.segments)[1]
    whole = batches_of(segment)
    files.open(segment.path(".log")).truncate(left)
    _, done = check(files, log)
    kept = [header for position, header, data in whole if position + len(data) <= left]
    assert done.damages[0].first_offset == (kept[-1].next_offset if kept else segment.base_offset)
    assert done.damages[-1].end_offset == list(log.segments)[2].base_offset
    with pytest.raises(StorageError) as caught:
        log.read(segment.base_offset, 1 << 20, upper_bound=log.log_end_offset)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_missing_segment_is_damage_of_all_its_offsets(files: SimFiles, log: Log) -> None:
    segment = list(log.segments)[2]
    files.remove(segment.path(".log"))
    _, done = check(files, log, 2)
    (damage,) = done.damages
    assert damage.first_offset == segment.base_offset
    assert damage.end_offset == list(log.segments)[3].base_offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_bad_index_is_found(
    disk: SimDisk, files: SimFiles, log: Log, suffix: str, damage: str
) -> None:
    segment = list(log.segments)[1]
    path = segment.path(suffix)
    if damage == "flip":
        disk.flip(path, 7, 0)
    elif damage == "cut":
        files.open(path).truncate(0)
    else:
        files.remove(path)
    _, done = check(files, log)
    if (suffix, damage) == (".index", "cut"):
        assert not done.index_faults  # an index of no entries is slow, and right
    else:
        assert done.index_faults
    assert not done.damages


def test_a_compacted_log_has_gaps(files: SimFiles) -> None:
    log = open_log(files)
    for base in (0, 5, 20):
        data = memoryview(bytearray(_batch(base)))
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW)
    log.roll(NOW)
    log.flush()
    assert check(files, log, 0)[1].damages
    assert not check(files, log, 0, has_gaps=True)[1].damages


def _batch(base):
    return build_batch([Record(base, NOW, b"k", b"v")], base_offset=base, leader_epoch=0)


# -- repairs ---------------------------------------------------------------------------------------


def copy_of(log, damage):
    outcome = log.read(damage.first_offset, 1 << 20, upper_bound=damage.end_offset)
    return memoryview(b"".join(bytes(part) for part in outcome.parts))


def repair(files, log, done, copies):
    options = SegmentOptions.of(SMALL)
    written = SegmentRepair(files, done.extent, copies, options)
    written.write()
    old = log.segments.floor(done.extent.base_offset)
    is_there = old.base_offset == done.extent.base_offset
    new = Segment(
        files,
        log.folder,
        done.extent.base_offset,
        size=written.size,
        options=options,
        created_ms=NOW,
    )
    log.replace_segments([old] if is_there else [], new, NOW)
    files.fsync_dir(log.folder)
    log.set_damages(done.extent.base_offset, ())


def test_a_copy_takes_the_place_of_the_damage_and_nothing_else_changes(
    disk: SimDisk, files: SimFiles, log: Log
) -> None:
    segment = list(log.segments)[1]
    path = segment.path(".log")
    before, whole = bytes(disk.names[path].data), read_all(log)
    positions = [position for position, _, _ in batches_of(segment)]
    log.segments.release_idle(log.recovery_point)
    goods = {}
    for at in (positions[1] + 30, positions[3] + 10):
        disk.flip(path, at, 2)
    _, done = check(files, log)
    assert len(done.damages) == 2
    with_flips = bytes(disk.names[path].data)
    disk.names[path].data[:] = before
    for damage in done.damages:
        goods[damage] = copy_of(log, damage)
    disk.names[path].data[:] = with_flips
    repair(files, log, done, list(goods.items()))
    assert bytes(disk.names[path].data) == before
    assert read_all(log) == whole
    check_indexes(log)
    assert check(files, log)[1].damages == []


def test_a_copy_that_does_not_fit_is_not_taken(log: Log) -> None:
    segment = list(log.segments)[1]
    headers = [header for _, header, _ in batches_of(segment)]
    first, last = headers[1], headers[2]
    damage = Damage(segment.base_offset, first.base_offset, last.next_offset, 0, 0, "test")
    extent = extent_of(log, segment, has_gaps=False)
    good = copy_of(log, damage)
    assert check_copy(extent, damage, good) == ""
    bad = bytearray(good)
    bad[-1] ^= 1
    assert "checksum" in check_copy(extent, damage, memoryview(bad))
    other_epoch = bytearray(good)
    other_epoch[15] ^= 1
    assert "leader epoch" in check_copy(extent, damage, memoryview(other_epoch))
    assert "ends at offset" in check_copy(extent, damage, good[: first.size_in_bytes])
    assert "where" in check_copy(extent, damage, good[first.size_in_bytes :])
    assert check_copy(extent, damage, good[:-1])


def test_a_missing_segment_comes_back(disk: SimDisk, files: SimFiles, log: Log) -> None:
    whole = read_all(log)
    segment = list(log.segments)[1]
    following = list(log.segments)[2]
    damage = Damage(segment.base_offset, segment.base_offset, following.base_offset, 0, 0, "gone")
    copied = copy_of(log, damage)
    folder = log.folder
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(f"{folder}/{segment.base_offset:020d}{suffix}")
    log = open_log(files, recovery_point=120, high_watermark=120)
    assert [one.base_offset for one in log.segments].count(segment.base_offset) == 0
    extent = extent_of(log, log.segments.first, has_gaps=False)
    extent = extent._replace(
        base_offset=segment.base_offset, end_offset=following.base_offset, size=0
    )
    done = SegmentCheck(files, extent)
    done.run()
    repair(files, log, done, [(done.damages[0], copied)])
    assert read_all(log) == whole
    check_indexes(log)


def test_aborted_transactions_of_a_repaired_segment_are_known(files: SimFiles) -> None:
    log = open_log(files)
    data = build_batch(
        [Record(0, NOW, b"k", b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append_as_leader(memoryview(bytearray(data)), leader_epoch=0, now_ms=NOW)
    marker = build_end_transaction_marker(
        ControlType.ABORT, timestamp=NOW, producer_id=7, producer_epoch=0, coordinator_epoch=0
    )
    log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW, from_client=False
    )
    log.roll(NOW)
    log.flush()
    log.set_high_watermark(2)
    assert log.aborted_transactions(0, 2) == [AbortedTransaction(7, 0)]
    segment = log.segments.first
    damage = Damage(0, 0, 2, 0, segment.size, "test")
    copied = copy_of(log, damage)
    files.remove(segment.path(".txnindex"))
    done = SegmentCheck(files, extent_of(log, segment, has_gaps=False))
    repair(files, log, done, [(damage, copied)])
    assert log.aborted_transactions(0, 2) == [AbortedTransaction(7, 0)]


@pytest.mark.parametrize("step", range(1, 26))
def test_a_crash_in_a_repair_leaves_the_old_segment_or_the_new_one(
    disk: SimDisk, files: SimFiles, log: Log, step: int
) -> None:
    """A power failure after any step on the disk; what was good stays good."""
    segment = list(log.segments)[1]
    batches = batches_of(segment)
    path = segment.path(".log")
    good = bytes(disk.names[path].data)
    position, header, _ = batches[2]
    whole = offsets(log)
    disk.flip(path, position + 40, 3)
    _, done = check(files, log)
    copied = memoryview(good)[position : position + header.size_in_bytes]
    disk.on_death = lambda: None
    disk.die_at = disk.operations + step
    try:
        repair(files, log, done, [(done.damages[0], copied)])
        disk.die_at = None
    except MachineDiedError:
        pass
    disk.unwinding = False
    disk.power_failure()
    after = open_log(disk.files(), clean=False, recovery_point=120, high_watermark=120)
    assert offsets(after) == whole
    data = bytes(disk.names[path].data)
    assert (
        data == good
        or data
        == good[: position + 40] + bytes([good[position + 40] ^ 8]) + (good[position + 41 :])
    )
