"""Connections: order, hurry, bad bytes, back-pressure, idleness; in memory and over real sockets."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest

from support.memory_transport import MemoryTransport
from support.wire_client import WireClient, request_bytes, response_of
from tidelog import connection as connection_module
from tidelog.api.versions import VersionsApi
from tidelog.connection import Connection, Connections
from tidelog.dispatch import Deferred, Dispatcher, RequestContext
from tidelog.runtime import SystemNetwork
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_protocol.messages.data import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
)
from tidelog_protocol.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from tidelog_protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

HEARTBEAT_VERSION = 4
FETCH_VERSION = 12


class Broker:
    """Handlers that do what these tests need, and notes of what they were asked."""

    def __init__(self, **limits: int) -> None:
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
        versions = VersionsApi(served=handlers, cluster_id="c", node_id=1)
        self.dispatcher = Dispatcher({**handlers, **versions.handlers()})
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
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


async def settle() -> None:
    """Let everything run that is ready, and what that makes ready."""
    for _ in range(10):
        await asyncio.sleep(0)


# -- order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 7, 50])
def test_delivery_in_any_pieces_gives_the_same_answers(chunk: int | None) -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(b"".join(heartbeat(number) for number in range(1, 9)), chunk)
        assert answers(transport) == list(range(1, 9))
        assert broker.asked == ["g"] * 8

    run(test)


def test_pipelined_requests_of_a_wake_up_are_answered_in_one_write() -> None:
    async def test() -> None:
        transport = Broker().connect()
        transport.feed(b"".join(heartbeat(number) for number in range(100)))
        assert answers(transport) == list(range(100))
        assert transport.writes == 1

    run(test)


def test_answers_wait_for_a_parked_request_before_them() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(fetch(1) + heartbeat(2) + fetch(3))
        assert answers(transport) == []
        assert broker.asked == ["fetch 1", "g", "fetch 3"]
        (_, first), (_, third) = broker.parked
        third.complete(broker.fetched(1))
        assert answers(transport) == []
        first.complete(broker.fetched(1))
        await settle()
        assert answers(transport) == [1, 2, 3]
        assert transport.writes == 1

    run(test)


def test_a_single_parked_request_is_answered_at_once() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(fetch(1))
        broker.parked[0][1].complete(broker.fetched(1))
        assert answers(transport) == [1]  # without another turn of the loop

    run(test)


def test_deferred_completed_inside_its_handler() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(fetch(1, min_bytes=2) + heartbeat(2))
        assert answers(transport) == [1, 2]

    run(test)


def test_acks_0_has_no_answer() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(produce(1, b"one") + heartbeat(2) + produce(3, b"three"))
        assert answers(transport) == [2]
        assert broker.asked == ["one", "g", "three"]

    run(test)


def test_a_deferred_completes_once() -> None:
    async def test() -> None:
        broker = Broker()
        broker.connect().feed(fetch(1))
        deferred = broker.parked[0][1]
        deferred.complete(broker.fetched(0))
        with pytest.raises(AssertionError, match="exactly once"):
            deferred.complete(broker.fetched(0))

    run(test)


# -- coroutine handlers -----------------------------------------------------------------------------


def test_requests_behind_a_coroutine_wait_for_it() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        large = b"x" * (3 << 20)
        transport.feed(heartbeat(1) + list_groups(2) + heartbeat(3) + produce(4, large)[:100])
        await settle()
        assert answers(transport) == [1]
        assert broker.asked == ["g", "list ['Stable']"]
        assert not transport.reading
        transport.feed(produce(4, large)[100:] + heartbeat(5))
        broker.gate.set()
        await settle()
        assert answers(transport) == [1, 2, 3, 5]
        assert broker.asked == ["g", "list ['Stable']", "listed", "g", large.decode(), "g"]
        assert transport.reading

    run(test)


def test_a_coroutine_goes_on_when_its_client_has_gone() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(list_groups(1))
        await settle()
        transport.lose()
        broker.gate.set()
        await settle()
        assert broker.asked[-1] == "listed"

    run(test)


def test_stop_cancels_coroutines() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(list_groups(1))
        await settle()
        await broker.dispatcher.stop()
        await settle()
        assert "listed" not in broker.asked
        assert transport.closed

    run(test)


# -- hurry ------------------------------------------------------------------------------------------


def test_a_parked_request_is_hurried_by_the_next_one() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(fetch(1))
        assert broker.hurried == []
        transport.feed(heartbeat(2))
        transport.feed(heartbeat(3))
        assert broker.hurried == [1]  # once

    run(test)


def test_a_request_parked_before_another_of_the_same_wake_up_is_hurried() -> None:
    async def test() -> None:
        broker = Broker()
        broker.connect().feed(fetch(1) + heartbeat(2))
        assert broker.hurried == [1]

    run(test)


def test_the_first_bytes_of_another_request_hurry() -> None:
    async def test() -> None:
        broker = Broker()
        together, later = broker.connect(), broker.connect()
        together.feed(fetch(1) + heartbeat(2)[:3])
        assert broker.hurried == [1]
        later.feed(fetch(3))
        later.feed(heartbeat(4)[:5])
        assert broker.hurried == [1, 3]

    run(test)


def test_a_hurried_request_may_complete_at_once() -> None:
    async def test() -> None:
        broker = Broker()

        def parks(context: RequestContext, request: Any) -> Deferred:
            deferred = context.defer(lambda: deferred.complete(broker.fetched(1)))
            return deferred

        connections = Connections()
        connections.open(Dispatcher({ApiKey.FETCH: parks, ApiKey.HEARTBEAT: broker.heartbeat}))
        transport = MemoryTransport(connections.factory())
        transport.feed(fetch(1) + fetch(2) + heartbeat(3))
        assert answers(transport) == [1, 2, 3]
        assert transport.writes == 1

    run(test)


# -- bad input --------------------------------------------------------------------------------------

UNKNOWN_KEY = struct.pack(">ihhih", 10, 999, 0, 7, -1)
UNSERVED_VERSION = struct.pack(">ihhih", 10, ApiKey.FETCH, 3, 7, -1)
NEGATIVE_VERSION = struct.pack(">ihhih", 10, ApiKey.HEARTBEAT, -1, 7, -1)
NO_BODY = struct.pack(">ihhih", 10, ApiKey.HEARTBEAT, 1, 7, -1)
HALF_A_HEADER = struct.pack(">ihh", 4, ApiKey.HEARTBEAT, 4)
NEGATIVE_SIZE = struct.pack(">i", -1)
OVERSIZED = struct.pack(">i", 100_001)
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
BAD_INPUT = {
    "unknown key": UNKNOWN_KEY,
    "unserved version": UNSERVED_VERSION,
    "negative version": NEGATIVE_VERSION,
    "no body": NO_BODY,
    "half a header": HALF_A_HEADER,
    "empty frame": struct.pack(">i", 0),
    "negative size": NEGATIVE_SIZE,
    "oversized": OVERSIZED,
    "TLS": TLS_HELLO,
}


@pytest.mark.parametrize("name", BAD_INPUT)
@pytest.mark.parametrize("chunk", [None, 1])
def test_bad_input_closes_that_connection_without_an_answer(name: str, chunk: int | None) -> None:
    async def test() -> None:
        broker = Broker(frame_bytes_max=100_000)
        bad, good = broker.connect(), broker.connect()
        bad.feed(heartbeat(1) + BAD_INPUT[name] + heartbeat(2), chunk)
        await settle()
        assert bad.closed
        assert answers(bad) == [1]  # what came before is answered, nothing after
        good.feed(heartbeat(3))
        assert answers(good) == [3]
        assert list(broker.connections.live) == [good.protocol]

    run(test)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async def test() -> None:
        transport = Broker().connect()
        transport.feed(struct.pack(">ihhi", 9, ApiKey.API_VERSIONS, 99, 7) + b"?")
        frame = bytes(transport.received[4:])
        correlation_id, response = response_of(ApiVersionsRequest(), 0, frame)
        assert correlation_id == 7
        assert response.error_code == 35
        assert [(e.api_key, e.min_version, e.max_version) for e in response.api_keys] == [
            (18, 0, 5)
        ]
        assert not transport.closed

    run(test)


def test_a_bug_in_a_handler_closes_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broker = Broker()
        bad, good = broker.connect(), broker.connect()
        bad.feed(heartbeat(1) + heartbeat(2, "bug") + heartbeat(3))
        good.feed(heartbeat(4))
        await settle()
        assert (answers(bad), bad.closed) == ([1], True)
        assert (answers(good), good.closed) == ([4], False)
        assert broker.asked == ["g", "bug", "g"]

    run(test)
    assert "a bug" in caplog.text


def test_an_answer_that_cannot_be_encoded_is_not_the_completers_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(fetch(1))
        broker.parked[0][1].complete(FetchResponse(throttle_time_ms="soon"))  # type: ignore[arg-type]
        await settle()
        assert transport.closed

    run(test)
    assert "cannot be encoded" in caplog.text


def test_a_handler_may_close_the_connection() -> None:
    async def test() -> None:
        transport = Broker().connect()
        transport.feed(heartbeat(1) + heartbeat(2, "close") + heartbeat(3))
        await settle()
        assert (answers(transport), transport.closed) == ([1], True)

    run(test)


# -- the end ----------------------------------------------------------------------------------------


def test_a_lost_connection_cancels_what_is_parked() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(fetch(1) + fetch(2))
        transport.lose(ConnectionResetError())
        assert broker.cancelled == [1, 2]
        for _, deferred in broker.parked:
            deferred.complete(broker.fetched(1))  # too late, and no harm
        assert transport.received == b""
        assert not broker.connections.live

    run(test)


def test_stop_closes_connections_and_abort_drops_slow_ones() -> None:
    async def test() -> None:
        broker = Broker()
        quick, slow = broker.connect(), broker.connect(room=0)
        quick.feed(heartbeat(1))
        slow.feed(heartbeat(2))
        broker.connections.stop()
        await settle()
        assert list(broker.connections.live) == [slow.protocol]
        broker.connections.abort()
        await settle()
        assert not broker.connections.live
        assert (quick.aborted, slow.aborted) == (False, True)

    run(test)


def test_idle_connections_are_closed() -> None:
    class FakeLoop:
        now = 0.0

        def time(self) -> float:
            return self.now

        def call_later(self, delay: float, *args: Any) -> None: ...

    async def test() -> None:
        broker = Broker(idle_ms_max=10_000)
        loop: Any = FakeLoop()
        idle, busy, waiting = broker.connect(), broker.connect(), broker.connect()
        waiting.feed(fetch(1))
        for second in range(12):
            loop.now = float(second)
            busy.feed(heartbeat(second))
            broker.connections._sweep(loop)
            assert idle.closed == (second >= 10)
        assert not busy.closed
        assert not waiting.closed  # it waits for us
        broker.connections.stop()

    run(test)


def test_connections_above_the_limit_are_closed() -> None:
    async def test() -> None:
        broker = Broker(connections_max=2)
        transports = [broker.connect() for _ in range(3)]
        assert [transport.aborted for transport in transports] == [False, False, True]

    run(test)


def test_early_clients_wait_until_the_broker_is_open() -> None:
    async def test() -> None:
        broker = Broker()
        connections = Connections()
        transport = MemoryTransport(connections.factory())
        transport.feed(heartbeat(1))
        await settle()
        assert transport.unread > 0
        connections.open(broker.dispatcher)
        await settle()
        assert answers(transport) == [1]

    run(test)


# -- back-pressure ----------------------------------------------------------------------------------


def test_a_reader_that_does_not_read_bounds_what_is_queued() -> None:
    """1,000 fetches of 1 MiB from one 100 KB wake-up: nobody holds a gigabyte for that."""

    async def test() -> None:
        broker = Broker()
        size = 1 << 20
        transport = broker.connect(room=100_000)
        transport.feed(b"".join(fetch(number, min_bytes=0, size=size) for number in range(1000)))
        await settle()
        queued = connection_module.QUEUED_BYTES_MAX + 2 * size
        assert len(broker.asked) * size <= queued
        assert not transport.reading
        assert transport.waiting_max <= queued
        largest_step = 0
        while len(broker.asked) < 1000 or transport.waiting:
            before = len(broker.asked)
            transport.make_room(3 * size + 12345)
            await settle()
            largest_step = max(largest_step, len(broker.asked) - before)
        transport.make_room(None)
        assert largest_step <= 10
        assert answers(transport) == list(range(1000))
        assert transport.reading

    run(test)


@pytest.mark.parametrize("vectored", [False, True])
def test_large_answers_arrive_whole_through_any_room(
    vectored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "VECTORED_WRITES", vectored)

    async def test() -> None:
        broker = Broker()
        broker.records = bytes(range(256)) * 4
        sizes = [0, 10, 70_000, 300_000, 3, 2_000_000, 64 << 10]
        whole, slow = broker.connect(), broker.connect(room=1000)
        requests = b"".join(fetch(n, min_bytes=0, size=size) for n, size in enumerate(sizes))
        whole.feed(requests)
        slow.feed(requests)
        while slow.waiting:
            slow.make_room(77_777)
            await settle()
        slow.make_room(None)
        assert answers(whole) == list(range(len(sizes)))
        assert whole.received == slow.received

    run(test)


def test_on_python_3_11_a_full_socket_leaves_at_most_a_chunk_in_the_transport(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "VECTORED_WRITES", False)

    async def test() -> None:
        transport = Broker().connect(room=10)
        transport.feed(fetch(1, min_bytes=0, size=3 << 20))
        assert transport.waiting_max <= connection_module.CHUNK_BYTES_MAX

    run(test)


def test_requests_in_flight_are_bounded() -> None:
    async def test() -> None:
        broker = Broker()
        transport = broker.connect()
        transport.feed(b"".join(fetch(number) for number in range(1000)))
        limit = connection_module.IN_FLIGHT_MAX
        assert len(broker.parked) == limit
        assert not transport.reading
        completed = 0
        while completed < 1000:
            assert len(broker.parked) - completed <= limit
            broker.parked[completed][1].complete(broker.fetched(1))
            completed += 1
            await settle()
        assert answers(transport) == list(range(1000))
        assert transport.reading

    run(test)


# -- real sockets -----------------------------------------------------------------------------------


def test_over_a_real_socket() -> None:
    async def test() -> None:
        broker = Broker(frame_bytes_max=100_000)
        accepted: list[Connection] = []

        def factory() -> Connection:
            accepted.append(broker.connections.factory())
            return accepted[-1]

        listener = await SystemNetwork().listen("127.0.0.1", 0, factory)
        address = f"127.0.0.1:{listener.port}"
        async with (
            await WireClient.connect(address) as good,
            await WireClient.connect(address) as bad,
        ):
            bad.send_bytes(TLS_HELLO)
            assert await bad.closed()
            for number in range(50):
                good.send(HeartbeatRequest(generation_id=number), HEARTBEAT_VERSION)
            for number in range(50):
                assert (await good.receive()).throttle_time_ms == number
            response = await good.ask(FetchRequest(min_bytes=0, max_bytes=10 << 20), FETCH_VERSION)
            assert len(response.responses[0].partitions[0].records) == 10 << 20
            # Too many unread answers: the kernel's buffers fill up, then ours, then reading stops.
            for _ in range(200):
                good.send(FetchRequest(min_bytes=0, max_bytes=1 << 20), FETCH_VERSION)
            for _ in range(200):
                response = await good.receive()
                assert len(response.responses[0].partitions[0].records) == 1 << 20
            socket = accepted[0]._transport.get_extra_info("socket")
            assert socket.getsockopt(6, 1) != 0  # IPPROTO_TCP, TCP_NODELAY
            assert accepted[0].client_host == "127.0.0.1"
            assert accepted[0].listener_port == listener.port
        listener.close()
        broker.connections.stop()
        await settle()

    run(test)
