"""What remote reads let go of: memory, files of the index cache, handles of near segments."""

from __future__ import annotations

import asyncio

import pytest

from support.remote_reads import ReadsWorld, simulated


@simulated
async def test_unused_indexes_go_and_their_files_too() -> None:
    world = ReadsWorld()
    await world.read(0)
    assert len(world.cache) == 1
    await asyncio.sleep(15 * 60 + 30)
    assert len(world.cache) == 0
    assert world.files.list(world.cache.folder) == []


@simulated
async def test_unused_memory_is_freed() -> None:
    world = ReadsWorld()
    await world.read_all()
    assert world.chunks.weight > 0
    world.reads.sources._buffers.give(bytearray(1000))
    await asyncio.sleep(90)
    assert len(world.chunks) == world.chunks.weight == 0
    assert not world.reads.sources._buffers.free


@pytest.mark.parametrize("near", [False, True])
@simulated
async def test_what_cannot_be_cleaned_while_the_queue_is_full_is_cleaned_later(near: bool) -> None:
    world = ReadsWorld(near=near, threads=1, pending_max=1)
    await world.read(20)
    (segment,) = [one for one in world.segments if one.start_offset <= 20 <= one.end_offset]
    left = world.files.list(world.cache.folder)
    assert (len(left), getattr(world.store, "open", 0)) == ((0, 1) if near else (3, 0))
    others = [one for one in world.segments if one is not segment]
    world.executor.is_hung = True
    waiting = [world.start(one.start_offset) for one in others[-2:]]
    await asyncio.sleep(0.1)
    assert (world.pool.running, world.pool.pending) == (1, 1)
    world.reads.forget([segment.segment_id])
    await asyncio.sleep(60)
    assert len(world.files.list(world.cache.folder)) == len(left), "nobody could remove them"
    world.executor.release()
    await asyncio.gather(*[done for _, done in waiting])
    world.reads.forget([one.segment_id for one in others])
    await asyncio.sleep(60)
    assert world.files.list(world.cache.folder) == []
    assert getattr(world.store, "open", 0) == 0
    assert world.reads.sources.is_clean
