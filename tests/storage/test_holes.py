"""What is missing inside a log: found when it comes into use, or by its recovery."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, batch, config, offsets, open_log
from tidelog_storage.holes import cut_doubtful_end, find_holes
from tidelog_storage.segment import file_name

if TYPE_CHECKING:
    from tidelog.simulation.disk import SimFiles

FOLDER = "data/t-0"
SETTINGS = config(internal_segment_bytes=600, index_interval_bytes=200)


def build(files, count=20):
    """A log of batches of two records, closed in order; the base offsets of its segments."""
    log = open_log(files, settings=SETTINGS)
    for number in range(count):
        append(log, 2, timestamp=NOW + number)
    log.close()
    assert len(log.segments) > 4
    return log.segments.base_offsets


def reopened(files, **options):
    return open_log(files, settings=SETTINGS, high_watermark=99, **options)


def put(files, path, data):
    file = files.open(path, create=True)
    file.truncate(0)
    file.append((data,))
    file.close()


def shift(files, base, number, by):
    """Change the base offset of one batch of a segment; (its right one, its last one)."""
    path = f"{FOLDER}/{file_name(base, '.log')}"
    data = bytearray(files.read_bytes(path))
    position = 0
    for _ in range(number):
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    (offset,) = struct.unpack_from(">q", data, position)
    struct.pack_into(">q", data, position, offset + by)
    put(files, path, bytes(data))
    return offset


def test_a_whole_log_has_no_holes_and_stays_closed(files: SimFiles) -> None:
    build(files)
    log = reopened(files)
    assert find_holes(log) == ([], False)
    assert not any(segment.has_open_file for segment in list(log.segments)[:-1])


@pytest.mark.parametrize("gone", [[2], [2, 3], [1, 3]])
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex")])
def test_segments_that_are_gone_are_seen(
    files: SimFiles, gone: list[int], suffixes: tuple[str] | tuple[str, str, str]
) -> None:
    bases = build(files)
    for number in gone:
        for suffix in suffixes:
            files.remove(f"{FOLDER}/{file_name(bases[number], suffix)}")
    damages, is_suspect = find_holes(reopened(files))
    assert is_suspect
    missing = [range(damage.first_offset, damage.end_offset) for damage in damages]
    assert [offset for each in missing for offset in each] == [
        offset for number in gone for offset in range(bases[number], bases[number + 1])
    ]
    assert all(damage.position == damage.end_position for damage in damages)


def test_an_empty_segment_is_seen(files: SimFiles) -> None:
    bases = build(files)
    put(files, f"{FOLDER}/{file_name(bases[2], '.log')}", b"")
    ((damage,), is_suspect) = find_holes(reopened(files))
    assert is_suspect
    assert (damage.first_offset, damage.end_offset) == (bases[2], bases[3])


@pytest.mark.parametrize("left", [0.4, 0.97])
def test_a_segment_that_was_cut_is_suspect(files: SimFiles, left: float) -> None:
    bases = build(files)
    path = f"{FOLDER}/{file_name(bases[2], '.log')}"
    data = files.read_bytes(path)
    put(files, path, data[: int(len(data) * left)])
    assert find_holes(reopened(files)).is_suspect


@pytest.mark.parametrize("damage", [None, b"", b"xyz", bytes(8), b"\x7f" * 8])
def test_an_offset_index_that_is_no_good_makes_no_hole(
    files: SimFiles, damage: bytes | None
) -> None:
    bases = build(files)
    path = f"{FOLDER}/{file_name(bases[2], '.index')}"
    if damage is None:
        files.remove(path)
    else:
        put(files, path, damage)
    assert find_holes(reopened(files)).damages == []


def test_an_offset_index_that_leads_to_the_end_of_a_segment_makes_it_suspect(
    files: SimFiles,
) -> None:
    bases = build(files)
    end = len(files.read_bytes(f"{FOLDER}/{file_name(bases[2], '.log')}"))
    put(files, f"{FOLDER}/{file_name(bases[2], '.index')}", struct.pack(">ii", 1, end - 1))
    assert find_holes(reopened(files)) == ([], True)


# ---- after a crash -------------------------------------------------------------------------------


def test_a_base_offset_that_rotted_upward_is_not_taken_over(files: SimFiles) -> None:
    """The batch behind it shows what it was: all from there on is cut off, as for any bad batch."""
    base = build(files)[-2]
    offset = shift(files, base, 1, 1 << 4)
    log = reopened(files, clean=False)
    assert offsets(log) == [(each, each + 1) for each in range(0, offset, 2)]
    assert log.log_end_offset == offset


def test_the_last_batch_of_a_log_may_not_come_after_a_gap(files: SimFiles) -> None:
    base = build(files, 21)[-1]
    log = reopened(files)
    last = offsets(log)[-1][0]
    offset = shift(files, base, (last - base) // 2, 1 << 10)
    assert offset == last
    log = reopened(files, clean=False)
    assert log.doubtful_end == offset
    assert log.log_end_offset == offset + 1026, "a compacted leader's log may have a gap there"
    assert cut_doubtful_end(log, NOW) == offset
    assert log.log_end_offset == offset
    assert cut_doubtful_end(log, NOW) is None
    append(log, 2)
    assert offsets(log)[-2:] == [(offset - 2, offset - 1), (offset, offset + 1)]


def test_gaps_that_a_compacted_leader_left_outlive_a_crash(files: SimFiles) -> None:
    log = open_log(files, settings=SETTINGS)
    for offset in (0, 2, 10, 12, 40):
        log.append_as_follower(batch(2, base_offset=offset), leader_epoch=0, now_ms=NOW)
    log.close()
    log = reopened(files, clean=False)
    assert [first for first, _ in offsets(log)] == [0, 2, 10, 12, 40]
    assert log.doubtful_end == 14
