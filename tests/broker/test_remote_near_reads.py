"""Remote segments in this machine's memory are read on the loop, as right as by threads."""

from __future__ import annotations

import asyncio
import random

import pytest

from support.remote_reads import ReadsWorld, simulated
from tidelog.tiered.reads import loading
from tidelog_storage.remote import near
from tidelog_storage.remote.api import RemoteStorageError, RetriableRemoteStorageError
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.directory_store import DirectoryStore

PIECE_MEMORY = (1 << 16) + 100  # how buffers are rounded, and a few batches


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(near, "PIECE_BYTES_MIN", 700)
    monkeypatch.setattr(near, "PIECE_BYTES_MAX", 1100)
    monkeypatch.setattr(near, "_BATCH_BYTES_MAX", 2000)


def a_world(batches=200, **options) -> ReadsWorld:
    return ReadsWorld(batches, near=True, **options)


@simulated
async def test_a_catch_up_copies_every_byte_once_and_waits_for_nothing_but_opening() -> None:
    world = a_world()
    assert await world.read_all(700) == world.local()
    assert world.store.bytes_read == len(world.local())
    assert world.store.fetched == []
    assert sorted(world.store.opened) == [each.segment_id for each in world.segments]
    assert world.executor.calls == len(world.segments)
    assert len(world.reads) == world.reads.flights == 0


@simulated
async def test_a_reader_finds_what_comes_next_ready_also_in_the_next_segment() -> None:
    world = a_world()
    offset = waits = 0
    while offset < world.end:
        pending, done = world.start(offset, 700)
        waits += not pending.is_done
        await done
        offset = pending.result.next_offset
        before = world.store.bytes_read
        await asyncio.sleep(0.01)
        if offset < world.end and waits > 1:
            again = world.store.bytes_read
            assert again > before or world.chunks.weight
    assert waits <= 2  # the first segment, and the second one if its reader was not known yet


@pytest.mark.parametrize("epoch_batches", [1 << 30, 3, 5])
@simulated
async def test_readers_of_all_sizes_get_the_same(epoch_batches: int) -> None:
    world = a_world(100, epoch_batches=epoch_batches)
    for max_bytes in (1, 250, 333, 700, 1100, 3000, 1 << 20):
        assert await world.read_all(max_bytes) == world.local()
        assert await world.read_all(max_bytes, committed=True) == world.local()
    results = await asyncio.gather(*(world.read_all(500 + 77 * each) for each in range(6)))
    assert set(results) == {world.local()}


@simulated
async def test_a_batch_larger_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_BATCH_BYTES_MAX", 2700)
    world = a_world(40, size=1300)
    assert await world.read_all(900) == world.local()
    assert world.store.fetched == []
    monkeypatch.setattr(near, "_BATCH_BYTES_MAX", 2600)  # now it is for threads
    world = a_world(40, size=1300)
    assert await world.read_all(900) == world.local()
    assert world.store.fetched != []


@simulated
async def test_what_is_not_in_memory_is_for_threads() -> None:
    world = a_world()
    world.store.cold = {each.segment_id for each in world.segments[2:5]}
    assert await world.read_all(700) == world.local()
    read = {segment_id for segment_id, what, _ in world.store.fetched if isinstance(what, int)}
    assert read == world.store.cold
    assert world.store.bytes_read + world.store.bytes_fetched(of_log=True) <= 1.1 * len(
        world.local()
    )


@simulated
async def test_very_many_batches_are_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "BATCHES_MAX", 2)
    world = a_world()
    assert await world.read_all(700) == world.local()
    assert len(world.store.opened) == 1


@simulated
async def test_damaged_bytes_are_never_given() -> None:
    world = a_world()
    world.store.change = lambda data: bytes([*data[:100], *(one ^ 1 for one in data[100:])])
    pending = await world.read(0, 700)
    assert isinstance(pending.error, CorruptRemoteDataError)  # as a thread found
    world.store.change = lambda data: data
    assert await world.read_all(700) == world.local()


@simulated
async def test_bytes_that_are_cut_short_are_a_threads_error() -> None:
    world = a_world()
    world.store.change = lambda data: data[:30]
    pending = await world.read(0, 700)
    assert isinstance(pending.error, CorruptRemoteDataError)


@pytest.mark.parametrize(
    "error",
    [RemoteStorageError("bad"), RetriableRemoteStorageError("away"), ValueError("of a plug-in")],
)
@simulated
async def test_a_store_that_fails_in_the_middle(error: Exception) -> None:
    world = a_world()
    first = await world.read(0, 700)
    world.store.error = error
    pending, _ = world.start(first.result.next_offset, 700)
    await asyncio.sleep(1)
    assert (pending.error or pending.trouble) is error
    pending.cancel()
    world.store.error = None
    assert await world.read_all(700) == world.local()


@simulated
async def test_a_near_segment_without_readers_is_closed() -> None:
    world = a_world()
    assert await world.read_all(700) == world.local()
    assert world.store.open
    await asyncio.sleep(100)
    assert world.store.open == 0
    assert world.reads.sources.is_clean
    assert world.chunks.weight == 0


