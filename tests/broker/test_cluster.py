"""The users' doors: `run()` and `Cluster`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.wire_client import WireClient
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded.cluster import broker_properties, properties_of
from tidelog.server import FLUSH_SECONDS_A_LOG, StartError
from tidelog_bench.peers.address import free_port
from tidelog_protocol.messages.cluster import MetadataRequest

if TYPE_CHECKING:
    from pathlib import Path

    from support.processes import Start


def test_settings_become_properties() -> None:
    assert properties_of(
        {"a.b": True, "n": 1, "none": None}, {"log_retention_ms": 5, "f": 0.5}
    ) == {
        "a.b": "true",
        "n": "1",
        "log.retention.ms": "5",
        "f": "0.5",
    }


@pytest.mark.parametrize(
    ("host", "port", "given", "listeners"),
    [
        (None, None, {}, "PLAINTEXT://127.0.0.1:9092"),
        (None, None, {"listeners": "PLAINTEXT://h:1"}, "PLAINTEXT://h:1"),
        ("0.0.0.0", 5, {}, "PLAINTEXT://:5"),
        ("::1", None, {}, "PLAINTEXT://[::1]:9092"),
    ],
)
def test_host_and_port_become_listeners(
    host: str | None, port: int | None, given: dict[str, str], listeners: str
) -> None:
    assert broker_properties(given, host=host, port=port)["listeners"] == listeners


@pytest.mark.parametrize(("host", "port"), [("h", None), (None, 0), ("h", 5)])
def test_listeners_and_a_host_or_port_are_not_both_listened_on(
    host: str | None, port: int | None
) -> None:
    with pytest.raises(ConfigError, match=r"already sets the address: remove the (host h|port 0)"):
        broker_properties({"listeners": "PLAINTEXT://h:1"}, host=host, port=port)

    async def test() -> None:
        with pytest.raises(ConfigError, match="already sets the address"):
            await tidelog.Cluster(listeners="PLAINTEXT://127.0.0.1:0", host=host, port=port).start()

    asyncio.run(test())
    with pytest.raises(tidelog.ClusterError, match="listeners: already sets the address"):
        tidelog.run(listeners="PLAINTEXT://127.0.0.1:0", host=host, port=port).start()


def test_listeners_are_listened_on() -> None:
    port = free_port()
    with tidelog.run(listeners=f"PLAINTEXT://127.0.0.1:{port}") as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"

    async def test() -> None:
        listeners = "PLAINTEXT://localhost:0"
        async with tidelog.Cluster(listeners=listeners) as cluster:
            assert cluster.bootstrap_servers.startswith("localhost:")

    asyncio.run(test())


def test_run_is_a_process_that_answers_and_goes() -> None:
    with tidelog.run(num_partitions=3) as cluster:
        pid = cluster.pid
        assert pid != os.getpid()
        cluster.create_topic("t", partitions=2, config={"retention.ms": 1000})
        with pytest.raises(tidelog.ClusterError, match="already exists"):
            cluster.create_topic("t")
        cluster.create_topic("default", partitions=-1)
        topics = asyncio.run(partition_counts(cluster.bootstrap_servers))
        assert topics == {"t": 2, "default": 3}
        cluster.delete_topic("t")
        with pytest.raises(tidelog.ClusterError, match="does not host"):
            cluster.delete_topic("t")
        cluster.delete_topic("t", missing_ok=True)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(tidelog.ClusterError, match="not running"):
        assert cluster.bootstrap_servers


async def partition_counts(bootstrap: str) -> dict[str, int]:
    async with await WireClient.connect(bootstrap) as client:
        response = await client.ask(MetadataRequest(topics=None), 12)
    return {topic.name: len(topic.partitions) for topic in response.topics}


def test_run_says_why_the_broker_did_not_start() -> None:
    cluster = tidelog.run({"no.such.key": 1})
    with pytest.raises(tidelog.ClusterError, match=r"no\.such\.key"):
        cluster.start()


def test_run_says_so_when_the_broker_ended_by_itself() -> None:
    with pytest.raises(tidelog.ClusterError, match="exited on its own"), tidelog.run() as cluster:
        end_and_wait(cluster)


def test_the_end_of_the_broker_does_not_hide_the_users_error() -> None:
    def use() -> None:
        with tidelog.run() as cluster:
            end_and_wait(cluster)
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        use()
    assert "exited on its own" in raised.value.__notes__[0]


def end_and_wait(cluster: tidelog.RunningCluster) -> None:
    os.kill(cluster.pid, signal.SIGKILL)
    os.waitid(os.P_PID, cluster.pid, os.WEXITED | os.WNOWAIT)  # the cluster is to find its end


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_killed_broker_starts_again_on_its_data(
    is_temporary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    data_dir = None if is_temporary else tmp_path / "data"
    with tidelog.run(data_dir=data_dir) as cluster:
        cluster.create_topic("kept")
        cluster.kill()
        cluster.start()
        assert "kept" in asyncio.run(partition_counts(cluster.bootstrap_servers))
    assert [path.name for path in tmp_path.iterdir()] == ([] if is_temporary else ["data"])


def test_a_single_broker_that_was_stopped_or_killed_comes_back_on_its_port() -> None:
    """Its handle got no answer, and gave up after 30 s; a new process had another port."""
    with tidelog.run() as cluster:
        server = cluster.bootstrap_servers
        cluster.create_topic("kept")
        (broker,) = cluster.brokers
        for end in (broker.stop, broker.kill):
            end()
            broker.start()
            assert cluster.bootstrap_servers == server
            assert "kept" in asyncio.run(partition_counts(server))
        cluster.kill()
        cluster.start()
        assert cluster.bootstrap_servers == server
        assert "kept" in asyncio.run(partition_counts(server))


def test_a_single_broker_of_a_cluster_comes_back_on_its_port() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            server = cluster.bootstrap_servers
            (broker,) = cluster.brokers
            for end in (broker.stop, broker.kill):
                await end()
                await broker.start()
                assert cluster.bootstrap_servers == server
                assert await partition_counts(server) == {}

    asyncio.run(test())


def test_nothing_is_left_of_a_killed_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with tidelog.run() as cluster:
        cluster.kill()
    assert list(tmp_path.iterdir()) == []


def test_the_broker_ends_with_the_process_that_ran_it(start: Start, tmp_path: Path) -> None:
    """Even if that process is killed, or forgets it; and its temporary data goes with it."""
    script = (
        "import sys, tidelog\n"
        "cluster = tidelog.run().start()\n"
        "print(cluster.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    process = start(sys.executable, "-c", script, TMPDIR=str(tmp_path))
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    descriptor = os.pidfd_open(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()

    async def ended() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, event.set)
        async with asyncio.timeout(60):
            await event.wait()
        asyncio.get_running_loop().remove_reader(descriptor)

    asyncio.run(ended())
    os.close(descriptor)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_cluster_runs_in_this_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def left_behind() -> int:
        return len(list(tmp_path.iterdir()))

    async def test() -> None:
        async with tidelog.Cluster(num_partitions=2) as cluster:
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                topic = MetadataRequest.MetadataRequestTopic(name="auto")
                request = MetadataRequest(topics=[topic], allow_auto_topic_creation=True)
                response = await client.ask(request, 12)
                (broker,) = response.brokers
                assert f"{broker.host}:{broker.port}" == cluster.bootstrap_servers
                while response.topics[0].error_code != 0:
                    response = await client.ask(request, 12)
                assert len(response.topics[0].partitions) == 2
            assert left_behind() == 1
        assert left_behind() == 0
        with pytest.raises(tidelog.ClusterError, match="not running"):
            assert cluster.bootstrap_servers
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []

    asyncio.run(test())


def test_two_clusters_in_one_loop_know_nothing_of_each_other() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as one, tidelog.Cluster() as two:
            assert one.bootstrap_servers != two.bootstrap_servers
            async with (
                await WireClient.connect(one.bootstrap_servers) as first,
                await WireClient.connect(two.bootstrap_servers) as second,
            ):
                ids = {
                    (await client.ask(MetadataRequest(topics=[]), 12)).cluster_id
                    for client in (first, second)
                }
            assert len(ids) == 2

    asyncio.run(test())


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_ends_wholly_though_its_caller_is_cancelled(how: str) -> None:
    """As at the end of a process, which cancels the calls under way."""

    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            (node,) = cluster.brokers
            ending = asyncio.ensure_future(getattr(node, how)())
            await asyncio.sleep(0)
            assert not node.is_running
            ending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ending
            await node.start()  # its directories are locked no more

    asyncio.run(test())


def test_each_log_that_is_not_durable_gives_the_stop_more_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with tidelog.Cluster(data_dir=tmp_path) as cluster, tidelog.Cluster() as temporary:
            for each in (cluster, temporary):
                await each.create_topic("t", 3)
            before = cluster.flush_seconds_max
            for each in (cluster, temporary):
                for partition in range(3):
                    await each.topics.make_tombstones("t", ["key"], partition)
            grown = pytest.approx(before + 3 * FLUSH_SECONDS_A_LOG)
            assert cluster.flush_seconds_max == grown
            assert temporary.flush_seconds_max == 0

    asyncio.run(test())


def test_a_cluster_that_cannot_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))

    async def test() -> None:
        async with tidelog.Cluster(data_dir=tmp_path / "data") as cluster:
            _, _, port = cluster.bootstrap_servers.rpartition(":")
            with pytest.raises(StartError, match="cannot listen"):
                await tidelog.Cluster(port=int(port)).start()
            with pytest.raises(StartError, match="locked"):
                await tidelog.Cluster(data_dir=tmp_path / "data").start()
            with pytest.raises(ConfigError, match=r"no\.such\.key"):
                await tidelog.Cluster({"no.such.key": 1}).start()
            with pytest.raises(tidelog.ClusterError, match="already"):
                await cluster.start()

    asyncio.run(test())
    assert list((tmp_path / "tmp").iterdir()) == []
