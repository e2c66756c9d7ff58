"""KIP-848 is not served yet: its clients learn that at once."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError

import tidelog
from support.handler_calls import make_context
from tidelog.api.consumer_groups import ConsumerGroupsApi
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

WAIT_S = 30


@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_is_refused(version: int) -> None:
    handlers = ConsumerGroupsApi().handlers()
    assert handlers.keys() == {ApiKey.CONSUMER_GROUP_HEARTBEAT}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
    context = make_context(ApiKey.CONSUMER_GROUP_HEARTBEAT, version)
    answer = handlers[ApiKey.CONSUMER_GROUP_HEARTBEAT](context, request)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.protocol=classic" in answer.error_message
    assert answer.assignment is None


def test_librdkafka_fails_instead_of_waiting() -> None:
    with tidelog.run() as cluster:
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
