"""A broker whose disk fails: what it says, to whom, and when it gives up."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import (
    FAST,
    Load,
    check_nothing_lost,
    consume,
    create_topic,
    has_isr_of,
    in_thread,
    is_led_by_another,
    partition_of,
    run,
    until,
)
from support.failing_files import FailingFiles
from support.logs import batch
from support.wire_client import WireClient
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster_settings import broker_properties, node_properties
from tidelog.runtime import ThreadExecutor, system_runtime
from tidelog.server import BrokerServer, StartError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.data import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def test_a_broker_whose_disk_fails_while_it_joins_gives_up_at_once(tmp_path: Path) -> None:
    """It would wait for `initial.broker.registration.timeout.ms`, a minute."""

    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            first = cluster.brokers[0].config
            voters = {v.node_id: f"{v.host}:{v.port}" for v in first.quorum_voters()}
            await cluster.brokers[2].stop()
            files = FailingFiles()
            files.fails = lambda path: path.endswith("quorum-state")
            server = BrokerServer(
                BrokerConfig.from_properties(
                    node_properties(
                        {},
                        node_id=3,
                        voters=voters,
                        host="127.0.0.1",
                        port=0,
                        data_dir=str(tmp_path),
                    )
                ),
                system_runtime(files),
                new_cluster_id=cluster.brokers[0].server.metadata.image.cluster_id,
            )
            server.on_failure = lambda: pytest.fail("start() tells it")
            begun = time.monotonic()
            with pytest.raises(StartError, match="No space left on device"):
                await server.start()
            assert time.monotonic() - begun < 30

    run(test)


def test_a_leader_with_a_full_disk_ends_and_another_one_leads() -> None:
    """It kept leading, and refused all that was sent: nobody else was asked to."""
    pytest.importorskip("confluent_kafka")

    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=3) as cluster:
            create = lambda: create_topic(cluster.bootstrap_servers, "t", 1, 3)  # noqa: E731
            await in_thread(create)
            load = Load(cluster.bootstrap_servers, "t")
            load.start()
            await until(lambda: len(load.acked) > 20, "a load")
            leader = cluster.brokers[partition_of(cluster, "t").leader - 1]
            fill_disk(leader)
            await until(lambda: leader.failure, "a failure")
            assert "No space left" in str(leader.failure)
            await until(lambda: is_led_by_another(cluster, "t", leader.node_id), "a leader")
            enough = len(load.acked) + 20
            await until(lambda: len(load.acked) > enough, "more acknowledgements")
            await until(lambda: not leader.is_running, "its end")
            await leader.start()
            await until(lambda: has_isr_of(cluster, "t", 3), "all in sync")
            await load.finish()
            check_nothing_lost(load, await in_thread(consume, cluster.bootstrap_servers, "t"))

    run(test)


def fill_disk(node: Any) -> None:
    """No more records fit on this broker's disk, until it starts again."""
    segment = node.server.replicas.partition("t", 0).log.segments.active

    records = segment.records

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(records, name)

        def append(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    segment._records = Full()


def test_an_only_directory_ends_a_lone_broker_and_a_spare_one_does_not(tmp_path: Path) -> None:
    async def test(folders: list[Path], failing: int, *, goes: bool) -> None:
        files = FailingFiles()
        server = lone_broker(files, folders)
        told: list[BaseException | None] = []
        server.on_failure = lambda: told.append(server.failure)
        await server.start()
        files.fails = lambda path: path.startswith(f"{folders[failing]}/t-")
        async with await WireClient.connect(server.bootstrap_servers) as client:
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=len(folders), replication_factor=1
            )
            response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        assert response.topics[0].error_code == 0
        assert len(told) == goes
        states = [server.replicas.partition("t", n) for n in range(len(folders))]
        assert ErrorCode.KAFKA_STORAGE_ERROR in states
        assert goes or len(set(states)) == 2, "the other directory serves"
        await server.kill()

    a, b, c, d, e = (tmp_path / name for name in "abcde")
    asyncio.run(test([a], 0, goes=True))
    asyncio.run(test([b, c], 1, goes=False))
    asyncio.run(test([d, e], 0, goes=True))  # the metadata log lies there


class LateExecutor(ThreadExecutor):
    """Its threads get to run when somebody waits for them, and no earlier."""

    def __init__(self, is_late: Callable[[Any], bool], on_run: Callable[[], None]) -> None:
        super().__init__()
        self.held: list[Any] = []
        self._is_late, self._on_run = is_late, on_run

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._is_late(function):
            return await super().run(function, *args, **kwargs)
        self.held.append(function)
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        for function in self.held:
            self._on_run()
            function()
        super().close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_no_checkpoint_is_written_after_the_end(how: str, tmp_path: Path) -> None:
    """A thread may still be at one when the broker stops."""

    async def test() -> None:
        was_locked: list[bool] = []
        files = FailingFiles()

        def look() -> None:
            assert not (tmp_path / ".kafka_cleanshutdown").exists()
            try:
                files.lock(f"{tmp_path}/.lock").release()
            except BlockingIOError:
                was_locked.append(True)
            else:
                was_locked.append(False)

        executor = LateExecutor(lambda job: "checkpoint" in getattr(job, "__qualname__", ""), look)
        server = lone_broker(
            files,
            [tmp_path],
            executor,
            **{
                "log.initial.task.delay.ms": "0",
                "log.flush.offset.checkpoint.interval.ms": "1",
            },
        )
        await server.start()
        await until(lambda: executor.held, "a checkpoint")
        await getattr(server, how)()
        assert was_locked == [True]
        assert (tmp_path / ".kafka_cleanshutdown").exists() == (how == "stop")

    asyncio.run(test())


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_waits_for_a_disk_to_end_stops_no_other(how: str, tmp_path: Path) -> None:
    """An fsync may take seconds, and an embedded broker shares its loop."""

    async def test() -> None:
        gate, begun = threading.Event(), threading.Event()
        executor = ThreadExecutor()
        server = lone_broker(FailingFiles(), [tmp_path], executor)
        await server.start()

        def hold() -> bool:
            begun.set()
            return gate.wait(10)

        syncing = asyncio.ensure_future(executor.run(hold))
        await until(begun.is_set, "a sync")
        asyncio.get_running_loop().call_later(0.01, gate.set)
        await getattr(server, how)()
        assert await syncing, "it ended by the gate, and not by its time"

    asyncio.run(test())


