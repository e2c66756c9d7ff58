"""Requests of every kind with extreme values: each is answered or refused, none is a bug.

The values are drawn by a seed of their own for each request. Most of a request is plausible, so
that it gets beyond the first check.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import run
from support.wire_client import WireClient
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.schema import Field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_protocol.schema import Struct

REQUESTS_EACH = 8
PLAUSIBLE = 0.8
WAIT_S = 0.05  # for an answer; parked requests get none in this time
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
EXTREMES: dict[str, tuple[Any, ...]] = {
    "boolean": (False, True),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
    "float64": (0.0, -1.0, float("inf"), float("nan")),
    "uuid": (bytes(16), b"\xff" * 16),
    "string": ("", "t", "x" * 32_767, "é" * 16_383, "\0", "__consumer_offsets"),
    "bytes": (b"", b"\xff" * 10, b"x" * 40_000),
    "records": (b"", b"\xff" * 100),
    **{
        kind: (-(1 << bits), -1, 0, 1, (1 << bits) - 2, (1 << bits) - 1)
        for kind, bits in BITS.items()
    },
}
GOOD: dict[str, Any] = {
    "acks": 1,
    "broker_id": 77,  # 1 would be taken at its word and unregistered
    "committed_offset": 1,
    "coordinator_keys": ["g"],
    "current_leader_epoch": -1,
    "group_id": "g",
    "groups": ["g"],
    "key": "g",
    "key_type": 0,
    "leader_epoch": -1,
    "max_bytes": 1000,
    "max_wait_ms": 0,
    "member_id": "",
    "name": "t",
    "num_partitions": 1,
    "partition": 0,
    "partition_index": 0,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_name": "t",
    "resource_type": 2,
    "session_timeout_ms": 10_000,
    "timeout_ms": 1000,
    "topic": "t",
    "transaction_timeout_ms": 1000,
    "transactional_id": "x",
}
FORBIDDEN = (ApiKey.UNREGISTER_BROKER,)  # may be right, and end the broker


def draw(rng: random.Random, field: Field, version: int) -> Any:
    """A value of a field."""
    good = GOOD.get(field.name)
    is_fitting = good is not None and isinstance(good, list) == (field.element == "string")
    if is_fitting and rng.random() < PLAUSIBLE:
        return good
    if field.nullable_in(version) and rng.random() < 0.2:
        return None
    element = field.element
    if field.kind == "array":
        count = rng.choice((0, 1, 1, 2))
        if isinstance(element, str):
            return [draw(rng, Field(element, "0+", None), version) for _ in range(count)]
        assert element is not None
        return [draw_struct(rng, element, version) for _ in range(count)]
    if field.kind == "struct":
        assert isinstance(element, type)
        return draw_struct(rng, element, version)
    return rng.choice(EXTREMES[field.kind])


def draw_struct(rng: random.Random, cls: type[Struct], version: int) -> Any:
    """A structure or message."""
    made = cls()
    for field in cls.FIELDS:
        if field.in_version(version) and (field.tag is None or rng.random() < 0.5):
            setattr(made, field.name, draw(rng, field, version))
    return made


def requests(keys: list[ApiKey]) -> Iterator[tuple[Any, int]]:
    """Requests of all kinds, in their first and last versions and the last without tags."""
    for key in keys:
        api = API[key]
        plain = max(api.min_version, min(api.max_version, api.flexible_from - 1))
        for version in sorted({api.min_version, plain, api.max_version}):
            for number in range(REQUESTS_EACH):
                rng = random.Random(f"{key}:{version}:{number}")
                yield draw_struct(rng, api.request, version), version


async def outcome(server: str, message: Any, version: int) -> str:
    """Send a request by a connection of its own."""
    client = await WireClient.connect(server)
    try:
        client.send(message, version)
        async with asyncio.timeout(WAIT_S):
            await client.receive()
    except TimeoutError:
        return "parked"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    finally:
        client.writer.close()
    return "answered"


@pytest.mark.parametrize("listener", ["clients", "controllers"])
def test_no_value_is_a_bug(listener: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=1 if listener == "clients" else 3) as cluster:
            node: Any = cluster.brokers[0]
            clients = cluster.bootstrap_servers.partition(",")[0]
            async with await WireClient.connect(clients) as client:
                topic = CreateTopicsRequest.CreatableTopic(
                    name="t", num_partitions=1, replication_factor=1
                )
                await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
            server, dispatcher = clients, node.server.dispatchers[0]
            if listener == "controllers":
                voter = node.config.quorum_voters()[0]
                server = f"{voter.host}:{voter.port}"
                dispatcher = node.server.dispatchers[1]
            keys = [key for key in dispatcher.served if key not in FORBIDDEN]
            outcomes = [await outcome(server, *request) for request in requests(keys)]
            assert outcomes.count("answered") > len(outcomes) / 2
            assert all(broker.is_running for broker in cluster.brokers)

    run(test)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
