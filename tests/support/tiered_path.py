"""A broker's data path with a remote tier, in virtual time: what is produced is copied and leaves
the disk when a test says so.

path = TieredPath(tmp_path)
path.create("foo", 2)
path.fill("foo", 0, batches=10)
path.offload("foo", 0)
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from support.data_path import NOW_MS, CountingRng, DataPath, batch
from support.remote import KnownSegments, WatchedStore, copy_log
from support.remote_reads import LoopClock, SteppedExecutor, run
from tidelog.api.fetch import FetchApi
from tidelog.api.fetch_remote import RemoteFetches
from tidelog.api.offsets import OffsetsApi
from tidelog.api.offsets_remote import RemoteOffsets
from tidelog.metrics.meters import Meters
from tidelog.tiered.pools import Pool
from tidelog.tiered.quotas import RateQuota
from tidelog.tiered.reads.remote_reads import RemoteReads
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import SegmentState, TopicIdPartition
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Story = Callable[["TieredPath"], Awaitable[None]]

# Two batches a segment, of which the log keeps as few as it may.
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "index.interval.bytes": "1",
    "segment.index.bytes": "24",
}


class TieredPath(DataPath):
    """Made inside of the simulated loop."""

    def __init__(self, folder: Path, *, quota: int = 2**63 - 1, pending_max: int = 100) -> None:
        super().__init__(folder / "data", syncs=False, remote_log_storage_system_enable="true")
        self.files = OsFileSystem(syncs=False)
        self.store = WatchedStore(DirectoryStore(self.files, str(folder / "tier")))
        self.metadata = KnownSegments()
        self.executor = SteppedExecutor()
        self.pool = Pool(self.executor, 4, pending_max=pending_max)
        self.meters = Meters()
        cache = IndexCache(self.files, str(folder), 1 << 30)
        cache.open(0)
        self.reads = RemoteReads(
            Sources(self.store, cache, ChunkCache(chunk_bytes=4096)),
            self.metadata,  # type: ignore[arg-type] - the look-ups that reads need
            self.pool,  # type: ignore[arg-type]
            quota=RateQuota(quota),
            runtime=SimpleNamespace(clock=LoopClock(), rng=CountingRng()),  # type: ignore[arg-type]
            meters=self.meters,
        )
        loop = asyncio.get_running_loop()
        self.remote_fetches = RemoteFetches(self.replicas, self.reads, loop)
        self.remote_offsets = RemoteOffsets(self.replicas, self.reads, loop)
        fetch_api = FetchApi(self.replicas, self.config, CountingRng(), self.remote_fetches)
        self.handlers |= fetch_api.handlers()
        self.handlers |= OffsetsApi(self.replicas, self.remote_offsets).handlers()
        self._next_id = 1

    def create(self, name: str, partitions: int = 1, **options: Any) -> bytes:
        """A tiered topic."""
        configs = {**TIERED, **options.pop("configs", {})}
        return super().create(name, partitions, configs=configs, **options)

    def fill(self, topic: str, index: int = 0, *, batches: int = 10, count: int = 2) -> None:
        """Produce batches of `count` records, a second apart."""
        end = self.partition(topic, index).log.log_end_offset
        for number in range(batches):
            timestamp = NOW_MS + 1000 * (end + number)
            self.produce(topic, index, batch(count, timestamp=timestamp), acks=1)

    def copy(self, topic: str, index: int = 0) -> list[Any]:
        """Copy what is sealed and not copied yet."""
        partition = self.partition(topic, index)
        log = partition.log
        copied = copy_log(
            log,
            self.store,
            self.files,
            first_id=self._next_id,
            above=log.highest_remote_offset,
            partition=TopicIdPartition(UUID(bytes=partition.topic_id), topic, index),
        )
        self._next_id += len(copied)
        self.metadata.add(*copied)
        if copied:
            log.set_highest_remote_offset(copied[-1].end_offset)
        return copied

    def offload(self, topic: str, index: int = 0) -> list[Any]:
        """Copy, then delete locally."""
        copied = self.copy(topic, index)
        log = self.partition(topic, index).log
        log.delete_old_segments(NOW_MS)
        assert log.log_start_offset < log.local_log_start_offset
        return copied

    def expire(self, segment: Any) -> None:
        """What a leader does before it deletes a remote segment, and that it has begun to."""
        log = self.partition(segment.topic, segment.partition).log
        log.maybe_increment_log_start(segment.end_offset + 1, "test")
        self.metadata.update(segment, SegmentState.DELETE_SEGMENT_STARTED)

    async def answered(self, context: Any = None, within_s: float = 60) -> Any:
        """The answer of the last request, when it is there."""
        context = self.context if context is None else context
        deadline = asyncio.get_running_loop().time() + within_s
        while (answer := self.answer_of(context)) is None:
            assert asyncio.get_running_loop().time() < deadline, "no answer"
            await asyncio.sleep(0.001)
        return answer

    async def fetched(self, *partitions: Any, **options: Any) -> Any:
        """A fetch, and its answer."""
        answer = self.fetch(*partitions, **options)
        return await self.answered() if answer is None else answer


def teller(folder: Path) -> Callable[..., None]:
    """`tell(story, **options)` plays a story on a path (made with the options) whose topic foo has
    20 records a partition, most of them remote; nobody may be left waiting at its end."""

    def tell(story: Story, **options: Any) -> None:
        async def test() -> None:
            path = TieredPath(folder, **options)
            path.create("foo", 3)
            for index in range(3):
                path.fill("foo", index)
                path.offload("foo", index)
            try:
                await story(path)
                assert len(path.remote_fetches.purgatory) == 0
                assert len(path.remote_offsets.purgatory) == 0
            finally:
                await path.reads.close()
                path.logs.abandon()

        run(test)

    return tell
