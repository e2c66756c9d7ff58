"""Index files: Kafka's bytes, look-ups, truncation, and files that cannot be right."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.simulation.disk import SimDisk
from tidelog_storage.indexes import (
    AbortedEntry,
    CorruptIndexError,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)

if TYPE_CHECKING:
    from tidelog.simulation.disk import SimFiles

PATH = "d/00000000000000000100"


@pytest.fixture
def files():
    files = SimDisk(0).files()
    files.make_dirs("d")
    return files


def put(files, path, data):
    file = files.open(path, create=True)
    file.truncate(0)
    file.append((data,))


def offset_index(files, *entries):
    index = OffsetIndex(files, PATH + ".index", 100)
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_offset_index_bytes(files: SimFiles) -> None:
    index = offset_index(files, (105, 400), (110, 70_000))
    index.write()
    assert files.read_bytes(PATH + ".index") == struct.pack(">iiii", 5, 400, 10, 70_000)
    index.append(120, 80_000)
    index.write()
    assert files.read_bytes(PATH + ".index")[16:] == struct.pack(">ii", 20, 80_000)
    loaded = OffsetIndex(files, PATH + ".index", 100)
    loaded.load(90_000)
    assert (loaded.offsets, loaded.positions) == (index.offsets, index.positions)


def test_offset_index_lookup(files: SimFiles) -> None:
    index = offset_index(files, (105, 400), (110, 800))
    asked = {100: 0, 104: 0, 105: 400, 109: 400, 110: 800, 2**40: 800}
    assert {offset: index.lookup(offset) for offset in asked} == asked
    assert [(index.before(at) or (0, 0))[1] for at in (0, 399, 400, 799, 800, 9999)] == (
        [0, 0, 400, 400, 800, 800]
    )
    assert index.last_position() == 800
    assert offset_index(files).lookup(2**40) == 0
    assert offset_index(files).last_position() == 0


@pytest.mark.parametrize(
    ("offset", "left"), [(100, 0), (105, 0), (106, 1), (110, 1), (111, 2), (2**40, 2)]
)
def test_offset_index_truncation_reaches_the_file(files: SimFiles, offset: int, left: int) -> None:
    index = offset_index(files, (105, 400), (110, 800))
    index.write()
    index.truncate_to(offset)
    index.write()
    expected = [(105, 400), (110, 800)][:left]
    assert files.read_bytes(PATH + ".index") == b"".join(
        struct.pack(">ii", at - 100, position) for at, position in expected
    )
    index.append(200, 900)
    index.write()
    assert files.read_bytes(PATH + ".index")[-8:] == struct.pack(">ii", 100, 900)
    assert len(files.read_bytes(PATH + ".index")) == 8 * (left + 1)


def test_a_new_index_empties_an_old_file(files: SimFiles) -> None:
    put(files, PATH + ".index", b"\x01" * 24)
    offset_index(files).write()
    assert files.read_bytes(PATH + ".index") == b""


def test_an_unchanged_index_is_not_written_again(files: SimFiles) -> None:
    index = offset_index(files, (105, 400))
    index.write()
    put(files, PATH + ".index", b"touched!")
    index.write()
    assert files.read_bytes(PATH + ".index") == b"touched!"


@pytest.mark.parametrize(
    "entries",
    [
        [(5, 400), (5, 800)],
        [(5, 400), (6, 400)],
        [(6, 400), (5, 800)],
        [(-1, 400)],
        [(5, -400)],
        [(5, 1000)],
        [(5, 400), (0, 0)],  # a preallocated or torn tail
    ],
)
def test_wrong_offset_indexes_are_refused(files: SimFiles, entries: list[tuple[int, int]]) -> None:
    put(files, PATH + ".index", b"".join(struct.pack(">ii", *entry) for entry in entries))
    with pytest.raises(CorruptIndexError):
        OffsetIndex(files, PATH + ".index", 100).load(1000)


def test_torn_entries_are_refused(files: SimFiles) -> None:
    put(files, PATH + ".index", b"\x00" * 9)
    put(files, PATH + ".timeindex", b"\x00" * 13)
    with pytest.raises(CorruptIndexError, match="multiple of 8"):
        OffsetIndex(files, PATH + ".index", 100).load(1000)
    with pytest.raises(CorruptIndexError, match="multiple of 12"):
        TimeIndex(files, PATH + ".timeindex", 100).load()


def time_index(files, *entries):
    index = TimeIndex(files, PATH + ".timeindex", 100)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    return index


def test_time_index_bytes_and_only_newer_entries(files: SimFiles) -> None:
    index = time_index(files, (1000, 105), (1000, 107), (999, 108), (1001, 110))
    index.write()
    assert files.read_bytes(PATH + ".timeindex") == struct.pack(">qiqi", 1000, 5, 1001, 10)
    loaded = TimeIndex(files, PATH + ".timeindex", 100)
    loaded.load()
    assert (loaded.timestamps, loaded.offsets) == (index.timestamps, index.offsets)
    assert loaded.last() == (1001, 110)


def test_time_index_lookup(files: SimFiles) -> None:
    index = time_index(files, (1000, 105), (2000, 110))
    asked = {0: 100, 999: 100, 1000: 105, 1999: 105, 2000: 110, 9999: 110}
    assert {at: index.lookup(at) for at in asked} == asked
    assert time_index(files).last() == (-1, 100)
    assert time_index(files).lookup(5) == 100


@pytest.mark.parametrize(("offset", "left"), [(105, 0), (106, 1), (110, 1), (111, 2)])
def test_time_index_truncation(files: SimFiles, offset: int, left: int) -> None:
    index = time_index(files, (1000, 105), (2000, 110))
    index.truncate_to(offset)
    assert len(index) == left


@pytest.mark.parametrize(
    "entries", [[(5, 1), (5, 2)], [(6, 1), (5, 2)], [(5, 2), (6, 1)], [(5, -1)], [(5, 1), (0, 0)]]
)
def test_wrong_time_indexes_are_refused(files: SimFiles, entries: list[tuple[int, int]]) -> None:
    put(files, PATH + ".timeindex", b"".join(struct.pack(">qi", *entry) for entry in entries))
    with pytest.raises(CorruptIndexError):
        TimeIndex(files, PATH + ".timeindex", 100).load()


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 50)),
            st.tuples(st.just("cut"), st.integers(0, 1000)),
            st.tuples(st.just("write"), st.just(0)),
        ),
        max_size=30,
    )
)
def test_the_file_is_the_index_after_any_changes(steps: list[tuple[str, int]]) -> None:
    files = SimDisk(0).files()
    files.make_dirs("d")
    index = offset_index(files)
    offset, position = 100, 0
    for step, value in steps:
        if step == "add":
            offset, position = offset + value, position + value
            index.append(offset, position)
        elif step == "cut":
            index.truncate_to(100 + value)
            if offset >= 100 + value:
                offset = 100 + (index.offsets[-1] if len(index) else 0)
                position = index.last_position()
        else:
            index.write()
    index.write()
    loaded = OffsetIndex(files, PATH + ".index", 100)
    loaded.load(position + 1)
    assert (loaded.offsets, loaded.positions) == (index.offsets, index.positions)


def transaction_index(files, *entries):
    index = TransactionIndex(files, PATH + ".txnindex")
    for entry in entries:
        index.append(AbortedEntry(*entry))
    return index


ABORTED = [(1, 100, 110, 111), (2, 105, 120, 103), (1, 112, 130, 131)]


def test_transaction_index_bytes(files: SimFiles) -> None:
    transaction_index(files, *ABORTED)
    data = files.read_bytes(PATH + ".txnindex")
    assert data == b"".join(struct.pack(">hqqqq", 0, *entry) for entry in ABORTED)
    loaded = transaction_index(files)
    loaded.load()
    assert loaded.entries == ABORTED
    assert loaded.open_written() is not None
    loaded.reset()
    assert not files.exists(PATH + ".txnindex")
    assert loaded.open_written() is None
    loaded.load()
    assert loaded.entries == []


def test_a_torn_entry_is_left_out(files: SimFiles) -> None:
    transaction_index(files, *ABORTED)
    file = files.open(PATH + ".txnindex")
    file.truncate(101)
    loaded = transaction_index(files)
    loaded.load()
    assert loaded.entries == ABORTED[:2]
    file.truncate(0)
    file.append((struct.pack(">hqqqq", 1, *ABORTED[0]),))
    with pytest.raises(CorruptIndexError, match="version 1"):
        loaded.load()


@pytest.mark.parametrize(("offset", "left"), [(111, 1), (110, 0), (121, 2), (9999, 3)])
def test_transaction_index_truncation(files: SimFiles, offset: int, left: int) -> None:
    index = transaction_index(files, *ABORTED)
    index.truncate_to(offset)
    assert index.entries == ABORTED[:left]
    loaded = transaction_index(files)
    loaded.load()
    assert loaded.entries == ABORTED[:left]


def test_collect_overlapping_transactions(files: SimFiles) -> None:
    index = transaction_index(files, *ABORTED)

    def collect(start, bound):
        found = []
        done = index.collect(start, bound, found)
        return [entry.first_offset for entry in found], done

    assert collect(0, 1000) == ([100, 105, 112], False)
    assert collect(111, 112) == ([105], True)
    assert collect(111, 113) == ([105, 112], True)
    assert collect(121, 1000) == ([112], False)
    assert collect(0, 104) == ([100], True)
