"""Who follows whom: images in, logs of real leaders out, in virtual time."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from support.data_path import CountingRng, DataPath, ManualClock, batch, topic_id
from support.leader_channel import LeaderChannel
from support.metadata import names_by_id
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.replication.fetcher_manager import FetcherManager
from tidelog.replication.replica_fetcher import ReplicaFetcher
from tidelog.simulation.loop import simulate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from tidelog_storage.log import Log

ALL = (1, 2, 3)


class Nodes:
    """Brokers with followers' and leaders' sides, and one image for all."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.clock = ManualClock()
        self.brokers = {n: BrokerImage(n, "h", n, epoch=n) for n in ALL}
        self.topics: dict[str, TopicImage] = {}
        self.channels: list[LeaderChannel] = []
        self.fetchers: list[ReplicaFetcher] = []
        self.paths = {
            n: DataPath(
                folder / str(n), node_id=n, clock=self.clock, apply_first=False, **properties
            )
            for n in ALL
        }
        self.managers = {n: self._manager(path) for n, path in self.paths.items()}
        self.image: ClusterImage | None = None
        self.away: set[int] = set()
        self.publish()

    def _manager(self, path: DataPath) -> FetcherManager:
        def connect(host: str, port: int) -> Any:
            assert host == "h"
            channel = LeaderChannel(self.paths[port % 10].handlers)
            self.channels.append(channel)
            return channel

        return FetcherManager(
            path.replicas,
            connect,
            config=path.config,
            rng=CountingRng(),
            broker_epoch=lambda: path.node_id,
            new_fetcher=self._new_fetcher,
        )

    def _new_fetcher(self, *args: Any) -> ReplicaFetcher:
        self.fetchers.append(ReplicaFetcher(*args))
        return self.fetchers[-1]

    def fetcher_of(self, node_id: int, name: str, index: int = 0) -> ReplicaFetcher | None:
        """The fetcher of a partition; None if it is not followed."""
        key = topic_id(name), index
        own = [each for each in self.fetchers if each.name.startswith(f"{node_id}-")]
        return next((each for each in own if each.state(*key) is not None), None)

    def publish(self, *, to: tuple[int, ...] = ALL) -> None:
        """A new image for some (the others miss it)."""
        new = ClusterImage(
            cluster_id="c",
            brokers=dict(self.brokers),
            topics=dict(self.topics),
            topic_names=names_by_id(self.topics),
            offset=9,
        )
        for n in to:
            path = self.paths[n]
            old = path.replicas.image
            path.image = new
            delta = MetadataDelta(old, new)
            path.replicas.apply(delta, new)
            self.managers[n].on_image(delta, new)

    def create(self, name: str, *leaders: int, replicas: tuple[int, ...] = ALL) -> None:
        self.topics[name] = TopicImage(
            name,
            topic_id(name),
            tuple(
                PartitionImage(index, leader, 0, 0, replicas, replicas)
                for index, leader in enumerate(leaders)
            ),
        )
        self.publish()

    def change(self, name: str, index: int = 0, *, to: tuple[int, ...] = ALL, **new: Any) -> None:
        topic = self.topics[name]
        states = list(topic.partitions)
        state = states[index]
        states[index] = state._replace(partition_epoch=state.partition_epoch + 1, **new)
        self.topics[name] = topic._replace(partitions=tuple(states))
        self.publish(to=to)

    def elect(self, name: str, leader: int, *, to: tuple[int, ...] = ALL) -> None:
        epoch = self.topics[name].partitions[0].leader_epoch + 1
        self.change(name, leader=leader, leader_epoch=epoch, isr=(leader,), to=to)

    def log(self, node: int, name: str, index: int = 0) -> Log:
        return self.paths[node].partition(name, index).log

    def produce(self, node: int, name: str, value: bytes = b"v", index: int = 0) -> None:
        answer = self.paths[node].produce(name, index, batch(2, value), acks=1)
        assert answer.error_code == 0

    async def settle(self) -> None:
        """Let records and high watermarks come to where they can."""
        for _ in range(6):
            for _ in range(60):
                await asyncio.sleep(0)
            for path in self.paths.values():
                path.timers.advance_ms(200)
            await asyncio.sleep(1)

    def agree(self, name: str, index: int = 0, nodes: tuple[int, ...] = ALL) -> bytes:
        """All have the same bytes and epochs; the bytes."""
        contents = {self.stored(self.log(n, name, index)) for n in nodes}
        assert len(contents) == 1
        logs = [self.log(n, name, index) for n in nodes]
        assert (
            len({tuple(log.epochs.entries_in_range(-1, log.log_end_offset)) for log in logs}) == 1
        )
        return contents.pop()

    @staticmethod
    def stored(log: Log) -> bytes:
        found, offset = b"", log.log_start_offset
        while offset < log.log_end_offset:
            read: Any = log.read(offset, 1 << 20, upper_bound=log.log_end_offset)
            found += b"".join(read.parts)
            offset = read.next_offset
        return found


