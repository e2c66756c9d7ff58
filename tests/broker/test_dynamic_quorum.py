"""Brokers of a quorum whose log names the voters (KIP-853): formatted, started, added, removed."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import FAST, run, until
from support.wire_client import WireClient
from tidelog.__main__ import main
from tidelog.cluster.formatting import own_voter
from tidelog.config.broker import BrokerConfig
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded.cluster_settings import profile_of
from tidelog.embedded.ports import Ports
from tidelog.foundation import settle_voters
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer
from tidelog.start_error import StartError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_protocol.messages.cluster_admin import UpdateFeaturesRequest
from tidelog_protocol.messages.quorum import DescribeQuorumRequest
from tidelog_protocol.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog_protocol.messages.quorum import DescribeQuorumResponse

CLUSTER_ID = "dynamicAAAAAAAAAAAAAAA"
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}
FAST_VOTES = {"controller.quorum.fetch.timeout.ms": "600"}


def settings(folder: Path, node_id: int, ports: Sequence[int], **more: str) -> dict[str, str]:
    """The properties of a broker and controller."""
    return {
        **FAST,
        **profile_of(3),
        **FAST_VOTES,
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{ports[node_id - 1]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[0]}",
        "log.dirs": f"{folder}/{node_id}",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def formatted(properties: dict[str, str], *flags: str) -> None:
    words = [word for key, value in properties.items() for word in ("--set", f"{key}={value}")]
    assert main(["format", "-t", CLUSTER_ID, *flags, *words]) == 0


def started(properties: Mapping[str, str]) -> BrokerServer:
    return BrokerServer(BrokerConfig.from_properties(properties), system_runtime(durable=False))


async def asked(server: BrokerServer, request: Any, version: int) -> Any:
    async with await WireClient.connect(server.bootstrap_servers) as client:
        return await client.ask(request, version)


async def described(server: BrokerServer) -> DescribeQuorumResponse:
    topic = DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata",
        partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
    )
    answer: DescribeQuorumResponse = await asked(server, DescribeQuorumRequest(topics=[topic]), 2)
    return answer


async def voters(server: BrokerServer) -> dict[int, bytes]:
    """The ids of the voters and their directories."""
    answer = await described(server)
    return {
        each.replica_id: each.replica_directory_id
        for each in answer.topics[0].partitions[0].current_voters
    }


async def when_voters_are(server: BrokerServer, wanted: set[int]) -> dict[int, bytes]:
    for _ in range(200):
        found = await voters(server)
        if set(found) == wanted:
            return found
        await asyncio.sleep(0.05)
    pytest.fail(f"the voters are {sorted(found)}")


async def changed(server: BrokerServer, request: Any, version: int) -> Any:
    """The answer to a change of the voters, asked again while the one before is not committed: a
    leader shows voters before that, and refuses the next change, as Kafka's."""
    for _ in range(200):
        answer = await asked(server, request, version)
        if answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
            return answer
        await asyncio.sleep(0.05)
    pytest.fail(f"the change is refused: {answer.error_message}")


def test_controllers_join_and_the_first_one_goes(tmp_path: Path) -> None:
    """2 is added by an administrator, 3 joins by itself; then 1, which leads, is removed."""

    async def test() -> None:
        reserved = Ports()
        ports = await reserved.take(system_runtime(), "127.0.0.1", 3)
        reserved.release()
        servers: list[BrokerServer] = []
        try:
            for node_id, flag in ((1, "--standalone"), (2, "-N"), (3, "-N")):
                joins = {"controller_quorum_auto_join_enable": str(node_id == 3).lower()}
                properties = settings(tmp_path, node_id, ports, **joins)
                formatted(properties, flag)
                servers.append(started(properties))
                await servers[-1].start()
            first, second, third = servers
            own = second.metadata.own
            assert own is not None
            await when_voters_are(second, {1, 3})
            listeners = [
                AddRaftVoterRequest.Listener(name=name, host=host, port=port)
                for name, host, port in own.endpoints
            ]
            added = await changed(
                third,
                AddRaftVoterRequest(
                    cluster_id=CLUSTER_ID,
                    timeout_ms=5000,
                    voter_id=2,
                    voter_directory_id=own.directory_id,
                    listeners=listeners,
                ),
                1,
            )
            assert (added.error_code, added.error_message) == (0, "")
            found = await when_voters_are(third, {1, 2, 3})
            assert found[2] == own.directory_id
            answer = await described(first)
            nodes = {node.node_id: node.listeners[0].port for node in answer.nodes}
            assert nodes == dict(zip((1, 2, 3), ports, strict=True))
            versions = await asked(second, ApiVersionsRequest(**SOFTWARE), 4)
            levels = {one.name: one.max_version_level for one in versions.finalized_features}
            assert levels["kraft.version"] == 1
            gone = RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=found[1])
            assert (await changed(second, gone, 0)).error_code == ErrorCode.NONE
            await when_voters_are(second, {2, 3})
            await first.stop()
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=3, replication_factor=2
            )
            created = await asked(second, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            assert created.topics[0].error_code == ErrorCode.NONE
            # What was the first voter is a broker of the others' cluster now.
            servers[0] = started(first.config.given)
            await servers[0].start()
            await until(lambda: "t" in servers[0].metadata.image.topics)
        finally:
            for server in servers:
                await server.stop(controlled=False)

    run(test)


def static(properties: Mapping[str, str], ports: Sequence[int]) -> dict[str, str]:
    """The properties with the voters in the settings."""
    named = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(ports, 1))
    rest = {key: value for key, value in properties.items() if "bootstrap" not in key}
    return {**rest, "controller.quorum.voters": named}


