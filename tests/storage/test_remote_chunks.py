"""Chunks: what a store may answer, and what is kept of it. The read-ahead cache and its grid."""

from __future__ import annotations

import io
import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.logs import NOW, batch
from support.remote import PARTITION, remote_segment
from tidelog_protocol.records import set_offset_and_epoch
from tidelog_storage.remote import chunk_cache
from tidelog_storage.remote.api import RemoteStorageError, RetriableRemoteStorageError
from tidelog_storage.remote.chunk_cache import ChunkCache, Grid
from tidelog_storage.remote.chunks import (
    Buffers,
    Chunk,
    ChunkPlace,
    CorruptRemoteDataError,
    load_chunk,
    read_exactly,
)


class Answering:
    """A store that has one segment of `data`, and may answer with something else."""

    def __init__(self, data):
        self.data = data
        self.asked = []
        self.change = lambda data: data

    def fetch_segment(self, segment, start, end):
        self.asked.append((start, end))
        return io.BytesIO(self.change(self.data[start : end + 1]))


def batches(sizes, start=0):
    """Bytes of batches of one record each, and where they begin."""
    data = bytearray()
    positions = [0]
    for number, size in enumerate(sizes):
        one = bytearray(batch(1, size=size))
        set_offset_and_epoch(one, 0, start + number, 0)
        data += one
        positions.append(len(data))
    return bytes(data), positions


DATA, POSITIONS = batches([50, 100, 50, 400, 50])
SEGMENT = remote_segment(size=len(DATA), start=0, end=4)
WHOLE = ChunkPlace(0, len(DATA))


def test_a_whole_chunk() -> None:
    store = Answering(DATA)
    chunk = load_chunk(store, SEGMENT, WHOLE)
    assert (len(chunk), chunk.start, chunk.end, chunk.view(0, 5)) == (5, 0, len(DATA), DATA)
    assert chunk.weight > len(DATA)
    assert [chunk.position(i) for i in range(6)] == POSITIONS
    assert [chunk.batch_with(offset) for offset in (0, 1, 4, 5, 99)] == [0, 1, 4, 5, 5]
    assert [chunk.batches_below(offset) for offset in (0, 1, 4, 5, 99)] == [0, 1, 4, 5, 5]
    assert chunk.view(1, 3) == DATA[POSITIONS[1] : POSITIONS[3]]
    assert store.asked == [(0, len(DATA) - 1)]


def test_what_fits() -> None:
    chunk = load_chunk(Answering(DATA), SEGMENT, WHOLE)
    for first in range(5):
        for stop in range(first, 6):
            for max_bytes in (0, 100, 130, 300, 700, 5000):
                expected = first
                while expected < stop and POSITIONS[expected + 1] - POSITIONS[first] <= max_bytes:
                    expected += 1
                assert chunk.fitting(first, stop, max_bytes) == expected


def test_a_chunk_in_the_middle() -> None:
    place = ChunkPlace(POSITIONS[1], POSITIONS[3])
    chunk = load_chunk(Answering(DATA), SEGMENT, place)
    assert (len(chunk), chunk.start, chunk.end) == (2, *place[:2])
    assert (chunk.next_offset(0), chunk.next_offset(1)) == (2, 3)


def test_an_inexact_chunk_ends_with_its_last_whole_batch() -> None:
    chunk = load_chunk(Answering(DATA), SEGMENT, ChunkPlace(0, POSITIONS[2] + 70, exact=False))
    assert (len(chunk), chunk.end) == (2, POSITIONS[2])
    store = Answering(DATA)
    chunk = load_chunk(store, SEGMENT, ChunkPlace(POSITIONS[3], POSITIONS[3] + 100, exact=False))
    assert (len(chunk), chunk.end) == (1, POSITIONS[4])  # larger than a chunk: fetched whole
    assert len(store.asked) == 2


def test_short_answers_are_errors() -> None:
    store = Answering(DATA)
    for length in (0, 10, 60, len(DATA) - 1):
        store.change = lambda data, length=length: data[:length]
        with pytest.raises(CorruptRemoteDataError, match=f"{length} bytes instead of"):
            load_chunk(store, SEGMENT, WHOLE)


