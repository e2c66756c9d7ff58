"""The controllers' listener, as admin clients with `bootstrap.controllers` use it (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import run
from support.handler_calls import make_context
from support.metadata import Metadata
from support.wire_client import WireClient
from tidelog.api.describe_controllers import DescribeControllersApi
from tidelog.config.broker import BrokerConfig
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer
from tidelog_bench.peers.address import free_port
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
)
from tidelog_protocol.messages.metadata_records import RegisterControllerRecord

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_protocol.apis import Api

SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}
LEVEL_WITHOUT = 14  # of metadata.version, before registrations of controllers
NO_OPERATIONS = -(1 << 31)


def registered(node_id: int, host: str) -> RegisterControllerRecord:
    """A controller's record."""
    endpoint = RegisterControllerRecord.ControllerEndpoint(
        name="CONTROLLER", host=host, port=90 + node_id
    )
    return RegisterControllerRecord(controller_id=node_id, end_points=[endpoint])


def described(version: int, listener: str = "CONTROLLER", level: int = 30, **fields: Any) -> Any:
    """What controller 1 of two, the leader, answers on one of its listeners."""
    metadata = Metadata()
    metadata.log.image = metadata.log.image._replace(
        features={"metadata.version": level},
        controllers={2: registered(2, "b"), 1: registered(1, "a")},
    )
    context = make_context(ApiKey.DESCRIBE_CLUSTER, version)
    context.peer.listener = listener
    api = DescribeControllersApi(metadata.log)
    response = api.describe_cluster(context, DescribeClusterRequest(**fields))
    codec = API[ApiKey.DESCRIBE_CLUSTER].response_codec(version)
    return codec.decode(codec.encode(response))


@pytest.mark.parametrize("version", [1, 2])
def test_controllers_have_the_addresses_of_the_listener(version: int) -> None:
    answer = described(version, endpoint_type=2)
    assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, 2, 1)
    assert [(c.broker_id, c.host, c.port, c.rack) for c in answer.brokers] == [
        (1, "a", 91, None),
        (2, "b", 92, None),
    ]
    assert answer.cluster_authorized_operations == NO_OPERATIONS
    asked = described(version, endpoint_type=2, include_cluster_authorized_operations=True)
    assert asked.cluster_authorized_operations == 8096


def test_a_leader_without_the_listener_is_not_named() -> None:
    answer = described(1, "OTHER", endpoint_type=2)
    assert (answer.error_code, answer.controller_id, answer.brokers) == (0, -1, [])


def test_an_old_metadata_version_has_no_controllers() -> None:
    answer = described(1, level=LEVEL_WITHOUT, endpoint_type=2)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "Direct-to-controller communication is not supported with the current MetadataVersion.",
    )


@pytest.mark.parametrize(
    ("version", "asked", "code", "text"),
    [
        (
            1,
            1,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of"
            " type BROKER",
        ),
        (
            0,
            1,
            ErrorCode.INVALID_REQUEST,
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of"
            " type BROKER",
        ),
        (2, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
    ],
)
def test_other_endpoints_are_refused(version: int, asked: int, code: ErrorCode, text: str) -> None:
    answer = described(version, endpoint_type=asked)
    assert (answer.error_code, answer.error_message) == (code, text)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])


async def listed(address: str) -> set[int]:
    async with await WireClient.connect(address) as client:
        answer = await client.ask(ApiVersionsRequest(**SOFTWARE), 4)
    return {entry.api_key for entry in answer.api_keys}


async def closes(address: str, api: Api) -> bool:
    async with await WireClient.connect(address) as client:
        client.send(api.request(), api.max_version)
        return await client.closed()


def test_each_api_is_served_on_its_listeners_and_nowhere_else(tmp_path: Path) -> None:
    async def test() -> None:
        controller = f"127.0.0.1:{free_port()}"
        properties = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}",
            "log.dirs": str(tmp_path),
        }
        config = BrokerConfig.from_properties(properties)
        server = BrokerServer(config, system_runtime(durable=False))
        await server.start()
        try:
            assert all(API[key].on_brokers for key in await listed(server.bootstrap_servers))
            on_controllers = {key for key, api in API.items() if api.on_controllers}
            assert await listed(controller) == on_controllers
            for api in API.values():
                if not api.on_controllers:
                    assert await closes(controller, api), api
                if not api.on_brokers:
                    assert await closes(server.bootstrap_servers, api), api
            await used(controller)
        finally:
            await server.stop()

    run(test)


async def used(controller: str) -> None:
    """An admin's first requests to this controller."""
    async with await WireClient.connect(controller) as client:
        answer = await client.ask(DescribeClusterRequest(endpoint_type=2), 2)
        port = int(controller.rpartition(":")[2])
        assert [(each.broker_id, each.port) for each in answer.brokers] == [(1, port)]
        assert answer.controller_id == 1
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        made = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 7)
        assert made.topics[0].error_code == 0