async def upgraded(server: BrokerServer) -> Any:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="kraft.version", max_version_level=1, upgrade_type=1
    )
    return await asked(server, UpdateFeaturesRequest(feature_updates=[update]), 2)


def test_voters_of_the_settings_get_into_the_log(tmp_path: Path) -> None:
    """An upgrade of `kraft.version`; then settings may name them still, or only servers."""

    async def test() -> None:
        reserved = Ports()
        ports = await reserved.take(system_runtime(), "127.0.0.1", 2)
        reserved.release()
        dynamic = {node_id: settings(tmp_path, node_id, ports) for node_id in (1, 2)}
        servers: list[BrokerServer] = []
        try:
            for properties in dynamic.values():
                formatted(static(properties, ports))
                servers.append(started(static(properties, ports)))
            await asyncio.gather(*(server.start() for server in servers))
            assert set(await voters(servers[0])) == {1, 2}
            answer = await upgraded(servers[0])
            assert (answer.error_code, answer.error_message) == (0, None)
            directories = {1: servers[0].metadata.own, 2: servers[1].metadata.own}
            expected = {node_id: own.directory_id for node_id, own in directories.items() if own}
            assert await voters(servers[1]) == expected
            versions = await asked(servers[1], ApiVersionsRequest(**SOFTWARE), 4)
            levels = {one.name: one.max_version_level for one in versions.finalized_features}
            assert levels["kraft.version"] == 1
            for server in servers:
                await server.stop(controlled=False)
            servers[:] = [started(static(dynamic[1], ports)), started(dynamic[2])]
            await asyncio.gather(*(server.start() for server in servers))
            gone = RemoveRaftVoterRequest(
                cluster_id=None, voter_id=1, voter_directory_id=expected[1]
            )
            assert (await changed(servers[1], gone, 0)).error_code == ErrorCode.NONE
            assert await when_voters_are(servers[1], {2}) == {2: expected[2]}
        finally:
            for server in servers:
                await server.stop(controlled=False)

    run(test)


def test_a_broker_that_is_alone_names_no_voters(tmp_path: Path) -> None:
    async def test() -> None:
        alone = {
            **FAST,
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": f"{tmp_path}/1",
        }
        server = started(alone)
        await server.start()
        try:
            answer = await upgraded(server)
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert "no controller listener" in answer.error_message
        finally:
            await server.stop()

    run(test)


def test_a_log_that_names_voters_needs_a_controller_listener(tmp_path: Path) -> None:
    async def test() -> None:
        properties = settings(tmp_path, 1, [19093])
        formatted(properties, "--standalone")
        alone = {key: value for key, value in properties.items() if "quorum" not in key}
        server = started({**alone, "listeners": "PLAINTEXT://127.0.0.1:0"})
        with pytest.raises(StartError, match=r"add a controller listener to listeners"):
            await server.start()

    run(test)