@given(st.integers(0, len(DATA) * 8 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    flipped = bytearray(DATA)
    flipped[bit // 8] ^= 1 << bit % 8
    store = Answering(bytes(flipped))
    with pytest.raises(CorruptRemoteDataError):
        load_chunk(store, SEGMENT, WHOLE)


def test_leader_epochs_are_those_of_the_metadata() -> None:
    """The CRC does not cover them (the simulation's seed 30034 of three brokers)."""
    data = bytearray(DATA)
    for number, epoch in enumerate((3, 3, 5, 5, 9)):
        set_offset_and_epoch(data, POSITIONS[number], number, epoch)
    good = remote_segment(size=len(DATA), start=0, end=4, epochs=((3, 0), (5, 2), (7, 4), (9, 4)))
    assert len(load_chunk(Answering(bytes(data)), good, WHOLE)) == 5
    middle = ChunkPlace(POSITIONS[2], POSITIONS[4])
    assert len(load_chunk(Answering(bytes(data)), good, middle)) == 2
    other = remote_segment(size=len(DATA), start=0, end=4, epochs=((3, 0), (5, 3), (9, 4)))
    with pytest.raises(CorruptRemoteDataError, match="leader epoch 5 instead of 3"):
        load_chunk(Answering(bytes(data)), other, WHOLE)


def test_leader_epochs_below_the_log_start_may_be_forgotten() -> None:
    """Records were deleted up to 2, where the epoch changes, before the segment was copied: the log
    had forgotten epoch 3, and nothing of the segment could be read (seed 49 of three brokers, if
    all seeds have a remote tier)."""
    data = bytearray(DATA)
    for number, epoch in enumerate((3, 3, 5, 5, 9)):
        set_offset_and_epoch(data, POSITIONS[number], number, epoch)
    segment = remote_segment(size=len(DATA), start=0, end=4, epochs=((5, 2), (9, 4)))
    assert len(load_chunk(Answering(bytes(data)), segment, WHOLE)) == 5


@given(st.binary(min_size=1, max_size=200))
def test_noise_is_never_a_chunk(noise: bytes) -> None:
    store = Answering(DATA)
    store.change = lambda data: (noise * len(data))[: len(data)]
    with pytest.raises(CorruptRemoteDataError):
        load_chunk(store, SEGMENT, WHOLE)
    with pytest.raises(CorruptRemoteDataError):
        load_chunk(store, SEGMENT, ChunkPlace(0, 300, exact=False))


def test_another_segments_bytes_are_noticed() -> None:
    other, _ = batches([50, 100, 50, 400, 50], start=5)
    with pytest.raises(CorruptRemoteDataError, match="offsets 5 to 5"):
        load_chunk(Answering(other), SEGMENT, WHOLE)
    twice, _ = batches([50], start=3)
    one = remote_segment(size=2 * len(twice), start=0, end=4)
    with pytest.raises(CorruptRemoteDataError, match="behind 3"):
        load_chunk(Answering(twice * 2), one, ChunkPlace(0, 2 * len(twice)))


def test_a_range_of_another_place_is_noticed() -> None:
    """A store that gives the start of the object whatever is asked."""
    store = Answering(DATA)
    store.fetch_segment = lambda *_: io.BytesIO(DATA)
    place = ChunkPlace(POSITIONS[3], POSITIONS[4])
    with pytest.raises(CorruptRemoteDataError):
        load_chunk(store, SEGMENT, place)


def test_corrupt_data_is_no_matter_of_time() -> None:
    assert issubclass(CorruptRemoteDataError, RemoteStorageError)
    assert not issubclass(CorruptRemoteDataError, RetriableRemoteStorageError)


def test_streams_that_give_little_at_a_time() -> None:
    class Dripping(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 3))

    assert read_exactly(Dripping(b"0123456789"), 8) == b"01234567"
    assert read_exactly(Dripping(b"0123456789"), 20) == b"0123456789"
    assert read_exactly(io.BytesIO(b""), 5) == b""


# ---- memory --------------------------------------------------------------------------------------


class Filling(io.BytesIO):
    fills_buffers = True

    def readinto(self, buffer):
        return super().readinto(memoryview(buffer)[:200])


def test_chunks_are_read_into_buffers_that_are_used_again() -> None:
    buffers = Buffers()
    store = Answering(DATA)
    store.fetch_segment = lambda *_: Filling(DATA)
    chunk = load_chunk(store, SEGMENT, WHOLE, buffers)
    first = chunk._data
    assert isinstance(first, bytearray)
    view = chunk.view(1, 3)
    expected = bytes(view)
    del chunk  # its memory is free, but for the view
    other = load_chunk(store, SEGMENT, WHOLE, buffers)
    assert other._data is not first
    del other
    store.fetch_segment = lambda *_: Filling(DATA[:-1])
    with pytest.raises(CorruptRemoteDataError, match="bytes instead of"):
        load_chunk(store, SEGMENT, WHOLE, buffers)
    assert view == expected
    del view
    taken = [buffers.take(10), buffers.take(10), buffers.take(10)]
    assert any(buffer is first for buffer in taken)
    assert len({id(buffer) for buffer in taken}) == 3


def test_free_memory_is_bounded_and_fits() -> None:
    buffers = Buffers(1 << 20)
    for _ in range(100):
        buffers.give(bytearray(1 << 18))
    assert sum(map(len, buffers.free)) == 1 << 20
    assert len(buffers.take(1 << 18)) == 1 << 18
    assert len(buffers.take((1 << 18) - 9000)) == 1 << 18
    assert len(buffers.free) == 2
    assert len(buffers.take(1)) == 1 << 16  # one of those would be a waste
    assert len(buffers.take((1 << 18) + 1)) == (1 << 18) + (1 << 16)
    assert len(buffers.take((3 << 20) + 1)) == 4 << 20
    assert len(buffers.free) == 2
    buffers.give(bytearray(2 << 20))
    assert buffers.free == []


# ---- the grid ------------------------------------------------------------------------------------


class Index:
    def __init__(self, positions):
        self.positions = array("i", positions)


@given(
    st.lists(st.integers(1, 400), max_size=60),
    st.integers(0, 400),
    st.sampled_from([100, 256, 1000]),
)
def test_a_grid_covers_the_segment_without_overlap(
    steps: list[int], rest: int, chunk_bytes: int
) -> None:
    positions = []
    for step in steps:
        positions.append((positions[-1] if positions else 0) + step)
    size = (positions[-1] if positions else 0) + rest
    grid = Grid([p for p in positions if p < size], size, chunk_bytes)
    position = 0
    while position < size:
        place = grid.place(position)
        assert place.start == position < place.end <= size
        assert place.end - place.start <= 2 * chunk_bytes
        assert grid.place(place.end - 1) == place
        if not place.exact:
            grid.add(place.end)  # as if a batch ended just there
            assert grid.place(position) == ChunkPlace(place.start, place.end)
        position = place.end


# ---- the cache -----------------------------------------------------------------------------------


def chunk_of(start, size):
    return Chunk(start, bytes(size), array("q", (0, size)), array("q", (1,)))


def has(ahead, segment, position):
    return ahead.find(segment.segment_id, -1, position) is not None


def passed(ahead):
    """Where the chunks begin that readers are done with, in the order they go."""
    held = sorted(ahead._all(), key=lambda held: held.used)
    return [each.chunk.start for each in held if each.rank == chunk_cache._PASSED]


def use(ahead, segment, position):
    chunk = ahead.find(segment.segment_id, -1, position)
    if chunk is not None:
        ahead.use(segment.segment_id, chunk, NOW)


def test_chunks_go_when_there_are_too_many() -> None:
    ahead = ChunkCache(1000, chunk_bytes=100)
    for number in range(12):
        ahead.put(SEGMENT, chunk_of(number * 100, 84), NOW)
        use(ahead, SEGMENT, 0)  # all the time
        assert ahead.weight <= 1000
    assert has(ahead, SEGMENT, 0)
    assert not has(ahead, SEGMENT, 100)
    assert len(ahead) == 10
    ahead.put(SEGMENT, chunk_of(5000, 5000), NOW)  # is more than all: served, not kept
    assert len(ahead) == 10
    other = remote_segment(9)
    ahead.put(other, chunk_of(0, 84), NOW)
    ahead.forget(SEGMENT.segment_id)
    assert (len(ahead), ahead.weight) == (1, 100)
    ahead.clear()
    assert (len(ahead), ahead.weight) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("pgafd"), st.integers(0, 9), st.integers(1, 300))))