@asynccontextmanager
async def nodes_in(folder: Path, **properties: str) -> AsyncIterator[Nodes]:
    nodes = Nodes(folder, **properties)
    try:
        yield nodes
    finally:
        for manager in nodes.managers.values():
            await manager.close()
        for path in nodes.paths.values():
            path.logs.abandon()
        assert all(channel.is_closed for channel in nodes.channels)


def played(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        simulate(1, lambda _: test(tmp_path))

    run.__name__ = test.__name__
    return run


@played
async def test_what_a_leader_has_comes_to_its_followers(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1, 2)
        for _ in range(3):
            nodes.produce(1, "a")
        nodes.produce(2, "a", index=1)
        await nodes.settle()
        for index, end in ((0, 6), (1, 2)):
            assert nodes.agree("a", index)
            assert [nodes.log(n, "a", index).high_watermark for n in ALL] == [end] * 3
        assert len(nodes.channels) == 4, "one for each leader of each broker"


@played
async def test_a_new_leader_is_followed_and_what_it_lacks_is_cut(tmp_path: Path) -> None:
    """KIP-101, scenario 2: logs of the same length that differ."""
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1)
        nodes.produce(1, "a")
        await nodes.settle()
        nodes.elect("a", 2, to=(2,))  # 1 and 3 do not hear of it yet
        nodes.produce(1, "a", b"lost")
        await nodes.settle()
        nodes.produce(2, "a", b"kept")
        assert nodes.stored(nodes.log(1, "a")) != nodes.stored(nodes.log(2, "a"))
        nodes.publish()
        await nodes.settle()
        content = nodes.agree("a")
        assert b"kept" in content
        assert b"lost" not in content
        assert [tuple(entry) for entry in nodes.log(1, "a").epochs.entries] == [(0, 0), (1, 2)]


@played
async def test_three_elections_in_a_row(tmp_path: Path) -> None:
    """KIP-279: leaders that know nothing of each other's epochs, one after the other."""
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1)
        nodes.produce(1, "a", b"all")
        await nodes.settle()
        for number, leader in enumerate((2, 3, 2, 1), 1):
            nodes.elect("a", leader, to=(leader,))
            nodes.produce(leader, "a", b"epoch%d" % number)
        await nodes.settle()
        nodes.elect("a", 3)
        await nodes.settle()
        content = nodes.agree("a")
        assert b"all" in content
        assert b"epoch2" in content
        assert not any(value in content for value in (b"epoch1", b"epoch3", b"epoch4"))
        nodes.produce(3, "a", b"last")
        await nodes.settle()
        assert b"last" in nodes.agree("a")
        assert {nodes.log(n, "a").high_watermark for n in ALL} == {6}


@played
async def test_a_follower_below_the_leaders_start_restarts_its_log(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1, replicas=(1, 2))
        for _ in range(4):
            nodes.produce(1, "a")
        await nodes.settle()
        nodes.paths[1].partition("a").log.maybe_increment_log_start(5, "test")
        nodes.produce(1, "a")
        await nodes.settle()
        assert nodes.log(2, "a").log_start_offset == 5
        nodes.change("a", replicas=ALL)
        await nodes.settle()
        late = nodes.log(3, "a")
        assert (late.log_start_offset, late.log_end_offset) == (5, 10)
        assert late.segments.first.base_offset == 4, "with the whole batch that offset 5 is in"
        assert late.high_watermark == 10


