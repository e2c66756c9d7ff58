"""Several brokers as one cluster: start, restart, handles, growth; in one loop and in processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import controller_of, image_of, run, until
from support.wire_client import WireClient
from tidelog.config.broker import BrokerConfig
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded import nodes
from tidelog.embedded.cluster_settings import node_properties, profile_of
from tidelog.embedded.nodes import LocalNode, ProcessNode
from tidelog.embedded.ports import Ports
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer
from tidelog.start_error import StartError
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataResponse,
)
from tidelog_protocol.messages.metadata_records import FeatureLevelRecord
from tidelog_protocol.messages.quorum import DescribeQuorumRequest

if TYPE_CHECKING:
    from pathlib import Path


async def metadata(server: str) -> MetadataResponse:
    async with await WireClient.connect(server) as client:
        response: MetadataResponse = await client.ask(MetadataRequest(topics=None), 12)
    return response


async def create(server: str, name: str, replicas: int = 1) -> int:
    async with await WireClient.connect(server) as client:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=3, replication_factor=replicas
        )
        response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    return int(response.topics[0].error_code)


def test_the_ports_of_several_are_none_that_outgoing_connections_get() -> None:
    """A node that was killed came back to a port that a client had got meanwhile."""

    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            servers = cluster.bootstrap_servers.split(",")
            voters = cluster.brokers[0].config.controller_quorum_voters
            ports = {int(at.rpartition(":")[2]) for at in (*servers, *voters)}
        assert len(ports) == 6
        assert all(15_000 <= port < 32_768 for port in ports)

    run(test)


def test_the_port_of_a_node_that_is_away_stays_reserved() -> None:
    """A killed node came back and found another cluster at its port."""

    class OnePort:
        def __init__(self, *ports: int) -> None:
            self.ports = iter(ports)

        def uniform(self, low: float, high: float) -> float:
            del low, high
            return next(self.ports)

    async def test() -> None:
        runtime = system_runtime()
        ours, theirs = Ports(), Ports()
        (first,) = await ours.take(runtime, "127.0.0.1", 1)
        try:
            (third,) = await ours.take(runtime, "127.0.0.1", 1)
            ours.release()
            assert await ours.take(runtime._replace(rng=OnePort(first)), "127.0.0.1", 1) == [first]
            asked = runtime._replace(rng=OnePort(first, first, third))
            assert await theirs.take(asked, "127.0.0.1", 1) == [third]
        finally:
            ours.release()
            theirs.release()

    run(test)


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_cluster_that_starts_again_has_its_ports_unless_one_is_taken(brokers: int) -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=brokers) as cluster:
            servers = cluster.bootstrap_servers
        async with cluster:
            assert cluster.bootstrap_servers == servers
        host, _, port = servers.split(",")[0].rpartition(":")
        taken = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, int(port))
        try:
            async with cluster:
                assert port not in cluster.bootstrap_servers
        finally:
            taken.close()
            await taken.wait_closed()

    run(test)


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_process_that_starts_again_has_its_ports_unless_one_is_taken(brokers: int) -> None:
    cluster = tidelog.run(brokers=brokers)
    with cluster:
        servers = cluster.bootstrap_servers
    with cluster:
        assert cluster.bootstrap_servers == servers
        assert [broker.bootstrap_server for broker in cluster.brokers] == servers.split(",")
    host, _, port = servers.split(",")[0].rpartition(":")
    with socket.create_server((host, int(port))), cluster:
        assert port not in cluster.bootstrap_servers


def test_ports_are_not_looked_for_on_a_host_that_is_not_here() -> None:
    async def test() -> None:
        with pytest.raises(StartError, match=r"assign requested address|could not bind"):
            await tidelog.Cluster(brokers=3, host="192.0.2.1").start()

    run(test)


def test_three_brokers_are_one_cluster() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3, racks=["a", "b", "c"]) as cluster:
            servers = cluster.bootstrap_servers.split(",")
            assert len(servers) == 3
            answers = [await metadata(server) for server in servers]
            for answer in answers:
                assert answer.cluster_id == answers[0].cluster_id
                assert answer.controller_id == controller_of(cluster).node_id
                assert [(b.node_id, b.rack) for b in answer.brokers] == [
                    (1, "a"),
                    (2, "b"),
                    (3, "c"),
                ]
                assert [f"{b.host}:{b.port}" for b in answer.brokers] == servers
            async with await WireClient.connect(servers[1]) as client:
                described = await client.ask(DescribeClusterRequest(), 1)
            assert len(described.brokers) == 3

    run(test)


class Lagging:
    """Broker 1 hears of another one only when it has been asked some times more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, unheard_of: int) -> None:
        self.unheard_of, self.looks_left = unheard_of, 5
        known = LocalNode.known

        async def known_late(node: LocalNode) -> set[int]:
            node_ids = await known(node)
            if node.node_id == 1 and self.unheard_of in node_ids and self.looks_left:
                self.looks_left -= 1
                return node_ids - {self.unheard_of}
            return node_ids

        monkeypatch.setattr(LocalNode, "known", known_late)


