"""A broker of handlers that do what tests of connections need, and the frames to ask it."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

from support.memory_transport import MemoryTransport
from support.wire_client import request_bytes
from tidelog.api.versions import VersionsApi
from tidelog.assembly import sasl_handlers
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.network.connections import Connections
from tidelog.network.dispatch import Deferred, Dispatcher, RequestContext
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.messages.data import FetchRequest, FetchResponse, ProduceRequest
from tidelog_protocol.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from tidelog_protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

HEARTBEAT_VERSION = 4
FETCH_VERSION = 12


class HandlerBroker:
    """Handlers that do what these tests need, and notes of what they were asked."""

    def __init__(self, **limits: Any) -> None:
        self.asked: list[str] = []
        self.parked: list[tuple[RequestContext, Deferred]] = []
        self.hurried: list[int] = []
        self.cancelled: list[int] = []
        self.gate = asyncio.Event()
        self.records = b"r" * 1000
        handlers = {
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.FETCH: self.fetch,
            ApiKey.PRODUCE: self.produce,
            ApiKey.LIST_GROUPS: self.list_groups,
        }
        versions = VersionsApi(
            served=handlers, cluster_id="c", node_id=1, image=lambda: ClusterImage("c")
        )
        self.dispatcher = Dispatcher({**handlers, **versions.handlers(), **sasl_handlers()})
        self.connections = Connections(**limits)
        self.connections.open(self.dispatcher)

    def heartbeat(self, context: RequestContext, request: Any) -> HeartbeatResponse:
        self.asked.append(request.group_id)
        if request.group_id == "bug":
            raise KeyError("a bug")
        if request.group_id == "close":
            context.close()
        return HeartbeatResponse(throttle_time_ms=request.generation_id)

    def fetch(self, context: RequestContext, request: Any) -> Any:
        """Answer with records when min_bytes is 0, else park."""
        self.asked.append(f"fetch {context.correlation_id}")
        if request.min_bytes == 0:
            return self.fetched(request.max_bytes)
        number = context.correlation_id

        def hurry() -> None:
            self.hurried.append(number)

        deferred = context.defer(hurry, lambda: self.cancelled.append(number))
        self.parked.append((context, deferred))
        if request.min_bytes == 2:
            deferred.complete(self.fetched(3))
        return deferred

    def fetched(self, size: int) -> FetchResponse:
        data = (self.records * (size // len(self.records) + 1))[:size]
        partition = FetchResponse.FetchableTopicResponse.PartitionData(records=memoryview(data))
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
        return FetchResponse(responses=[topic])

    def produce(self, context: RequestContext, request: Any) -> None:
        self.asked.append(bytes(request.topic_data[0].partition_data[0].records).decode())

    async def list_groups(self, context: RequestContext, request: Any) -> ListGroupsResponse:
        self.asked.append(f"list {request.states_filter}")
        await self.gate.wait()
        self.asked.append("listed")
        return ListGroupsResponse()

    def connect(self, *, room: int | None = None) -> MemoryTransport:
        return MemoryTransport(self.connections.factory(), room=room)


def heartbeat(number: int, group: str = "g") -> bytes:
    request = HeartbeatRequest(group_id=group, generation_id=number, member_id="m")
    return request_bytes(request, HEARTBEAT_VERSION, number)


def fetch(number: int, *, min_bytes: int = 1, size: int = 0) -> bytes:
    request = FetchRequest(min_bytes=min_bytes, max_bytes=size)
    return request_bytes(request, FETCH_VERSION, number)


def list_groups(number: int) -> bytes:
    return request_bytes(ListGroupsRequest(states_filter=["Stable"]), 4, number)


def produce(number: int, records: bytes) -> bytes:
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic])
    return request_bytes(request, 9, number)


def answers(transport: MemoryTransport) -> list[int]:
    """Correlation ids of the whole frames the peer has received."""
    ids, position, data = [], 0, transport.received
    while position < len(data):
        size, correlation_id = struct.unpack_from(">ii", data, position)
        position += 4 + size
        assert position <= len(data), "half a frame"
        ids.append(correlation_id)
    return ids


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(250):
            await test()

    asyncio.run(bounded())


async def settle() -> None:
    """Let everything run that is ready, and what that makes ready."""
    for _ in range(10):
        await asyncio.sleep(0)