@played
async def test_a_follower_without_a_leader_stops_fetching(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1)
        nodes.create("b", 1)
        await nodes.settle()
        first = nodes.fetcher_of(2, "a")
        assert first is nodes.fetcher_of(2, "b") is not None
        del nodes.topics["b"]
        nodes.publish()
        assert nodes.fetcher_of(2, "b") is None
        assert nodes.fetcher_of(2, "a") is first
        nodes.change("a", leader=-1, leader_epoch=1)
        assert nodes.fetcher_of(2, "a") is None
        assert all(channel.is_closed for channel in nodes.channels)
        nodes.elect("a", 3)
        nodes.produce(3, "a")
        await nodes.settle()
        assert nodes.agree("a")
        nodes.change("a", replicas=(1, 3))
        assert nodes.fetcher_of(2, "a") is None


@played
async def test_a_leader_that_came_back_elsewhere_is_found(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1)
        await nodes.settle()
        before = nodes.fetcher_of(2, "a")
        for channel in nodes.channels:
            channel.is_down = True
        nodes.brokers[1] = nodes.brokers[1]._replace(port=11, epoch=20)
        nodes.publish()
        assert nodes.fetcher_of(2, "a") is not before
        nodes.produce(1, "a")
        await nodes.settle()
        assert nodes.agree("a")
        del nodes.brokers[1]
        nodes.publish()
        assert nodes.fetcher_of(2, "a") is None, "its leader is not known"


@played
async def test_partitions_of_one_leader_are_shared_out(tmp_path: Path) -> None:
    async with nodes_in(tmp_path, num_replica_fetchers="2") as nodes:
        nodes.create("a", 1, 1, 1, 1, replicas=(1, 2))
        fetchers = [nodes.fetcher_of(2, "a", index) for index in range(4)]
        assert fetchers[0] is fetchers[2] is not fetchers[1]
        assert fetchers[1] is fetchers[3]
        for index in range(4):
            nodes.produce(1, "a", index=index)
        await nodes.settle()
        for index in range(4):
            assert nodes.agree("a", index, nodes=(1, 2))


@played
async def test_the_number_of_fetchers_changes_while_they_run(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1, 1, 1, 1, replicas=(1, 2))
        manager, config = nodes.managers[2], nodes.paths[2].config
        for count in (2, 2, 1):
            manager.reconfigure(config.with_dynamic({"num.replica.fetchers": str(count)}))
            for index in range(4):
                nodes.produce(1, "a", index=index)
            await nodes.settle()
            assert len(manager._fetchers) == count
            for index in range(4):
                assert nodes.agree("a", index, nodes=(1, 2))


@played
async def test_a_partition_of_a_failed_directory_is_not_fetched(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1)
        assert nodes.fetcher_of(3, "a") is not None
        path = nodes.paths[3]
        log_dir = path.logs.log_dirs[0]
        path.replicas.directory_failed(log_dir, OSError(errno.EIO, "bad disk", log_dir))
        assert nodes.fetcher_of(3, "a") is None
        assert not nodes.managers[3]._fetchers


@played
async def test_a_stopped_manager_follows_no_image(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.managers[3].stop()
        nodes.create("b", 1)
        assert nodes.fetcher_of(3, "b") is None


@played
async def test_a_log_that_is_opened_late_is_followed(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        path = nodes.paths[3]
        create = path.logs.create

        def refuse(*_: Any, **__: Any) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

        path.logs.create = refuse  # type: ignore[method-assign]
        nodes.create("a", 1)
        assert nodes.fetcher_of(3, "a") is None
        path.logs.create = create  # type: ignore[method-assign]
        path.timers.advance_ms(1000)
        assert nodes.fetcher_of(3, "a") is not None
        nodes.produce(1, "a")
        await nodes.settle()
        assert nodes.agree("a")


@played
async def test_only_followers_of_changed_partitions_are_looked_at(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        nodes.create("a", 1, 1, 1)
        nodes.create("b", 1)
        looked: list[tuple[str, int]] = []
        real = nodes.managers[3]._follow

        def follow(image: Any, topic: Any, state: Any) -> None:
            looked.append((topic.name, state.partition))
            real(image, topic, state)

        nodes.managers[3]._follow = follow  # type: ignore[method-assign]
        nodes.change("a", 1, leader=2, leader_epoch=1)
        assert looked == [("a", 1)]
        nodes.brokers[2] = nodes.brokers[2]._replace(fenced=True)
        nodes.publish()
        assert looked == [("a", 1)], "a fenced broker has not moved"
        nodes.brokers[2] = nodes.brokers[2]._replace(port=12)
        nodes.publish()
        assert looked == [("a", 1)] * 2, "the others have another leader"