def test_a_start_ends_when_each_broker_knows_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of one broker were told of two brokers, as its image had yet to come."""

    async def test() -> None:
        lagging = Lagging(monkeypatch, unheard_of=2)
        async with tidelog.Cluster(brokers=3) as cluster:
            assert lagging.looks_left == 0
            lagging.unheard_of, lagging.looks_left = 4, 5
            await cluster.add_broker()
            assert lagging.looks_left == 0
            await cluster.brokers[2].stop()
            lagging.unheard_of, lagging.looks_left = 3, 5
            await cluster.brokers[2].start()
            assert lagging.looks_left == 0

    run(test)


def test_a_cluster_that_does_not_come_together_did_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nodes fail one after the other; one was told to give up in the middle of its own end, and
    kept its directory."""
    abandon = BrokerServer._abandon

    async def abandon_slowly(server: BrokerServer) -> None:
        await asyncio.sleep(0.2)
        await abandon(server)

    monkeypatch.setattr(BrokerServer, "_abandon", abandon_slowly)

    async def test() -> None:
        lagging = Lagging(monkeypatch, unheard_of=2)
        lagging.looks_left = 1_000_000
        with monkeypatch.context() as impatient:
            impatient.setattr("tidelog.embedded.nodes.WHOLE_S_MAX", 0.1)
            cluster = tidelog.Cluster(brokers=3, data_dir=tmp_path)
            with pytest.raises(StartError, match="some brokers do not know all the others"):
                await cluster.start()
            assert not any(node.is_running for node in cluster.brokers)
        lagging.looks_left = 0
        async with cluster:
            assert len(cluster.bootstrap_servers.split(",")) == 3

    run(test)


def test_an_unknown_level_of_a_feature_refuses_the_start_of_several_and_changes_nothing(
    tmp_path: Path,
) -> None:
    """None of them votes: a leader would begin its epoch with a record."""

    def kept() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for path in tmp_path.rglob("__cluster_metadata-0/*")
            if path.name == "quorum-state" or path.suffix == ".log"
        }

    async def test() -> None:
        async with tidelog.Cluster(brokers=3, data_dir=tmp_path) as cluster:
            level = FeatureLevelRecord(name="new.version", feature_level=3)
            await controller_of(cluster).server.metadata.commit([level])
            await until(lambda: all("new.version" in image_of(n).features for n in cluster.brokers))
        before = kept()
        assert len(before) == 6
        with pytest.raises(StartError) as refused:
            await tidelog.Cluster(brokers=3, data_dir=tmp_path).start()
        assert "new.version 3" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert kept() == before

    run(test)


def test_a_start_that_is_given_up_twice_keeps_nothing(tmp_path: Path) -> None:
    """Told so in any step of its own end: it kept the lock of its directory, or its ports."""

    async def test() -> None:
        ports = Ports()
        client, own, other = await ports.take(system_runtime(), "127.0.0.1", 3)
        ports.release()
        properties = node_properties(
            {},
            node_id=1,
            voters={1: f"127.0.0.1:{own}", 2: f"127.0.0.1:{other}"},
            host="127.0.0.1",
            port=client,
            data_dir=str(tmp_path),
        )
        for steps in range(12):
            config = BrokerConfig.from_properties(properties)
            server = BrokerServer(config, system_runtime(), new_cluster_id="c")
            starting = asyncio.ensure_future(server.start())
            await until(lambda waits=server: waits._joining is not None, "it waits for the other")
            starting.cancel()
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            system_runtime().files.lock(f"{tmp_path}/.lock").release()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert left == set()

    run(test)


