"""What tests of the metadata topic begin with: a broker with the topic in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from support.clusters import until
from support.remote_topic import MemoryClient, MemoryTopic
from tidelog.runtime import AwaitedFiles
from tidelog.tiered.metadata.files import MetadataFiles
from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog_storage.remote.api import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tidelog_storage.remote.metadata_records import metadata_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

STARTED, FINISHED, DELETING, DELETED = SegmentState
COUNT = 4
SETTINGS = {
    "remote.log.metadata.topic.num.partitions": str(COUNT),
    "remote.log.metadata.topic.replication.factor": "1",
    "remote.log.metadata.consume.wait.ms": "60000",
    "remote.log.metadata.initialization.retry.interval.ms": "1",
    "remote.log.metadata.initialization.retry.max.timeout.ms": "200",
}


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(250):
            await test()

    asyncio.run(bounded())


def partition(number: int, topic: str = "t") -> TopicIdPartition:
    return TopicIdPartition(UUID(bytes=f"topic-id-of-{topic:4}".encode()), topic, number)


def index_of(one: TopicIdPartition) -> int:
    return metadata_partition(one.topic_id, one.partition, COUNT)


P0 = partition(0)
SAME = next(partition(n) for n in range(1, 99) if index_of(partition(n)) == index_of(P0))
OTHER = next(partition(n) for n in range(1, 99) if index_of(partition(n)) != index_of(P0))


def segment(one: TopicIdPartition, number: int, start: int = 0, end: int = 9) -> RemoteSegment:
    return RemoteSegment(
        topic_id_partition=one,
        segment_id=UUID(int=number),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp=5,
        event_timestamp=6,
        epochs=((0, start),),
        size=100,
        state=STARTED,
    )


def update(one: TopicIdPartition, number: int, state: SegmentState) -> SegmentUpdate:
    return SegmentUpdate(one, UUID(int=number), 1, 7, state)


class NoFiles:
    """An empty disk that keeps nothing."""

    async def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    async def write_atomic(self, path: str, data: bytes) -> None:
        pass

    async def remove(self, path: str) -> None:
        pass

    async def list(self, path: str) -> list[str]:
        del path
        return []


class Broker:
    """One broker's manager of remote metadata."""

    def __init__(
        self, topic: MemoryTopic, folder: Path | None = None, *, far: bool = False
    ) -> None:
        self.client = MemoryClient(topic, far=far)
        self.failures: list[str] = []
        files = NoFiles() if folder is None else AwaitedFiles(syncs=False)
        self.metadata = TopicBasedMetadata(
            self.client,
            MetadataFiles(files, str(folder)),
            topic.create,
            lambda error: self.failures.append(str(error)),
        )
        self.metadata.configure(SETTINGS)
        self.metadata.start()

    async def lead(self, *partitions: TopicIdPartition) -> None:
        self.metadata.on_leadership_changes(set(partitions), set())
        for one in partitions:
            await self.ready(one)

    async def ready(self, one: TopicIdPartition) -> None:
        await until(lambda: self.metadata.is_ready(one), f"{one} is ready")

    async def copy(self, one: TopicIdPartition, number: int, start: int = 0, end: int = 9) -> None:
        await self.metadata.add(segment(one, number, start, end))
        await self.metadata.update(update(one, number, FINISHED))

    def ids(self, one: TopicIdPartition) -> list[int]:
        return [each.segment_id.int for each in self.metadata.segments(one)]

    async def stop(self, *, saves: bool = True) -> None:
        await self.metadata.stop(saves=saves)
        self.metadata.close()
        assert self.client.is_closed
        assert len(self.client.fetch_purgatory) == 0