@pytest.mark.parametrize("left_out", ["quorum", "listeners"])
def test_a_node_that_is_to_join_others_does_not_elect_itself(tmp_path: Path, left_out: str) -> None:
    """Without their addresses it is alone, with a listener for other controllers or without."""

    async def test() -> None:
        properties = settings(tmp_path, 1, [0])
        formatted(properties, "--no-initial-controllers")
        state = tmp_path / "1" / "__cluster_metadata-0" / "quorum-state"
        before = state.read_bytes()
        alone = {key: value for key, value in properties.items() if "quorum" not in key}
        if left_out == "listeners":
            alone["listeners"] = "PLAINTEXT://127.0.0.1:0"
        with pytest.raises(StartError, match=r"set controller.quorum.bootstrap.servers"):
            await started(alone).start()
        assert state.read_bytes() == before

    run(test)


def test_a_directory_that_kafka_has_formatted_names_its_voters(tmp_path: Path) -> None:
    """It has no `quorum-state` before the first start."""
    runtime = system_runtime(durable=False)
    properties = settings(tmp_path, 1, [19093])
    config = BrokerConfig.from_properties(properties)
    assert not settle_voters(config, runtime).is_dynamic(), "not formatted: a broker alone"
    formatted(properties, "--standalone")
    (tmp_path / "1" / "__cluster_metadata-0" / "quorum-state").unlink()
    settled = settle_voters(config, runtime)
    assert settled.is_dynamic()
    assert not settled.is_only_voter()
    assert settled.with_dynamic({"log.retention.ms": "5"}).is_dynamic()


@pytest.mark.parametrize(
    "other",
    [
        {"controller.quorum.bootstrap.servers": "127.0.0.1:19093"},
        {"controller.quorum.bootstrap.servers": "a:19092"},
        {"controller.quorum.bootstrap.servers": "127.0.0.1:19092,b:19092"},
        {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:0"},
    ],
)
def test_a_directory_that_kafka_has_formatted_without_voters_joins_others(
    tmp_path: Path, other: dict[str, str]
) -> None:
    """It elected itself: `kafka-storage format --no-initial-controllers` leaves no mark."""
    config = BrokerConfig.from_properties({**settings(tmp_path, 1, [19092]), **other})
    assert settle_voters(config, system_runtime(durable=False)).is_dynamic()


def test_the_addresses_of_a_controller_may_be_advertised(tmp_path: Path) -> None:
    properties = settings(tmp_path, 1, [19093])
    own = own_voter(BrokerConfig.from_properties(properties), bytes(16))
    assert own.address("CONTROLLER") == ("127.0.0.1", 19093)
    advertised = "PLAINTEXT://a:1,CONTROLLER://b:2"
    config = BrokerConfig.from_properties({**properties, "advertised.listeners": advertised})
    assert own_voter(config, bytes(16)).address("CONTROLLER") == ("b", 2)
    listeners = "PLAINTEXT://:0,CONTROLLER://:19093"
    config = BrokerConfig.from_properties({**properties, "listeners": listeners})
    assert own_voter(config, bytes(16)).address("CONTROLLER") == (socket.gethostname(), 19093)


@pytest.mark.parametrize("server", ["a", "a:0", ":1", "a:99999"])
def test_bootstrap_servers_are_checked(tmp_path: Path, server: str) -> None:
    config = BrokerConfig.from_properties(
        settings(tmp_path, 1, [19093], controller_quorum_bootstrap_servers=server)
    )
    with pytest.raises(ConfigError, match=r"bootstrap.servers"):
        config.with_voters_of_log()


@pytest.mark.parametrize(
    "text", ["", "1@a:1", "x@a:1:AAAAAAAAAAAAAAAAAAAAAQ", "1@a:0:AAAAAAAAAAAAAAAAAAAAAQ", "1@a:1:x"]
)
def test_initial_controllers_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    words = ["--node-id", "1", "--data-dir", str(tmp_path), "--set"]
    listeners = "listeners=PLAINTEXT://:9092,CONTROLLER://:9093"
    assert main(["format", "--initial-controllers", text, *words, listeners]) == 1
    assert "not of the form ID@HOST:PORT:DIRECTORY" in capsys.readouterr().err


def test_initial_controllers_have_the_directories_that_are_given(tmp_path: Path) -> None:
    properties = settings(tmp_path, 2, [19093, 19094])
    given = "1@a:19093:AAAAAAAAAAAAAAAAAAAAAQ,2@[::1]:19094:AAAAAAAAAAAAAAAAAAAAAg"
    formatted(properties, "--initial-controllers", given)
    text = (tmp_path / "2" / "meta.properties").read_text()
    assert "directory.id=AAAAAAAAAAAAAAAAAAAAAg" in text