class NoProgram(ProcessNode):
    """Its process ends before it is ready."""

    PROGRAM = ("no_such_module",)


def test_a_process_that_did_not_start_is_waited_for_although_another_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It outlived the loop, and asyncio complained of it behind the one line with the reason."""
    begun, ended = asyncio.Event(), []
    end = nodes._end

    async def slow_end(process: asyncio.subprocess.Process, how: str) -> None:
        begun.set()
        await asyncio.sleep(0)
        await end(process, how)
        ended.append(process.returncode)

    monkeypatch.setattr(nodes, "_end", slow_end)

    async def on_start(_node: object) -> None:
        raise AssertionError("it does not start")

    async def test() -> None:
        properties = node_properties(
            {},
            node_id=1,
            voters={1: "127.0.0.1:9"},
            host="127.0.0.1",
            port=0,
            data_dir=str(tmp_path),
        )
        node = NoProgram(properties, durable=False, on_start=on_start, on_end=lambda _node: None)
        start = asyncio.ensure_future(node.start())
        await begun.wait()
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        assert len(ended) == 1

    run(test)


def test_a_cluster_comes_back_on_its_data(tmp_path: Path) -> None:
    async def test() -> None:
        ids = set()
        for life in range(3):
            async with tidelog.Cluster(brokers=3, data_dir=tmp_path) as cluster:
                server = cluster.bootstrap_servers.split(",")[life]
                answer = await metadata(server)
                ids.add((answer.cluster_id, *(t.topic_id for t in answer.topics[:1])))
                assert sorted(topic.name for topic in answer.topics) == [
                    f"t{number}" for number in range(life)
                ]
                assert await create(server, f"t{life}") == 0
        assert len({cluster_id for cluster_id, *_ in ids}) == 1
        assert len(ids) == 2  # without a topic, then always the same topic
        for node_id in (1, 2, 3):
            assert (tmp_path / f"broker-{node_id}" / ".kafka_cleanshutdown").exists()

    run(test)


def test_one_broker_stops_and_comes_back_at_its_address() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            second = cluster.brokers[1]
            before = cluster.bootstrap_servers
            await second.stop()
            assert not second.is_running
            with pytest.raises(tidelog.ClusterError, match="broker 2 is not running"):
                assert second.bootstrap_server
            assert len(cluster.bootstrap_servers.split(",")) == 2
            first = cluster.brokers[0]
            await until(lambda: not image_of(first).is_alive(2), "2 is out")
            await second.start()
            assert cluster.bootstrap_servers == before
            assert image_of(second).is_alive(2)
            with pytest.raises(tidelog.ClusterError, match="already running"):
                await second.start()

    run(test)


def test_a_cluster_grows() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            added = await cluster.add_broker(rack="far")
            assert added.node_id == 4
            answer = await metadata(added.bootstrap_server)
            assert [broker.node_id for broker in answer.brokers] == [1, 2, 3, 4]
            assert answer.brokers[3].rack == "far"
            assert await create(added.bootstrap_server, "t", replicas=4) == 0
            await added.stop()
            await added.start()

    run(test)


def test_one_broker_is_no_cluster_to_grow() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            assert [node.node_id for node in cluster.brokers] == [1]
            with pytest.raises(tidelog.ClusterError, match="grow"):
                await cluster.add_broker()

    run(test)


def test_refusals() -> None:
    with pytest.raises(tidelog.ClusterError, match="at least one broker, not 0"):
        tidelog.Cluster(brokers=0)
    with pytest.raises(tidelog.ClusterError, match="2 racks for 3 brokers"):
        tidelog.Cluster(brokers=3, racks=["a", "b"])

    async def test() -> None:
        cluster = tidelog.Cluster(brokers=2, node_id=7)
        with pytest.raises(ConfigError, match="set by the cluster"):
            await cluster.start()
        with pytest.raises(tidelog.ClusterError, match="not running"):
            assert cluster.bootstrap_servers
        await cluster.stop()

    run(test)


def test_topics_survive_a_broker() -> None:
    assert [profile_of(n)["default.replication.factor"] for n in (1, 2, 3, 5)] == [*"1233"]
    assert profile_of(1)["offsets.topic.replication.factor"] == "1"
    assert profile_of(2)["transaction.state.log.min.isr"] == "1"
    assert profile_of(5)["offsets.topic.replication.factor"] == "3"
    assert profile_of(5)["transaction.state.log.min.isr"] == "2"
    properties = node_properties(
        {"offsets.topic.replication.factor": "2", "broker.rack": "r"},
        node_id=2,
        voters={1: "h:1", 2: "[::1]:2"},
        host="::1",
        port=9,
        data_dir="/d",
    )
    assert properties["offsets.topic.replication.factor"] == "2"
    assert properties["listeners"] == "PLAINTEXT://[::1]:9,CONTROLLER://[::1]:2"
    assert properties["controller.quorum.voters"] == "1@h:1,2@[::1]:2"
    assert properties["broker.rack"] == "r"


@pytest.mark.parametrize("isolated", [False, True])
def test_handles_on_brokers_of_another_process(isolated: bool) -> None:
    with tidelog.run(brokers=3, isolated=isolated) as cluster:
        servers = cluster.bootstrap_servers.split(",")
        assert len(servers) == 3
        assert asyncio.run(create(servers[0], "t")) == 0
        cluster.brokers[2].stop()
        assert cluster.bootstrap_servers.split(",") == servers[:2]
        cluster.brokers[2].start()
        assert cluster.bootstrap_servers.split(",") == servers
        with pytest.raises(tidelog.ClusterError, match="broker 3 is already running"):
            cluster.brokers[2].start()
        added = cluster.add_broker(rack="x")
        assert added.node_id == 4
        assert len(asyncio.run(metadata(servers[0])).brokers) == 4
        added.kill()
        assert cluster.bootstrap_servers.split(",") == servers


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("kept", [False, True], ids=["temporary", "kept"])
def test_only_data_that_is_kept_is_forced_to_disk(
    kept: bool, isolated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "fsyncs"
    said.touch()
    (tmp_path / "sitecustomize.py").write_text(COUNT_FSYNCS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("FSYNCS", str(said))
    data_dir = tmp_path / "data" if kept else None
    with tidelog.run(brokers=3, isolated=isolated, data_dir=data_dir) as cluster:
        assert asyncio.run(create(cluster.bootstrap_servers.split(",")[0], "t", replicas=3)) == 0
        folder = cluster._temporary
        assert kept or (folder is not None and os.path.isdir(folder))
    assert bool(said.read_bytes()) == kept
    if not kept:
        assert not os.path.exists(str(folder))
        asyncio.run(in_one_loop(isolated))
        assert said.read_bytes() == b""


async def in_one_loop(isolated: bool) -> None:
    async with tidelog.Cluster(brokers=2, isolated=isolated) as cluster:
        assert await create(cluster.bootstrap_servers.split(",")[0], "t", replicas=2) == 0


@pytest.mark.parametrize("kept", [False, True], ids=["temporary", "kept"])
def test_only_data_that_is_kept_is_closed(kept: bool, tmp_path: Path) -> None:
    """What nobody reads again took a second to be written, for hundreds of partitions."""

    async def test() -> None:
        cluster = tidelog.Cluster(brokers=2, data_dir=tmp_path / "data", temporary=not kept)
        await cluster.start()
        assert await create(cluster.bootstrap_servers.split(",")[0], "t", replicas=2) == 0
        await cluster.stop_brokers()
        marks = list((tmp_path / "data").rglob(".kafka_cleanshutdown"))
        assert len(marks) == (2 if kept else 0)
        cluster.remove_temporary()
        assert (tmp_path / "data").exists() == kept

    run(test)


COUNT_FSYNCS = """
import os