@simulated
async def test_ten_thousand_cancelled_reads_leave_nothing() -> None:
    world = a_world()
    world.executor.is_hung = True
    for _ in range(10_000):
        pending, _ = world.start(0, 700)
        assert not pending.is_done
        pending.cancel()
    await asyncio.sleep(1)
    world.executor.release()
    await asyncio.sleep(200)
    assert len(world.reads) == world.reads.flights == world.store.open == 0
    assert world.reads.sources.is_clean


@simulated
async def test_deleted_segments_are_let_go() -> None:
    world = a_world()
    await world.read(0, 700)
    world.reads.forget([each.segment_id for each in world.segments])
    await asyncio.sleep(20)
    assert world.store.open == 0
    await world.read(0, 700)
    await world.reads.close()
    assert world.store.open == 0


@simulated
async def test_pieces_are_bounded_by_bytes() -> None:
    world = a_world()
    held = world.chunks
    held.capacity_bytes = 3 * PIECE_MEMORY
    readers = [asyncio.ensure_future(world.read_all(700)) for _ in range(8)]
    while not all(reader.done() for reader in readers):
        assert held.weight <= 3 * PIECE_MEMORY
        await asyncio.sleep(0.001)
    assert {reader.result() for reader in readers} == {world.local()}


@simulated
async def test_waiting_fetches_read_on_the_loop_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(near, "DEMAND_BYTES_MAX", 1100)
    world = a_world()
    await world.read(0, 700)
    await asyncio.sleep(1)
    before = world.executor.calls
    first, _ = world.start(0, 700)
    starts = [world.start(each.start_offset, 700) for each in world.segments[:1] * 3]
    await asyncio.gather(*(done for _, done in starts))
    assert first.is_done
    assert world.executor.calls <= before + 1


def test_only_what_reads_as_its_store_does_is_near() -> None:
    class Counting(DirectoryStore):
        def fetch_segment(self, segment, start, end=None):
            return super().fetch_segment(segment, start, end)

    class Both(Counting):
        def open_segment(self, segment):
            return super().open_segment(segment)

    class Other:
        pass

    assert near.opener_of(DirectoryStore()) is not None
    assert near.opener_of(Counting()) is None
    assert near.opener_of(Both()) is not None
    assert near.opener_of(Other()) is None


@simulated
async def test_readers_right_behind_each_other_share_pieces() -> None:
    world = a_world()
    results = await asyncio.gather(*(world.read_all(700) for _ in range(5)))
    assert set(results) == {world.local()}
    assert world.store.bytes_read <= 1.1 * len(world.local())


@pytest.mark.parametrize("seed", range(8))
@simulated
async def test_whatever_the_store_does_only_what_was_written_is_given(seed: int) -> None:
    chance = random.Random(seed)
    world = a_world(120, chunk_bytes=chance.choice((700, 2000)))
    expected = world.local()

    def spoiled(data):
        how = chance.random()
        if how < 0.1 and data:
            return bytes([*data[:-1], data[-1] ^ 1])
        return data[: chance.randint(0, len(data))] if how < 0.2 else data

    async def reader():
        offset, got = 0, b""
        while offset < world.end:
            pending, done = world.start(offset, chance.choice((1, 400, 700, 2000)))
            await asyncio.wait((done,), timeout=0.5)
            if not done.done():
                pending.cancel()
            elif pending.error is None:
                got += b"".join(pending.result.parts)
                offset = pending.result.next_offset
                assert expected.startswith(got)
            world.store.cold = {each.segment_id for each in world.segments if chance.random() < 0.2}
            world.store.error = (
                RetriableRemoteStorageError("away") if chance.random() < 0.1 else None
            )
            await asyncio.sleep(chance.choice((0, 0.001, 0.05)))
        assert got == expected

    world.store.change = spoiled
    await asyncio.gather(*(reader() for _ in range(3)))
    await world.reads.close()
    assert world.store.open == 0


@pytest.mark.parametrize("is_cold", [False, True])
@simulated
async def test_no_more_is_made_ready_than_the_window(is_cold: bool) -> None:
    world = a_world(400, window_bytes_max=6000)
    if is_cold:
        world.store.cold = {each.segment_id for each in world.segments}
    offset = 0
    for _ in range(4):
        pending = await world.read(offset, 700)
        offset = pending.result.next_offset
        await asyncio.sleep(1)
    assert len(world.store.opened) <= 5
    fetched = world.store.bytes_read + world.store.bytes_fetched(of_log=True)
    assert fetched <= 4 * 700 + 6000 + 3000  # a segment is one chunk, or three


@simulated
async def test_of_small_segments_no_more_than_a_few_are_made_ready_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes the loop time, and eight of them may be megabytes."""
    monkeypatch.setattr(near, "PIECE_BYTES_MAX", 5000)  # so that a segment is one piece
    monkeypatch.setattr(near, "PIECE_BYTES_MIN", 5000)
    monkeypatch.setattr(loading, "_PIECES_BYTES_MAX", 4000)
    world = a_world(600, chunk_bytes=50_000, window_bytes_max=100_000)
    sizes = [each.size for each in world.segments]
    for _ in range(2):  # for the first reader the segments are opened one by one
        world.chunks.clear()
        before = world.store.bytes_read
        first = await world.read(0, 700)
        await world.read(first.result.next_offset, 700)
        await asyncio.sleep(1)
        ahead = world.store.bytes_read - before - sizes[0]
        assert 0 < ahead <= 4000 + max(sizes)
