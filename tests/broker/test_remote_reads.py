"""Reads of the remote tier by a broker: shared, ahead, retried, given up."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from uuid import UUID

import pytest

from support.logs import NOW, config
from support.remote import PARTITION
from support.remote_reads import ReadsWorld, simulated
from tidelog.config.broker import BrokerConfig
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name
from tidelog.tiered.pools import PoolFullError
from tidelog.tiered.reads.reader import RemoteRead
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
    SegmentState,
)
from tidelog_storage.remote.chunks import CorruptRemoteDataError


@simulated
async def test_a_catch_up_fetches_every_byte_once_and_finds_it_ready() -> None:
    world = ReadsWorld(200)
    assert await world.read_all() == world.local()
    size = len(world.local())
    assert world.store.bytes_fetched(of_log=True) == size
    asked = [(segment, what) for segment, what, _ in world.store.fetched]
    assert len(asked) == len(set(asked))
    assert world.executor.most_running > 1
    assert len(world.reads) == world.reads.flights == 0


@pytest.mark.parametrize("committed", [False, True])
@simulated
async def test_nothing_is_passed_over_where_an_epoch_ends(committed: bool) -> None:
    """What a reader was to go on with, if it began a chunk that was in memory."""
    world = ReadsWorld(epoch_batches=3)
    for max_bytes in (1, 300, 700, 1 << 20, 700):
        assert await world.read_all(max_bytes, committed=committed) == world.local()


@simulated
async def test_small_segments_are_read_whole_without_their_indexes() -> None:
    world = ReadsWorld(200, chunk_bytes=2000)
    assert await world.read_all() == world.local()
    starts = [what for _, what, _ in world.store.fetched]
    assert starts == [0] * len(world.segments)
    assert len(world.cache) == 0


@simulated
async def test_a_reader_that_goes_on_waits_for_the_first_chunks_alone() -> None:
    world = ReadsWorld(200)
    offset = waits = reads = 0
    while offset < world.end:
        pending, done = world.start(offset, 700)
        waits += not pending.is_done
        reads += 1
        await done
        offset = pending.result.next_offset
        await asyncio.sleep(0.02)
    assert reads > 50
    assert waits <= 3


@simulated
async def test_reading_ahead_is_bounded_by_bytes() -> None:
    world = ReadsWorld(400, capacity_bytes=5000, window_bytes_max=100_000)
    assert await world.read_all(700) == world.local()
    assert world.chunks.weight <= 5000
    assert world.store.bytes_fetched(of_log=True) <= 1.1 * len(world.local())


@simulated
async def test_readers_far_from_each_other_do_not_take_each_others_chunks() -> None:
    world = ReadsWorld(300, capacity_bytes=20_000, threads=8)
    readers = []
    for number in range(4):
        readers.append(asyncio.ensure_future(world.read_all(700)))
        await asyncio.sleep(0.2 * number)
    for data in await asyncio.gather(*readers):
        assert data == world.local()
    assert world.store.bytes_fetched() <= 1.1 * 4 * len(world.local())


@simulated
async def test_readers_beside_each_other_share_what_is_fetched() -> None:
    world = ReadsWorld(300, capacity_bytes=20_000)
    await asyncio.gather(*[world.read_all(700) for _ in range(5)])
    assert world.store.bytes_fetched(of_log=True) == len(world.local())


@simulated
async def test_reading_ahead_leaves_threads_to_waiting_reads() -> None:
    world = ReadsWorld(200, threads=4)
    world.executor.delay_s = 0.5
    for offset in (0, 5, 9):
        await world.read(offset, 300)
    assert world.pool.running <= 2
    pending, done = world.start(world.segments[4].start_offset)
    await done
    assert pending.result.size


@simulated
async def test_readers_of_one_chunk_wait_for_one_fetch() -> None:
    world = ReadsWorld()
    readers = [world.start(offset, 400) for offset in (0, 1, 0, 1, 0, 1)]
    await asyncio.gather(*[done for _, done in readers])
    assert all(pending.result.size for pending, _ in readers)
    asked = [(segment, what) for segment, what, _ in world.store.fetched]
    assert len(asked) == len(set(asked)) == 3  # two indexes, one chunk


@simulated
async def test_what_is_in_memory_is_done_at_once() -> None:
    world = ReadsWorld()
    await world.read(0, 300)
    pending, _ = world.start(0, 300)
    assert pending.is_done
    await asyncio.sleep(0)
    assert len(world.reads) == 0


@simulated
async def test_an_offset_in_no_segment() -> None:
    world = ReadsWorld()
    for offset in (world.end + 1000, world.log.log_end_offset):
        pending = await world.read(offset)
        assert isinstance(pending.error, RemoteResourceNotFound)
    world.view.log_start_offset = 10
    assert isinstance((await world.read(9)).error, RemoteResourceNotFound)
    assert world.meters.count(Name(*BROKER_TOPIC_METRICS, "RemoteFetchErrorsPerSec")) == 0


@simulated
async def test_meters() -> None:
    world = ReadsWorld()
    pending = await world.read(0, 600)
    world.store.error = RemoteStorageError("broken")
    await world.read(40)

    def count(name):
        return world.meters.count(Name(*BROKER_TOPIC_METRICS, name), topic="t")

    assert count("RemoteFetchRequestsPerSec") == 2
    assert count("RemoteFetchBytesPerSec") == pending.result.size
    assert count("RemoteFetchErrorsPerSec") == 1


# ---- what fails ----------------------------------------------------------------------------------


@simulated
async def test_a_transient_error_is_tried_again_while_a_read_waits() -> None:
    world = ReadsWorld()
    world.store.error = RetriableRemoteStorageError("away")
    pending, done = world.start(0)
    await asyncio.sleep(1)
    assert not pending.is_done
    assert pending.trouble is world.store.error
    tries = world.executor.calls
    assert 3 < tries < 30
    world.store.error = None
    await done
    assert pending.result.size
    assert pending.error is None


@simulated
async def test_metadata_that_is_not_ready_is_waited_for() -> None:
    world = ReadsWorld()
    world.metadata.error = RemoteStorageNotReady("not yet")
    pending, done = world.start(0)
    await asyncio.sleep(0.3)
    assert not pending.is_done
    world.metadata.error = None
    await done
    assert pending.result.size


@pytest.mark.parametrize(
    "error", [RemoteStorageError("broken"), KeyError("a bug of a plug-in"), OSError("disk")]
)
@simulated
async def test_what_does_not_heal_is_an_error_at_once(error: Exception) -> None:
    world = ReadsWorld()
    world.store.error = error
    pending = await world.read(0)
    assert pending.error is not None
    assert world.executor.calls == 1
    world.store.error = None
    assert (await world.read(0)).result.size
    assert world.reads.flights == 0


@simulated
async def test_corrupt_chunks_are_not_kept_and_the_next_read_is_right() -> None:
    world = ReadsWorld()
    await world.read(0, 300)
    world.reads.forget([segment.segment_id for segment in world.segments])
    changes = [lambda data: data[:-3], lambda data: bytes(len(data)), lambda data: data[::-1]]
    for change in changes:
        world.store.change = change
        pending = await world.read(0, 300)
        assert isinstance(pending.error, CorruptRemoteDataError)
        assert len(world.chunks) == 0
    world.store.change = lambda data: data
    assert await world.read_all() == world.local()


@simulated
async def test_an_index_that_misleads_is_fetched_again() -> None:
    """Its chunks do not begin at batches: both go, and both come back right."""
    world = ReadsWorld()

    def mislead(data):
        positions = bytearray(data)
        if len(data) % 8 == 0 and len(data) < 300:
            positions[7::8] = bytes(byte ^ 1 for byte in positions[7::8])
        return bytes(positions)

    world.store.change = mislead
    assert isinstance((await world.read(20, 300)).error, CorruptRemoteDataError)
    world.store.change = lambda data: data
    assert (await world.read(20, 300)).result.size
    assert await world.read_all() == world.local()


@simulated
async def test_an_object_that_is_lost_is_an_error_unless_its_segment_was_deleted() -> None:
    world = ReadsWorld()
    world.store.delete_segment(world.segments[0])
    pending = await world.read(0)
    assert type(pending.error) is RemoteStorageError
    pending, done = world.start(0)
    world.metadata.update(world.segments[0], SegmentState.DELETE_SEGMENT_STARTED)
    await done
    assert isinstance(pending.error, RemoteResourceNotFound)


@simulated
async def test_too_many_that_wait_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    world = ReadsWorld(400, threads=2, pending_max=3)
    world.executor.is_hung = True
    offsets = [segment.start_offset for segment in world.segments[:7]]
    started = [world.start(offset) for offset in offsets]
    await asyncio.sleep(0.1)
    refused = [pending for pending, _ in started if pending.is_done]
    assert len(refused) == 2
    assert all(isinstance(pending.error, PoolFullError) for pending in refused)
    logged = [(record.levelname, record.exc_info) for record in caplog.records]
    assert logged == [("WARNING", None)], "once, and not as a bug"
    errors = Name(*BROKER_TOPIC_METRICS, "RemoteFetchErrorsPerSec")
    assert world.meters.count(errors) == 0, "in Kafka too the reader fails, not who waits for one"
    world.executor.release()
    await asyncio.gather(*[done for _, done in started])
    assert sum(pending.error is None for pending, _ in started) == 5


@simulated
async def test_ten_thousand_cancelled_reads_leave_nothing() -> None:
    world = ReadsWorld(400, threads=2)
    world.executor.is_hung = True
    for number in range(10_000):
        pending, _ = world.start(world.segments[number % 20].start_offset)
        if number % 50 == 0:
            await asyncio.sleep(0)
        pending.cancel()
        pending.cancel()
        if number % 10 == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(1)
    assert len(world.reads) == 0
    assert world.pool.pending == 0
    assert world.reads.flights <= 2  # that hang in the store
    world.executor.release()
    await asyncio.sleep(1)
    assert world.reads.flights == world.pool.running == 0
    assert len(world.cache) <= 2
    assert await world.read_all() == world.local()


@simulated
async def test_what_has_begun_is_kept_for_the_next_try() -> None:
    world = ReadsWorld()
    world.executor.delay_s = 2
    for _ in range(2):  # indexes, then a chunk
        pending, _ = world.start(0)
        await asyncio.sleep(1)
        pending.cancel()
        await asyncio.sleep(1.5)
    pending, _ = world.start(0)
    assert pending.is_done
    assert world.executor.calls == 2


@simulated
async def test_whoever_comes_while_the_same_is_given_up_gets_it() -> None:
    world = ReadsWorld(threads=1)
    world.executor.delay_s = 1
    first, first_done = world.start(world.segments[1].start_offset)  # takes the only thread
    second, _ = world.start(0)
    await asyncio.sleep(0.1)
    second.cancel()
    third, third_done = world.start(0)
    await asyncio.gather(first_done, third_done)
    assert third.result.size
    assert first.result.size


@simulated
async def test_deleted_segments_are_forgotten_at_once() -> None:
    world = ReadsWorld()
    await world.read_all()
    gone = world.segments[1]
    world.reads.forget([gone.segment_id])
    assert gone.segment_id not in world.cache
    assert len(world.chunks)
    assert all(held.segment_id != gone.segment_id for held in world.chunks._all())


@simulated
async def test_a_failure_is_logged_once_until_a_read_is_right_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = ReadsWorld()
    for _ in range(2):
        caplog.clear()
        world.store.error = RemoteStorageError("broken")
        for offset in (0, 20, 40):
            await world.read(offset)
        assert [record.getMessage() for record in caplog.records] == [
            "read of t in the remote tier failed: broken"
        ]
        world.store.error = None
        await world.read(0)


@simulated
async def test_dynamic_settings_are_followed() -> None:
    world = ReadsWorld()
    await world.read(0)
    await world.read(world.segments[1].start_offset)
    config = {
        "node.id": "1",
        "remote.fetch.max.wait.ms": "70",
        "remote.list.offsets.request.timeout.ms": "80",
        "remote.log.index.file.cache.total.size.bytes": "1",
    }
    world.reads.reconfigure(BrokerConfig.from_properties(config))
    assert (world.reads.fetch_wait_ms, world.reads.list_offsets_timeout_ms) == (70, 80)
    assert len(world.cache) == 1


# ---- the quota -----------------------------------------------------------------------------------


@simulated
async def test_the_fetch_quota() -> None:
    world = ReadsWorld(quota=100)
    assert not world.reads.is_throttled()
    await world.read(0, 600)
    assert world.reads.is_throttled()
    await asyncio.sleep(12)
    assert not world.reads.is_throttled()


# ---- by time -------------------------------------------------------------------------------------


@simulated
async def test_offsets_by_time() -> None:
    world = ReadsWorld(100)
    for timestamp in (0, NOW + 15, NOW + 333, NOW + 500):
        done = asyncio.get_running_loop().create_future()
        pending = world.reads.offset_for_timestamp(
            timestamp, PARTITION, world.view, functools.partial(done.set_result, None)
        )
        if not pending.is_done:
            await done
        assert pending.result == world.log.offset_for_timestamp(timestamp)


@simulated
async def test_an_index_that_is_loaded_without_times_is_loaded_again_with_them() -> None:
    world = ReadsWorld(100)
    read, read_done = world.start(0)
    done = asyncio.get_running_loop().create_future()
    search = world.reads.offset_for_timestamp(
        NOW + 15, PARTITION, world.view, lambda: done.set_result(None)
    )
    await asyncio.gather(read_done, done)
    assert read.result.size
    assert search.result.offset == world.log.offset_for_timestamp(NOW + 15).offset


# ---- the end -------------------------------------------------------------------------------------


@simulated
async def test_closing_cancels_what_is_under_way_and_takes_no_more() -> None:
    world = ReadsWorld(200, threads=2)
    world.executor.is_hung = True
    started = [world.start(segment.start_offset) for segment in world.segments[:5]]
    await asyncio.sleep(0.1)
    await world.reads.close()
    await world.reads.close()
    assert len(world.reads) == world.reads.flights == 0
    assert not any(done.done() for _, done in started)
    pending = await world.read(0)
    assert isinstance(pending.error, RemoteStorageError)
    world.executor.release()
    await asyncio.sleep(1)


@simulated
async def test_a_consumer_of_many_partitions_fetches_little_twice() -> None:
    """Every fetch asks all partitions; what each is in the middle of has to stay."""
    settings = config(internal_segment_bytes=100_000, index_interval_bytes=1000, retention_ms=-1)
    world = ReadsWorld(
        150, settings=settings, size=2000, chunk_bytes=16_000, capacity_bytes=600_000, threads=10
    )
    partitions = 12
    own = {}
    for number in range(partitions):
        partition = PARTITION._replace(partition=number)
        for segment in world.segments:
            segment_id = UUID(int=number << 64 | segment.segment_id.int)
            copy = replace(segment, topic_id_partition=partition, segment_id=segment_id)
            own[segment_id] = segment
            if number:
                world.metadata.add(copy)
    store = world.store
    world.reads.sources._store = Renamed(store, own)
    offsets = [0] * partitions
    served = 0
    while min(offsets) < world.end:
        reads = []
        for number, offset in enumerate(offsets):
            if offset < world.end:
                done = asyncio.get_running_loop().create_future()
                request = RemoteRead(PARTITION._replace(partition=number), offset, 20_000)
                pending = world.reads.fetch(request, world.view, functools.partial(_settle, done))
                if pending.is_done:
                    _settle(done)
                reads.append((number, pending, done))
        for number, pending, done in reads:
            await done
            served += pending.result.size
            offsets[number] = pending.result.next_offset
        await asyncio.sleep(0.01)
    assert served == partitions * len(world.local())
    assert store.bytes_fetched() <= 1.1 * served


def _settle(done):
    if not done.done():
        done.set_result(None)


class Renamed:
    """A store of segments that are the same under other names."""

    def __init__(self, store, own):
        self.store, self.own = store, own

    def fetch_segment(self, segment, start, end=None):
        return self.store.fetch_segment(self.own[segment.segment_id], start, end)

    def fetch_index(self, segment, kind):
        return self.store.fetch_index(self.own[segment.segment_id], kind)