fsync = os.fsync

def counted(descriptor):
    with open(os.environ["FSYNCS"], "ab") as file:
        file.write(b".")
    fsync(descriptor)

os.fsync = counted
"""


@pytest.mark.parametrize("brokers", [1, 2])
def test_what_is_in_the_way_of_a_start_is_one_line(brokers: int, tmp_path: Path) -> None:
    """Tracebacks were what several brokers in one process said of it."""
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # The second broker has the next port. Anything may have taken that one, too.
        tried = f"127.0.0.1:({port}|{port + brokers - 1}): "
        settings = {"metrics.prometheus.listener": f"127.0.0.1:{port}"}
        with pytest.raises(StartError, match=f"prometheus.listener: cannot listen on {tried}"):
            asyncio.run(started(settings, brokers=brokers))
    with pytest.raises(StartError, match=f"^{tmp_path}/file/.*: Not a directory$"):
        asyncio.run(started({}, brokers=brokers, data_dir=tmp_path / "file"))


@pytest.mark.parametrize("listener", ["127.0.0.1:0", None])
def test_each_broker_says_which_port_has_its_metrics(listener: str | None) -> None:
    async def test() -> None:
        settings = {"metrics.prometheus.listener": listener} if listener else {}
        async with tidelog.Cluster(settings, brokers=2) as cluster:
            states = (await cluster.ask("brokers.describe", {})).brokers
            ports = [state.running.metrics_port for state in states]
            if listener is None:
                assert ports == [None, None]
                return
            assert len(set(ports)) == 2
            for port in ports:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert b" 200 OK" in await reader.readline()
                writer.close()

    asyncio.run(test())


async def started(settings: dict[str, str], **how: Any) -> None:
    async with tidelog.Cluster(settings, **how):
        raise AssertionError("it runs")


def test_one_broker_can_be_isolated_too(tmp_path: Path) -> None:
    with tidelog.run(isolated=True, data_dir=tmp_path) as cluster:
        assert asyncio.run(create(cluster.bootstrap_servers, "t")) == 0
    with tidelog.run(isolated=True, data_dir=tmp_path) as cluster:
        assert "t" in {t.name for t in asyncio.run(metadata(cluster.bootstrap_servers)).topics}


def test_processes_that_do_not_stop_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.embedded.nodes.STOP_S_MAX", 0.1)

    async def test(error: Exception | None = None) -> None:
        async with tidelog.Cluster(brokers=2, isolated=True) as cluster:
            for broker in cluster.brokers:
                os.kill(broker.pid, signal.SIGSTOP)
            if error is not None:
                raise error

    how = "did not stop cleanly: its process was killed by SIGKILL"
    words = f"broker 1 {how}; broker 2 {how}"
    with pytest.raises(tidelog.ClusterError, match=f"^{words}$"):
        run(test)
    with pytest.raises(KeyError) as raised:
        run(lambda: test(KeyError("mine")))
    assert raised.value.__notes__ == [words]


def test_a_quorum_of_one_takes_other_brokers() -> None:
    """It opens its controller listener, replicates, and elects when the other broker is away."""

    async def test() -> None:
        runtime, ports = system_runtime(), Ports()
        try:
            (port,) = await ports.take(runtime, "127.0.0.1", 1)
            with tempfile.TemporaryDirectory() as folder:
                await two_brokers_of_one_voter(port, folder)
        finally:
            ports.release()

    run(test)


async def two_brokers_of_one_voter(port: int, folder: str) -> None:
    servers: list[BrokerServer] = []
    try:
        for node_id in (1, 2):
            properties = node_properties(
                {},
                node_id=node_id,
                voters={1: f"127.0.0.1:{port}"},
                host="127.0.0.1",
                port=0,
                data_dir=f"{folder}/{node_id}",
            )
            server = BrokerServer(
                BrokerConfig.from_properties(properties),
                system_runtime(),
                new_cluster_id=servers[0].metadata.image.cluster_id if servers else None,
            )
            servers.append(server)
            await server.start()
        first, second = servers
        assert await create(second.bootstrap_servers, "t", replicas=2) == 0
        partitions = first.metadata.image.topics["t"].partitions
        assert {partition.leader for partition in partitions} == {1, 2}
        await second.stop()
        await until(lambda: all(p.leader == 1 for p in first.metadata.image.topics["t"].partitions))
        async with await WireClient.connect(first.bootstrap_servers) as client:
            topic = DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata",
                partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
            )
            answer = await client.ask(DescribeQuorumRequest(topics=[topic]), 2)
        described = answer.topics[0].partitions[0]
        assert [voter.replica_id for voter in described.current_voters] == [1]
        assert [node.listeners[0].port for node in answer.nodes] == [port]
    finally:
        for server in reversed(servers):
            await server.stop(controlled=False)