def test_a_failed_sync_of_a_spare_directory_takes_its_partitions_and_no_others(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        files = FailingFiles()
        folders = [tmp_path / "a", tmp_path / "b"]
        quick = {"log.initial.task.delay.ms": "0", "log.flush.scheduler.interval.ms": "10"}
        server = lone_broker(files, folders, **quick)
        server.on_failure = lambda: pytest.fail("the other directory is well")
        await server.start()
        async with await WireClient.connect(server.bootstrap_servers) as client:
            await client.ask(create_topics("t", partitions=4), 7)
            assert await produce(client, "t", range(4)) == [0] * 4
            spare = {n for n in range(4) if (folders[1] / f"t-{n}").exists()}
            assert len(spare) == 2
            files.fails_to_sync = lambda path: path.startswith(f"{folders[1]}/t-")
            await until(lambda: server.logs.directories[1].failure, "a failure")
            offline = int(ErrorCode.KAFKA_STORAGE_ERROR)
            codes = [offline if n in spare else 0 for n in range(4)]
            await until_codes(client, codes)
            files.fails_to_sync = lambda _: False
            await client.ask(create_topics("u", partitions=2), 7)
            assert await produce(client, "u", range(2)) == [0, 0]
        assert not list(folders[1].glob("u-*"))
        await server.stop()  # in good order, as Kafka: the failure is known
        assert (folders[0] / ".kafka_cleanshutdown").exists()
        assert not (folders[1] / ".kafka_cleanshutdown").exists()

    asyncio.run(test())


@pytest.mark.parametrize("work", ["log.flush.offset.checkpoint", "log.flush.scheduler"])
@pytest.mark.parametrize("how", ["removed", "unmounted"])
def test_a_spare_directory_that_is_gone_is_offline(how: str, work: str, tmp_path: Path) -> None:
    """Its checkpoints went to the disk below the mount point."""

    async def test() -> None:
        folders = [tmp_path / "a", tmp_path / "b"]
        quick = {"log.initial.task.delay.ms": "0", f"{work}.interval.ms": "10"}
        server = lone_broker(FailingFiles(), folders, **quick)
        server.on_failure = lambda: pytest.fail("the other directory is well")
        await server.start()
        async with await WireClient.connect(server.bootstrap_servers) as client:
            await client.ask(create_topics("t", partitions=4), 7)
            assert await produce(client, "t", range(4)) == [0] * 4
            offline = int(ErrorCode.KAFKA_STORAGE_ERROR)
            codes = [offline if (folders[1] / f"t-{n}").exists() else 0 for n in range(4)]
            folders[1].rename(tmp_path / "elsewhere")
            if how == "unmounted":
                folders[1].mkdir()
            await until(lambda: server.logs.directories[1].failure, "a failure")
            await until_codes(client, codes)
        await server.stop()
        assert not list(folders[1].glob("*"))

    asyncio.run(test())


def create_topics(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


async def produce(client: WireClient, topic: str, partitions: Iterable[int]) -> list[int]:
    """A record to each of these; the error codes."""
    data = ProduceRequest.TopicProduceData(
        name=topic,
        partition_data=[
            ProduceRequest.TopicProduceData.PartitionProduceData(index=n, records=bytes(batch()))
            for n in partitions
        ],
    )
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    answer = await client.ask(request, 9)
    return [one.error_code for one in answer.responses[0].partition_responses]


async def until_codes(client: WireClient, codes: list[int]) -> None:
    for _ in range(500):
        if await produce(client, "t", range(4)) == codes:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"not {codes}")


def test_the_handle_of_a_broker_whose_disk_failed_says_why(tmp_path: Path) -> None:
    """Its process lives on with the other brokers; it ended as by a crash."""

    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=3, data_dir=tmp_path) as cluster:
            failed: Any = cluster.brokers[1]
            path = f"{tmp_path}/broker-2/t-0/0.log"
            failed.server._disks.failed(
                f"{tmp_path}/broker-2", OSError(errno.EIO, "Input/output error", path)
            )
            await until(lambda: not failed.is_running, "its end")
            line = f"broker 2 is gone: {path}: Input/output error"
            with pytest.raises(tidelog.ClusterError, match=line):
                await failed.stop()
            with pytest.raises(tidelog.ClusterError, match=line):
                str(failed.bootstrap_server)
            assert not (tmp_path / "broker-2" / ".kafka_cleanshutdown").exists()
            assert cluster.bootstrap_servers.count(":") == 2
            await failed.start()
            assert failed.server.failure is None

    run(test)


def lone_broker(
    files: FailingFiles, folders: list[Path], executor: Any = None, **settings: str
) -> BrokerServer:
    settings |= {"log.dirs": ",".join(map(str, folders))}
    properties = broker_properties(settings, port=0)
    runtime = system_runtime(files)
    if executor is not None:
        runtime = runtime._replace(executor=executor)
    return BrokerServer(BrokerConfig.from_properties(properties), runtime)
