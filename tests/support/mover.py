"""A broker of three log directories, in virtual time, whose replicas move between these."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from support.data_path import CountingRng, DataPath, ManualClock, batch, topic_id
from tidelog.api.log_dirs import LogDirsApi
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, PartitionImage, TopicImage
from tidelog.replication.log_dir_moves import LogDirMoves
from tidelog.simulation.loop import simulate
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tidelog.replication.partition import Partition
    from tidelog_storage.log import Log

ME, OTHER = 1, 2
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class LoopClock(ManualClock):
    """The simulated loop's time, which jumps while nobody has anything to do."""

    def wall_ms(self) -> int:
        return self.now_ms + int(1000 * self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Threads:
    """An executor that takes a step of the loop."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        self.runs += 1
        await asyncio.sleep(0)
        result = function(*args)
        await asyncio.sleep(0)
        return result


class Mover:
    """A broker of three log directories."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder, self.properties = folder, properties
        self.dirs = [f"{folder}/{name}" for name in ("one", "two", "three")]
        self.failed: list[str] = []
        self.start(None)

    def start(self, image: Any) -> None:
        path = DataPath(
            self.folder,
            clock=LoopClock(),
            apply_first=False,
            syncs=False,
            log_dirs=self.dirs,
            replica_fetch_backoff_ms="320",
            replica_fetch_max_bytes="2000",
            **self.properties,
        )
        self.path, self.logs, self.replicas = path, path.logs, path.replicas
        self.threads = Threads()
        runtime: Any = SimpleNamespace(clock=path.clock, rng=CountingRng(), executor=self.threads)
        self.moves = LogDirMoves(path.replicas, path.config, runtime)
        path.replicas.follow_roles(self.moves)
        path.replicas._on_disk_failure = lambda where, _: self.failed.append(where)
        path.handlers.update(LogDirsApi(self.logs, moves=lambda: self.moves).handlers())
        brokers = {node: BrokerImage(node, "h", 1) for node in (ME, OTHER)}
        path.image = image or path.image
        path.replicas.apply(MetadataDelta(None, path.image), path.image)
        path.apply(brokers=brokers)

    async def restart(self) -> None:
        await self.stop()
        self.start(self.path.image)

    async def stop(self) -> None:
        await self.moves.close()
        await self.replicas.stop()
        self.replicas.close()
        self.logs.shutdown()

    # -- what tests do -----------------------------------------------------------------------------

    def create(self, name: str = "a", batches: int = 0, **options: Any) -> Partition:
        self.logs.prefer(TopicPartition(name, 0), self.dirs[0])
        self.path.create(name, **options)
        for _ in range(batches):
            self.produce(name)
        return self.path.partition(name)

    def produce(self, name: str = "a", **options: Any) -> None:
        answer = self.path.produce(name, 0, batch(2, **options), acks=1)
        assert answer.error_code == 0, answer

    def follow(self, epochs: list[int], name: str = "a") -> Partition:
        """A replica that follows, with a record of each epoch given."""
        self.logs.prefer(TopicPartition(name, 0), self.dirs[0])
        state = PartitionImage(0, OTHER, max(epochs), 0, (ME, OTHER), (OTHER,))
        topic = TopicImage(name, topic_id(name), (state,))
        self.path.apply(topics={**self.path.image.topics, name: topic})
        partition = self.path.partition(name)
        self.replicate(partition, *epochs)
        return partition

    def replicate(self, partition: Partition, *epochs: int) -> None:
        for epoch in epochs:
            end = partition.log.log_end_offset
            records = build_batch(
                [Record(end, 1, None, b"%d" % epoch)], base_offset=end, leader_epoch=epoch
            )
            partition.append_as_follower(
                memoryview(records), leader_epoch=partition.leader_epoch, now_ms=0
            )
            partition.log.set_high_watermark(partition.log.log_end_offset)

    def alter(self, where: str, *names: str, version: int = 2) -> list[int]:
        one = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        topics = [one.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in names or "a"]
        request = AlterReplicaLogDirsRequest(dirs=[one(path=where, topics=topics)])
        response = self.path.call(ApiKey.ALTER_REPLICA_LOG_DIRS, version, request)
        return [result.partitions[0].error_code for result in response.results]

    def hold(self, held: bool = True) -> None:
        """Nothing is copied meanwhile but the first read, of at most 2000 bytes."""
        self.path.apply(broker_configs={str(ME): {RATE: "0"} if held else {}})

    async def half(self, name: str = "a") -> Log:
        """A move that has copied its beginning alone, and is held there."""
        self.hold()
        assert self.alter(self.dirs[1], name) == [0]
        future = self.path.partition(name).future
        assert future is not None
        await until(lambda: future.log.log_end_offset > 0)
        assert self.describe()[self.dirs[1], True] > 0
        return future.log

    async def moved(self, where: int, name: str = "a") -> Log:
        """Wait for the end of its move."""
        self.hold(held=False)
        key = TopicPartition(name, 0)
        await until(lambda: not self.logs.is_moving(key))
        assert self.logs.log_dir(key) == self.dirs[where]
        partition = self.path.partition(name)
        assert partition.log is self.logs.get(key)
        assert partition.future is None
        return partition.log

    def describe(self, name: str = "a") -> dict[tuple[str, bool], int]:
        """Lag by directory and whether it is a future log."""
        topic = DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[0])
        response = self.path.call(
            ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=[topic])
        )
        return {
            (result.log_dir, one.is_future_key): one.offset_lag
            for result in response.results
            for topic in result.topics
            for one in topic.partitions
        }


async def until(condition: Callable[[], bool]) -> None:
    """Steps of the simulated loop, 1,000 s of its time at most."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happens")


def everything(log: Log) -> bytes:
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        outcome: Any = log.read(offset, 1 << 20, upper_bound=log.log_end_offset)
        found += b"".join(outcome.parts)
        offset = outcome.next_offset
    return found


def played(
    test: Callable[[Mover], Coroutine[Any, Any, None]],
) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        async def main() -> None:
            mover = Mover(tmp_path)
            await test(mover)
            await mover.stop()

        simulate(1, lambda _: main())

    run.__name__ = test.__name__
    return run
