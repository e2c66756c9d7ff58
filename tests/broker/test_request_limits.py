"""Requests of millions of empty elements are refused before anything is built of them."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from support.handler_calls import RecordingPeer
from support.wire_client import request_bytes
from tidelog.network.dispatch import Dispatcher
from tidelog.network.request_limits import ELEMENTS_MAX, NAMES_MAX, PROTOCOLS_MAX, elements_max
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.admin import DeleteTopicsRequest
from tidelog_protocol.messages.data import DeleteRecordsRequest
from tidelog_protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.primitives import write_uvarint

if TYPE_CHECKING:
    from tidelog_protocol.schema import Message

HOSTILE = 1_000_000
"""A tenth of the elements at which one such request ended a broker under a limit of 4 GiB."""


def hostile(table: type[Message], version: int, field: str, filler: bytes) -> bytes:
    """Return the frame of a request with a million times `filler` in one of its arrays."""
    request = table()
    empty = request_bytes(request, version, 1)[4:]
    setattr(request, field, ["mark"])
    marked = request_bytes(request, version, 1)[4:]
    at = marked.index(b"\x02\x05mark")
    return marked[:at] + write_uvarint(HOSTILE + 1) + filler * HOSTILE + empty[at + 1 :]


@pytest.mark.parametrize(
    ("api_key", "table", "version", "field"),
    [
        (ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, 4, "coordinator_keys"),
        (ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, 5, "groups"),
        (ApiKey.DELETE_GROUPS, DeleteGroupsRequest, 2, "groups_names"),
        (ApiKey.LIST_GROUPS, ListGroupsRequest, 5, "states_filter"),
        (ApiKey.DELETE_TOPICS, DeleteTopicsRequest, 5, "topic_names"),
    ],
)
def test_a_million_empty_names_cost_next_to_nothing(
    api_key: ApiKey, table: type[Message], version: int, field: str
) -> None:
    handled: list[Any] = []
    dispatcher = Dispatcher({api_key: lambda context, request: handled.append(request)})
    small = request_bytes(table(), version, 1)[4:]
    dispatcher.dispatch(RecordingPeer(), memoryview(small))  # compiles the decoder
    frame = memoryview(hostile(table, version, field, b"\x01"))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more elements than a request may have"):
            dispatcher.dispatch(RecordingPeer(), frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert len(handled) == 1


def test_each_api_takes_as_many_elements_as_its_limit() -> None:
    known: list[str] = []  # in parts
    seen: list[int] = []

    def deleted(_context: object, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        known.extend(request.groups_names)
        return DeleteGroupsResponse()

    names = {ApiKey.DELETE_GROUPS: deleted}
    topics = {ApiKey.DELETE_RECORDS: lambda context, request: seen.append(len(request.topics))}

    def groups(count: int) -> memoryview:
        wanted = [f"g{each}" for each in range(count)]
        return memoryview(request_bytes(DeleteGroupsRequest(groups_names=wanted), 2, 1))[4:]

    def asked(count: int) -> memoryview:
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t")
        return memoryview(request_bytes(DeleteRecordsRequest(topics=[topic] * count), 2, 1))[4:]

    async def handled() -> None:
        Dispatcher(names).dispatch(RecordingPeer(), groups(NAMES_MAX))
        Dispatcher(topics).dispatch(RecordingPeer(), asked(ELEMENTS_MAX))
        own = asyncio.current_task()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not own))

    asyncio.run(handled())
    assert (len(set(known)), seen) == (NAMES_MAX, [ELEMENTS_MAX])
    with pytest.raises(ProtocolError, match="more elements"):
        Dispatcher(names).dispatch(RecordingPeer(), groups(NAMES_MAX + 1))
    with pytest.raises(ProtocolError, match="more elements"):
        Dispatcher(topics).dispatch(RecordingPeer(), asked(ELEMENTS_MAX + 1))


def test_lists_of_names_have_the_lower_limit() -> None:
    assert elements_max(ApiKey.FIND_COORDINATOR) == NAMES_MAX
    assert elements_max(ApiKey.METADATA) == NAMES_MAX
    assert elements_max(ApiKey.CREATE_DELEGATION_TOKEN) == NAMES_MAX
    assert elements_max(ApiKey.DESCRIBE_DELEGATION_TOKEN) == NAMES_MAX
    assert elements_max(ApiKey.DELETE_ACLS) == NAMES_MAX
    assert elements_max(ApiKey.BROKER_REGISTRATION) == NAMES_MAX
    assert elements_max(ApiKey.JOIN_GROUP) == PROTOCOLS_MAX
    assert elements_max(ApiKey.PRODUCE) == ELEMENTS_MAX
    assert elements_max(ApiKey.FETCH) == ELEMENTS_MAX
    assert elements_max(ApiKey.ALTER_PARTITION) == ELEMENTS_MAX
