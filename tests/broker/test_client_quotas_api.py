"""DescribeClientQuotas and AlterClientQuotas; answers are those of a Kafka 4.3.1."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from support.handler_calls import make_context
from support.metadata import cluster
from tidelog.api.client_quotas import ClientQuotasApi
from tidelog.cluster.controller.client_quotas import EntityResult
from tidelog.cluster.metadata.log import NotControllerError
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

EXACT, DEFAULT, SPECIFIED = range(3)
Component = DescribeClientQuotasRequest.ComponentData
Entry = AlterClientQuotasRequest.EntryData
USER, USER_CLIENT, CLIENT = (
    (("user", "u"),),
    (("client-id", "c"), ("user", None)),
    (("client-id", "c"),),
)
ADDRESS = (("ip", "1.2.3.4"),)
IMAGE = cluster()._replace(
    client_quotas={
        USER: {"producer_byte_rate": 1.0},
        USER_CLIENT: {"producer_byte_rate": 2.0, "request_percentage": 0.5},
        CLIENT: {"consumer_byte_rate": 3.0},
        ADDRESS: {"connection_creation_rate": 4.0},
    }
)


def ask(key: ApiKey, request: Any, version: int = 1, controller: Any = None) -> Any:
    api = ClientQuotasApi(SimpleNamespace(image=IMAGE), controller)  # type: ignore[arg-type]
    response = api.handlers()[key](make_context(key, version), request)
    if asyncio.iscoroutine(response):
        response = asyncio.run(response)
    codec = API[key].response_codec(version)
    return codec.decode(codec.encode(response))


def described(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(
        components=[Component(entity_type=k, match_type=t, match=m) for k, t, m in components],
        strict=strict,
    )
    return ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)


@pytest.mark.parametrize(
    ("components", "loose", "strict"),
    [
        ((), {USER, USER_CLIENT, CLIENT, ADDRESS}, set()),
        ((("user", EXACT, "u"),), {USER}, {USER}),
        ((("user", DEFAULT, None),), {USER_CLIENT}, set()),
        ((("user", SPECIFIED, None),), {USER, USER_CLIENT}, {USER}),
        ((("client-id", EXACT, "c"),), {USER_CLIENT, CLIENT}, {CLIENT}),
        ((("client-id", EXACT, "c"), ("user", DEFAULT, None)), {USER_CLIENT}, {USER_CLIENT}),
        ((("ip", EXACT, "1.2.3.4"),), {ADDRESS}, {ADDRESS}),
        ((("ip", DEFAULT, None),), set(), set()),
    ],
)
def test_filters(
    components: tuple[tuple[str, int, str | None], ...], loose: set[Any], strict: set[Any]
) -> None:
    for is_strict, expected in ((False, loose), (True, strict)):
        answer = described(*components, strict=is_strict)
        assert answer.error_code == ErrorCode.NONE
        found = {
            tuple((each.entity_type, each.entity_name) for each in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries
        }
        assert found == {entity: IMAGE.client_quotas[entity] for entity in expected}


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", EXACT, "x")], 42, "Invalid empty entity type."),
        ([("group", EXACT, "x")], 35, "Unsupported entity type group"),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        (
            [("user", EXACT, "x"), ("user", EXACT, "y")],
            42,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", EXACT, None)],
            42,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "x")],
            42,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("ip", DEFAULT, None), ("user", DEFAULT, None)],
            42,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        ),
    ],
)
def test_filters_that_are_refused(
    components: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    answer = described(*components)
    assert (answer.error_code, answer.error_message) == (code, message)
    assert answer.entries is None


@pytest.mark.parametrize("version", [0, 1])
def test_each_altered_entity_has_its_result(version: int) -> None:
    async def alter(_request: object) -> list[EntityResult]:
        return [
            EntityResult(USER_CLIENT, ErrorCode.NONE, None),
            EntityResult(USER, ErrorCode.INVALID_REQUEST, "no"),
        ]

    controller = SimpleNamespace(alter_client_quotas=alter)
    answer = ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(), version, controller)
    assert [
        (
            entry.error_code,
            entry.error_message,
            tuple((each.entity_type, each.entity_name) for each in entry.entity),
        )
        for entry in answer.entries
    ] == [(0, None, USER_CLIENT), (42, "no", USER)]


def test_without_a_controller_every_entity_is_refused() -> None:
    async def alter(_request: object) -> list[EntityResult]:
        raise NotControllerError

    entity = [Entry.EntityData(entity_type="user", entity_name="u")]
    request = AlterClientQuotasRequest(entries=[Entry(entity=entity)])
    answer = ask(ApiKey.ALTER_CLIENT_QUOTAS, request, 1, SimpleNamespace(alter_client_quotas=alter))
    (entry,) = answer.entries
    assert entry.error_code == ErrorCode.NOT_CONTROLLER
    assert entry.entity == [type(entry).EntityData(entity_type="user", entity_name="u")]
