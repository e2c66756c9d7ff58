"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: what a Kafka 4.3.1 answered."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from support.handler_calls import make_context
from support.metadata import Metadata
from tidelog.api.configs import ENTRIES_AT_ONCE, ConfigsApi
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from tidelog_protocol.schema import Message

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


class Broker:
    """A broker with the topic `e`, asked over the codecs."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.api = ConfigsApi(self.metadata.log, self.metadata.controller, self.metadata.config)

    async def start(self) -> Broker:
        await self.metadata.register()
        topic = CreateTopicsRequest.CreatableTopic(name="e", num_partitions=1, replication_factor=1)
        await self.metadata.controller.create_topics(CreateTopicsRequest(topics=[topic]))
        return self

    async def call(self, key: ApiKey, version: int, request: Message) -> Any:
        served = API[key]
        codec = served.request_codec(version)
        answer = self.api.handlers()[key](
            make_context(key, version), codec.decode(codec.encode(request))
        )
        response = await answer if inspect.isawaitable(answer) else answer
        answers = served.response_codec(version)
        return answers.decode(answers.encode(response))

    async def describe(
        self, kind: int, name: str, *keys: str, version: int = 4, documented: bool = False
    ) -> Any:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=documented
        )
        (result,) = (await self.call(ApiKey.DESCRIBE_CONFIGS, version, request)).results
        assert (result.resource_type, result.resource_name) == (kind, name)
        return result

    async def set(self, kind: int, name: str, key: str, value: str | None, version: int = 1) -> Any:
        change = IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, config_operation=0 if value is not None else 1, value=value
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = await self.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)
        return response.responses[0]


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_a_topic(version: int) -> None:
    async def run() -> None:
        broker = await Broker().start()
        await broker.set(TOPIC, "e", "retention.ms", "5000")
        result = await broker.describe(
            TOPIC, "e", "retention.ms", "nope", version=version, documented=True
        )
        assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
        (entry,) = result.configs
        assert (entry.name, entry.value, entry.config_source) == ("retention.ms", "5000", 1)
        assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
            ("retention.ms", "5000", 1)
        ]
        assert not entry.read_only
        assert not entry.is_sensitive
        if version >= 3:
            assert entry.config_type == 5
            assert "newest record" in entry.documentation
            plain = await broker.describe(TOPIC, "e", "retention.ms", version=version)
            assert plain.configs[0].documentation is None
        everything = await broker.describe(TOPIC, "e", version=version)
        assert len(everything.configs) > 30

    asyncio.run(run())


MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)


@pytest.mark.parametrize(
    ("kind", "name", "code", "text"),
    [
        (TOPIC, "nix", 3, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "z", 42, "Broker id must be an integer, but it is: z"),
        (LOGGER, "", 42, "Broker id must not be empty"),
        (LOGGER, "2", 42, "Unexpected broker id, expected 1 but received 2"),
        (METRICS, "", 42, "Client metrics subscription name must not be empty"),
        (GROUP, "", 42, "Group name must not be empty"),
        (77, "g", 42, MALFORMED),
    ],
)
def test_what_cannot_be_described(kind: int, name: str, code: int, text: str) -> None:
    async def run() -> None:
        result = await (await Broker().start()).describe(kind, name)
        assert (result.error_code, result.error_message, result.configs) == (code, text, [])

    asyncio.run(run())


def test_thousands_of_settings_are_described_in_turns() -> None:
    """Those of 5,000 topics held the loop for half a second."""

    async def run() -> None:
        broker = await Broker().start()
        names = ["e", *(f"unknown-{number}" for number in range(3 * ENTRIES_AT_ONCE)), "e"]
        turns = asyncio.create_task(count_turns())
        many = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=TOPIC, resource_name=name, configuration_keys=None
                )
                for name in names
            ]
        )
        response = await broker.call(ApiKey.DESCRIBE_CONFIGS, 4, many)
        turns.cancel()
        named = [each.resource_name for each in response.results]
        assert named == names[:-1], "what is named twice is described once"
        assert response.results[0].configs
        with contextlib.suppress(asyncio.CancelledError):
            await turns
        assert taken[0] >= 3

    taken = [0]

    async def count_turns() -> None:
        while True:
            taken[0] += 1
            await asyncio.sleep(0)

    asyncio.run(run())


def test_one_unknown_type_spoils_the_request() -> None:
    async def run() -> None:
        broker = await Broker().start()
        resource = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[
                resource(resource_type=TOPIC, resource_name="e", configuration_keys=None),
                resource(resource_type=77, resource_name="g", configuration_keys=None),
            ]
        )
        response = await broker.call(ApiKey.DESCRIBE_CONFIGS, 4, request)
        assert [result.error_code for result in response.results] == [42, 42]

    asyncio.run(run())


def test_describe_brokers() -> None:
    async def run() -> None:
        broker = await Broker().start()
        (first,) = (await broker.describe(BROKER, "")).configs
        assert (first.name, first.value, first.config_source) == ("min.insync.replicas", "1", 3)
        await broker.set(BROKER, "", "log.retention.ms", "777000")
        (shared,) = (await broker.describe(BROKER, "", "log.retention.ms")).configs
        assert (shared.name, shared.value, shared.config_source) == (
            "log.retention.ms",
            "777000",
            3,
        )
        (own,) = (await broker.describe(BROKER, "1", "log.retention.ms")).configs
        assert (own.value, own.config_source, own.read_only) == ("777000", 3, False)
        assert len((await broker.describe(BROKER, "1")).configs) > 100
        assert (await broker.describe(LOGGER, "1")).configs == []

    asyncio.run(run())


def test_a_subscription_of_clients_metrics() -> None:
    async def run() -> None:
        broker = await Broker().start()
        assert (await broker.set(METRICS, "m", "metrics", "a.,b.")).error_code == ErrorCode.NONE
        assert broker.metadata.log.image.client_metrics == {"m": {"metrics": "a.,b."}}
        (entry,) = (await broker.describe(METRICS, "m", "metrics", "nope")).configs
        assert (entry.value, entry.config_source, entry.config_type) == ("a.,b.", 7, 7)
        assert [one.name for one in (await broker.describe(METRICS, "none")).configs] == [
            "interval.ms",
            "match",
            "metrics",
        ]
        await broker.set(METRICS, "m", "metrics", None)
        assert broker.metadata.log.image.client_metrics == {}

    asyncio.run(run())


def test_settings_of_a_group_that_does_not_exist() -> None:
    session = "consumer.session.timeout.ms"

    async def run() -> None:
        broker = await Broker().start()
        assert len((await broker.describe(GROUP, "g")).configs) == 17
        assert (await broker.set(GROUP, "g", session, "50000")).error_code == ErrorCode.NONE
        assert broker.metadata.log.image.group_config("g") == {session: "50000"}
        (entry,) = (await broker.describe(GROUP, "g", session, "nope")).configs
        assert (entry.value, entry.config_source, entry.config_type) == ("50000", 8, 3)
        (entry,) = (await broker.describe(GROUP, "h", session)).configs
        assert (entry.value, entry.config_source) == ("45000", 5)

    asyncio.run(run())


KERBEROS = {
    "sasl.kerberos.kinit.cmd": "/opt/kinit",
    "sasl.kerberos.min.time.before.relogin": "58000",
    "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1],DEFAULT",
    "sasl.kerberos.service.name": "kafka",
    "sasl.kerberos.ticket.renew.jitter": "0.1",
    "sasl.kerberos.ticket.renew.window.factor": "0.9",
}


def test_a_broker_takes_settings_of_kerberos_which_it_does_not_offer() -> None:
    """As Kafka without a listener of GSSAPI does: they have no effect on either."""

    async def run() -> None:
        broker = await Broker().start()
        for name, value in KERBEROS.items():
            answer = await broker.set(BROKER, "1", name, value)
            assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        described = (await broker.describe(BROKER, "1", *KERBEROS)).configs
        assert {entry.name: entry.value for entry in described} == KERBEROS
        assert {entry.config_source for entry in described} == {2}  # DYNAMIC_BROKER_CONFIG
        answer = await broker.set(BROKER, "1", "sasl.kerberos.ticket.renew.jitter", "x")
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    asyncio.run(run())


@pytest.mark.parametrize("version", range(2))
def test_incremental(version: int) -> None:
    async def run() -> None:
        broker = await Broker().start()
        answer = await broker.set(TOPIC, "e", "flush.ms", "7", version=version)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert (answer.resource_type, answer.resource_name) == (TOPIC, "e")
        assert broker.metadata.log.image.topic_config("e") == {"flush.ms": "7"}
        answer = await broker.set(TOPIC, "e", "flush.ms", "x", version=version)
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert answer.error_message == (
            "Invalid value x for configuration flush.ms: Not a number of type LONG"
        )
        await broker.set(TOPIC, "e", "flush.ms", None, version=version)
        assert broker.metadata.log.image.topic_config("e") == {}

    asyncio.run(run())


@pytest.mark.parametrize("version", range(3))
def test_legacy(version: int) -> None:
    async def run() -> None:
        broker = await Broker().start()
        await broker.set(TOPIC, "e", "flush.ms", "7")

        def request(value: str, *, validate_only: bool) -> AlterConfigsRequest:
            change = AlterConfigsRequest.AlterableConfig(name="retention.bytes", value=value)
            resource = AlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC, resource_name="e", configs=[change]
            )
            return AlterConfigsRequest(resources=[resource], validate_only=validate_only)

        for value, validate_only, code, left in (
            ("9", True, ErrorCode.NONE, {"flush.ms": "7"}),
            ("x", False, ErrorCode.INVALID_CONFIG, {"flush.ms": "7"}),
            ("9", False, ErrorCode.NONE, {"retention.bytes": "9"}),
        ):
            response = await broker.call(
                ApiKey.ALTER_CONFIGS, version, request(value, validate_only=validate_only)
            )
            (answer,) = response.responses
            assert (answer.error_code, answer.resource_name) == (code, "e")
            assert broker.metadata.log.image.topic_config("e") == left

    asyncio.run(run())


def test_a_broken_disk_is_reported_for_every_entry() -> None:
    async def run() -> None:
        broker = await Broker().start()
        broker.metadata.executor.error = OSError("gone")
        answer = await broker.set(TOPIC, "e", "flush.ms", "7")
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.metadata.log.image.topic_config("e") == {}

    asyncio.run(run())