def test_the_bytes_are_counted(steps: list[tuple[str, int, int]]) -> None:
    ahead = ChunkCache(900, chunk_bytes=100)
    segments = [remote_segment(number) for number in range(10)]
    for verb, number, size in steps:
        segment = segments[number]
        if verb in "pa":
            ahead.put(segment, chunk_of(0, size), NOW, ahead=verb == "a")
        elif verb == "g":
            use(ahead, segment, 0)
        elif verb == "d":
            ahead.grid(segment, Index([]), NOW)
            ahead.passed(segment.segment_id, size, NOW)
        else:
            ahead.forget(segment.segment_id)
        kept = [held.chunk for held in ahead._all()]
        assert ahead.weight == sum(chunk.weight for chunk in kept) <= 900
        assert len(ahead) == len(kept)


def test_chunks_read_ahead_are_bounded() -> None:
    ahead = ChunkCache(1000, chunk_bytes=100)
    assert ahead.has_room_ahead(500, NOW)
    assert not ahead.has_room_ahead(501, NOW)
    for number in range(4):
        ahead.put(SEGMENT, chunk_of(number * 100, 100), NOW + number, ahead=True)
    assert not ahead.has_room_ahead(100, NOW + 29_999)
    use(ahead, SEGMENT, 0)
    assert ahead.has_room_ahead(100, NOW)
    ahead.put(SEGMENT, chunk_of(400, 100), NOW + 4, ahead=True)
    assert ahead.has_room_ahead(100, NOW + 30_001)  # the reader of the oldest has gone
    assert not has(ahead, SEGMENT, 100)
    assert has(ahead, SEGMENT, 200)


