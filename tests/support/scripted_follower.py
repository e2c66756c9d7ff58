"""A follower over real logs against a leader that says what the test wants, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from support.data_path import CountingRng, DataPath, topic_id
from support.leader_channel import LeaderChannel, ScriptedLeader
from tidelog.cluster.metadata.image import BrokerImage, PartitionImage, TopicImage
from tidelog.replication.leader_end_point import RemoteLeader
from tidelog.replication.replica_fetcher import FetcherContext, ReplicaFetcher
from tidelog.simulation.loop import simulate
from tidelog_protocol.messages.data import FetchResponse
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from tidelog.quotas.replication import ReplicationQuota
    from tidelog.replication.fetch_state import State
    from tidelog.replication.partition import Partition

ME, LEADER = 1, 2
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


def records(base: int, count: int = 1, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    batch = [Record(base + n, 1000 + n, None, value) for n in range(count)]
    return bytes(build_batch(batch, base_offset=base, leader_epoch=epoch))


def data(
    batches: bytes = b"", *, error: int = 0, end: int = 0, start: int = 0, **more: Any
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=end,
        log_start_offset=start,
        records=memoryview(batches),
        **more,
    )


def diverging(epoch: int, end: int, *, high_watermark: int = 0) -> PartitionData:
    return data(
        end=high_watermark,
        diverging_epoch=PartitionData.EpochEndOffset(epoch=epoch, end_offset=end),
    )


class Follower:
    """One fetcher over real logs, and its leader."""

    def __init__(self, folder: Path) -> None:
        self.path = DataPath(folder, replica_fetch_backoff_ms="3200")
        self.path.apply(brokers={n: BrokerImage(n, "h", 1) for n in (ME, LEADER)})
        self.leader = ScriptedLeader()
        self.channel = LeaderChannel(self.leader.handlers)
        self.advanced: list[str] = []
        self.quota: ReplicationQuota | None = None
        channel: Any = self.channel
        self.fetcher = ReplicaFetcher(
            "test",
            RemoteLeader(channel, ME),
            FetcherContext(
                config=self.path.config,
                clock=self.path.clock,
                rng=CountingRng(),
                broker_epoch=lambda: 33,
                on_advanced=lambda keys: self.advanced.extend(key.topic for key in keys),
                quota=lambda: self.quota,
            ),
        )

    def follow(self, name: str, *, epoch: int = 0) -> Partition:
        topics = self.path.image.topics
        if name in topics:
            self.path.change(name, leader=LEADER, leader_epoch=epoch)
        else:
            state = PartitionImage(0, LEADER, epoch, 0, (ME, LEADER), (LEADER,))
            self.path.apply(topics={**topics, name: TopicImage(name, topic_id(name), (state,))})
        partition = self.path.partition(name)
        self.fetcher.add(partition, epoch)
        return partition

    def fill(self, name: str, *epochs: int) -> Partition:
        """Followed, with one record per epoch given."""
        partition = self.follow(name, epoch=max(epochs))
        for offset, epoch in enumerate(epochs):
            batch = memoryview(records(offset, epoch=epoch))
            partition.append_as_follower(batch, leader_epoch=partition.leader_epoch, now_ms=0)
        return partition

    def say(self, **answers: PartitionData) -> None:
        self.leader.say({(topic_id(name), 0): answer for name, answer in answers.items()})

    def state(self, name: str) -> State:
        state = self.fetcher.state(topic_id(name), 0)
        assert state is not None
        return state.state

    @property
    def last_fetch(self) -> Any:
        """The last one that named partitions."""
        return next(fetch for fetch in reversed(self.channel.fetches) if fetch.topics)

    @property
    def last(self) -> dict[str, tuple[int, int, int]]:
        """Offset, last epoch and leader epoch by topic, of the last fetch that named any."""
        return {
            topic.topic_id.strip(b"\0\1").decode(): (
                partition.fetch_offset,
                partition.last_fetched_epoch,
                partition.current_leader_epoch,
            )
            for topic in self.last_fetch.topics
            for partition in topic.partitions
        }


@asynccontextmanager
async def follower(folder: Path) -> AsyncIterator[Follower]:
    one = Follower(folder)
    try:
        yield one
    finally:
        one.fetcher.stop()
        await one.fetcher.stopped()
        one.path.logs.abandon()
        assert one.channel.is_closed


async def settle() -> None:
    for _ in range(60):
        await asyncio.sleep(0)


def played(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        simulate(1, lambda _: test(tmp_path))

    run.__name__ = test.__name__
    return run
