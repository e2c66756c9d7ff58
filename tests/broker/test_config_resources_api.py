"""ListConfigResources; orders and refusals are those of a Kafka 4.3.1."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.handler_calls import make_context
from support.metadata import cluster, topic
from tidelog.api.config_resources import ConfigResourcesApi
from tidelog.cluster.metadata.image import BrokerImage
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
IMAGE = cluster(
    topic("e", 1),
    topic("f", 2),
    brokers=[BrokerImage(1, "h", 1), BrokerImage(2, "h", 2), BrokerImage(3, "h", 3, fenced=True)],
)._replace(
    group_configs={"g": {"consumer.session.timeout.ms": "50000"}},
    client_metrics={"s": {"metrics": "*"}},
)
KEY = ApiKey.LIST_CONFIG_RESOURCES


def listed(version: int, *types: int) -> tuple[int, list[tuple[str, int]]]:
    api = ConfigResourcesApi(SimpleNamespace(image=IMAGE))  # type: ignore[arg-type]
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = api.handlers()[KEY](make_context(KEY, version), request)
    codec = API[KEY].response_codec(version)
    answer = codec.decode(codec.encode(response))
    return answer.error_code, [(e.resource_name, e.resource_type) for e in answer.config_resources]


GROUPS, TOPICS = [("g", GROUP)], [("e", TOPIC), ("f", TOPIC)]
SUBSCRIPTIONS = [("s", METRICS)]
BROKERS, LOGGERS = [("1", BROKER), ("2", BROKER)], [("1", LOGGER), ("2", LOGGER)]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), GROUPS + SUBSCRIPTIONS + LOGGERS + BROKERS + TOPICS),
        ((GROUP,), GROUPS),
        ((TOPIC, GROUP, GROUP), GROUPS + TOPICS),
        ((BROKER,), BROKERS),
        ((LOGGER,), LOGGERS),
        ((METRICS,), SUBSCRIPTIONS),
    ],
)
def test_resources_by_type(types: tuple[int, ...], expected: list[tuple[str, int]]) -> None:
    assert listed(1, *types) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("types", [(0,), (GROUP, 99), (1,)])
def test_an_unknown_type_fails_all(types: tuple[int, ...]) -> None:
    assert listed(1, *types) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_the_first_version_lists_client_metrics() -> None:
    assert listed(0) == (ErrorCode.NONE, SUBSCRIPTIONS)