def test_what_was_read_goes_before_what_is_still_to_be_read() -> None:
    ahead = ChunkCache(1000, chunk_bytes=100)
    for number in range(4):
        ahead.put(SEGMENT, chunk_of(number * 100, 84), NOW, ahead=True)
    for number in range(4, 20):
        ahead.put(SEGMENT, chunk_of(number * 100, 84), NOW)
    assert all(has(ahead, SEGMENT, number * 100) for number in range(4))


def test_what_was_read_to_its_end_goes_first() -> None:
    ahead = ChunkCache(1000, chunk_bytes=100)
    segment = remote_segment(size=2000)
    ahead.grid(segment, Index(range(0, 2000, 100)), NOW)
    for number in range(6):
        ahead.put(segment, chunk_of(number * 100, 100), NOW)
    ahead.passed(segment.segment_id, 350, NOW)  # in the middle of the fourth
    assert passed(ahead) == []
    ahead.passed(segment.segment_id, 300, NOW)
    assert passed(ahead) == [200, 100, 0]
    for number in range(6, 10):  # one more than there is room for, and then another
        ahead.put(segment, chunk_of(number * 100, 100), NOW)
    missing = [n for n in range(10) if not has(ahead, segment, n * 100)]
    assert missing == [1, 2]
    use(ahead, segment, 0)  # somebody else begins with it
    assert passed(ahead) == []


def window_behind(ahead, offset, next_offset, partition=PARTITION, *, now_ms=NOW):
    return ahead.read_on(partition, offset, next_offset, now_ms)


def test_a_reader_that_goes_on_gets_a_window_that_doubles() -> None:
    ahead = ChunkCache(chunk_bytes=100, window_bytes_max=700)
    windows = [window_behind(ahead, offset, offset + 10) for offset in range(0, 60, 10)]
    assert windows == [0, 200, 400, 700, 700, 700]
    assert not window_behind(ahead, 500, 510)  # somebody else
    assert not window_behind(ahead, 60, 70, PARTITION._replace(partition=1))
    for offset in random.Random(0).sample(range(1000, 9000), 300):
        window_behind(ahead, offset, offset + 1)
    for offset in range(10_000, 11_000):
        window_behind(ahead, offset, 100_000 + offset)
    assert len(ahead._readers) == 1024


def test_many_partitions_have_smaller_windows_and_chunks() -> None:
    index = Index(range(0, 64 << 20, 4096))
    ahead = ChunkCache()

    def chunk_bytes(number, now_ms):
        partition = PARTITION._replace(partition=number)
        segment = remote_segment(number, size=64 << 20, topic_id_partition=partition)
        place = ahead.grid(segment, index, now_ms).place(0)
        return place.end - place.start

    assert 6 << 20 < chunk_bytes(1, NOW) < 7 << 20
    for number in range(9):
        partition = PARTITION._replace(partition=number)
        window_behind(ahead, 0, 10, partition, now_ms=NOW + number)
        window = window_behind(ahead, 10, 20, partition, now_ms=NOW + number)
        assert window <= (64 << 20) // (2 * (number + 1))
    assert window == (64 << 20) // 18
    assert 600_000 < chunk_bytes(20, NOW + 10) < 700_000
    assert 6 << 20 < chunk_bytes(3, NOW + 60_000) < 7 << 20  # the others have gone
    for number in range(2000):
        partition = PARTITION._replace(partition=number)
        window_behind(ahead, 50, 60, partition, now_ms=NOW + 70_000)
    assert chunk_bytes(4, NOW + 70_000) == 256 << 10
    assert len(ahead._partitions) == 1024


def test_a_grid_that_is_drawn_anew_knows_where_chunks_end() -> None:
    """A chunk that came when the grid was forgotten was found for the byte behind it, for ever: the
    reader, and the broker with it, never came to an end."""
    ahead = ChunkCache(chunk_bytes=100)
    segment = remote_segment(size=2000)
    ahead.grid(segment, Index([]), NOW)
    ahead.forget(segment.segment_id)
    ahead.put(segment, chunk_of(0, 60), NOW)
    grid = ahead.grid(segment, Index([]), NOW)
    assert grid.place_at(60).start == 60
    assert not has(ahead, segment, 60)
