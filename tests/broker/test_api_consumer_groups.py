"""Groups of KIP-848: librdkafka consumes; where they are off, clients learn that at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    Producer,
)
from confluent_kafka.admin import AdminClient, NewTopic

import tidelog
from broker.group_broker import GroupBroker
from support.handler_calls import make_context
from tidelog.api.consumer_groups import ConsumerGroupsApi
from tidelog.coordinators.groups.consumer.membership import ConsumerMembership
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WAIT_S = 30
SHORT_INTERVAL = {
    f"group.consumer.{name}heartbeat.interval.ms": "100" for name in ("", "min.", "max.")
}
SHORT_INTERVAL["group.consumer.assignment.interval.ms"] = "100"


CLASSIC_ONLY = {"group.coordinator.rebalance.protocols": "classic"}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("is_old", [False, True])
def test_requests_are_refused_where_the_protocol_is_off(version: int, is_old: bool) -> None:
    """An old directory has no level of group.version."""
    broker = GroupBroker()
    if is_old:
        broker.features = {"metadata.version": 30}
        broker.apply()
    membership = ConsumerMembership(broker.coordinator, broker.rng)
    handlers = ConsumerGroupsApi(
        broker.admin, lambda: broker.image, membership, is_allowed=is_old
    ).handlers()
    context = make_context(ApiKey.CONSUMER_GROUP_HEARTBEAT, version)
    answer = handlers[ApiKey.CONSUMER_GROUP_HEARTBEAT](
        context, ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
    )
    refused = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert answer == refused  # without a text, as Kafka
    (described,) = handlers[ApiKey.CONSUMER_GROUP_DESCRIBE](
        context, ConsumerGroupDescribeRequest(group_ids=["g"])
    ).groups
    assert (described.group_id, described.error_code) == ("g", ErrorCode.UNSUPPORTED_VERSION)
    assert described.error_message is None


def test_librdkafka_fails_instead_of_waiting_where_the_protocol_is_off() -> None:
    with tidelog.run(CLASSIC_ONLY) as cluster:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "log_level": 0,
            }
        )
        consumer.subscribe(["t"])
        message = None
        end = time.monotonic() + WAIT_S
        while message is None and time.monotonic() < end:
            message = consumer.poll(0.1)
        consumer.close()
    assert message is not None, "it waits in silence"
    error = message.error()
    assert error.code() == KafkaError._FATAL
    assert "API version not supported" in error.str()


def test_librdkafka_consumes() -> None:
    async def play() -> None:
        async with tidelog.Cluster(SHORT_INTERVAL) as cluster:
            await asyncio.to_thread(play_members, {"bootstrap.servers": cluster.bootstrap_servers})

    asyncio.run(play())


def play_members(servers: dict[str, str]) -> None:
    """A member comes, another shares with it, it goes; a later one goes on at its offsets."""
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("t", 4)])["t"].result(WAIT_S)
    fill(servers, "0")
    first, second = new_member(servers), new_member(servers)
    wait_for(lambda: shares([first, second]) == [2, 2], [first, second])
    fill(servers, "1")
    assert consumed([first, second], "1") <= {f"{name}-{n}" for name in "01" for n in range(4)}
    (group,) = admin.list_consumer_groups().result(WAIT_S).valid
    assert (group.type, group.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    first.close()
    wait_for(lambda: shares([second]) == [4], [second])
    second.close()
    later = new_member(servers)
    fill(servers, "2")
    assert consumed([later], "2") == {f"2-{n}" for n in range(4)}, "offsets were committed"
    later.close()


def new_member(servers: dict[str, str]) -> Consumer:
    own = {"group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer(servers | own)
    consumer.subscribe(["t"])
    return consumer


def fill(servers: dict[str, str], name: str) -> None:
    """Write one record into each partition."""
    producer = Producer(servers)
    for partition in range(4):
        producer.produce("t", f"{name}-{partition}", partition=partition)
    assert producer.flush(WAIT_S) == 0


def consumed(members: list[Consumer], name: str) -> set[str]:
    """Poll members in turn until they have the records of this name; return all that came."""
    wanted = {f"{name}-{partition}" for partition in range(4)}
    found: set[str] = set()

    def poll() -> bool:
        for member in members:
            message = member.poll(0.01)
            if message is not None:
                assert message.error() is None, message.error()
                found.add(message.value().decode())
        return wanted <= found

    wait_for(poll)
    return found


def shares(members: list[Consumer]) -> list[int]:
    return [len(member.assignment()) for member in members]


def wait_for(is_done: Callable[[], bool], polled: Sequence[Consumer] = ()) -> None:
    end = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < end, "nothing has changed for too long"
        for member in polled:
            message = member.poll(0.01)
            assert message is None or message.error() is None
