"""Connections: order of answers, coroutines, hurry, and input that is no request."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from support.handler_broker import (
    HandlerBroker,
    answers,
    fetch,
    heartbeat,
    list_groups,
    produce,
    run,
    settle,
)
from support.memory_transport import MemoryTransport
from support.wire_client import response_of
from tidelog.network.connections import FULL_TURNS, Connections
from tidelog.network.dispatch import Deferred, Dispatcher, RequestContext
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.encoders import TURN_ELEMENTS
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_protocol.messages.data import FetchResponse

# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 7, 50])
def test_delivery_in_any_pieces_gives_the_same_answers(chunk: int | None) -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(b"".join(heartbeat(number) for number in range(1, 9)), chunk)
        assert answers(transport) == list(range(1, 9))
        assert broker.asked == ["g"] * 8

    run(test)


def test_pipelined_requests_of_a_wake_up_are_answered_in_one_write() -> None:
    async def test() -> None:
        transport = HandlerBroker().connect()
        transport.feed(b"".join(heartbeat(number) for number in range(100)))
        assert answers(transport) == list(range(100))
        assert transport.writes == 1

    run(test)


def test_many_requests_of_one_connection_leave_turns_to_others() -> None:
    """33,000 requests in 1 MiB held the loop for half a second."""

    async def test() -> None:
        broker = HandlerBroker(turn_s_max=0.0)  # one request is always handled
        many, other = broker.connect(), broker.connect()
        many.feed(b"".join(heartbeat(number) for number in range(4)) + list_groups(4))
        assert answers(many) == [0]
        assert not many.reading
        many.feed(heartbeat(5))
        other.feed(heartbeat(6, "other"))
        await settle()
        assert broker.asked == [*"g", "other", *"ggg", "list ['Stable']"]
        broker.gate.set()
        await settle()
        assert answers(many) == [0, 1, 2, 3, 4, 5]
        assert many.reading

    run(test)


def test_many_connections_share_the_time_of_a_turn() -> None:
    """40 connections with hundreds of requests each took 40 turns between two of the others."""

    async def test() -> None:
        broker = HandlerBroker(turn_s_max=0.0)
        many = [broker.connect() for _ in range(3)]
        for each in many:
            each.feed(b"".join(heartbeat(number) for number in range(3)))
        assert broker.connections.scheduled == 3
        many[0].protocol.abort()
        await settle()
        assert broker.connections.scheduled == 0
        assert [answers(each) for each in many[1:]] == [[0, 1, 2]] * 2

    run(test)
    connections = Connections(turn_s_max=0.5)
    for scheduled, turn_s in ((0, 0.5), (1, 0.5), (FULL_TURNS, 0.5), (4 * FULL_TURNS, 0.125)):
        connections.scheduled = scheduled
        assert connections.turn_s == turn_s


def test_a_connection_that_closes_drops_what_it_holds() -> None:
    async def test() -> None:
        broker = HandlerBroker(turn_s_max=0.0)
        transport = broker.connect()
        transport.feed(heartbeat(1) + heartbeat(2, "close") + heartbeat(3))
        await settle()
        assert broker.asked == ["g", "close"]
        assert transport.closed

    run(test)


def test_answers_wait_for_a_parked_request_before_them() -> None:
    async def test() -> None:
        broker = HandlerBroker()
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
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(fetch(1))
        broker.parked[0][1].complete(broker.fetched(1))
        assert answers(transport) == [1]  # without another turn of the loop

    run(test)


def test_a_long_answer_of_a_parked_request_is_encoded_in_turns() -> None:
    """As that of a group's leader, who learns of thousands of members."""

    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(fetch(1) + heartbeat(2))
        context, deferred = broker.parked[0]
        context.took_turns = True
        answer = broker.fetched(1)
        answer.responses *= 3 * TURN_ELEMENTS
        deferred.complete(answer)
        assert answers(transport) == []
        turns = 0
        while not answers(transport):
            turns += 1
            await asyncio.sleep(0)
        assert turns > 3
        assert answers(transport) == [1, 2]

    run(test)


def test_deferred_completed_inside_its_handler() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(fetch(1, min_bytes=2) + heartbeat(2))
        assert answers(transport) == [1, 2]

    run(test)


def test_acks_0_has_no_answer() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(produce(1, b"one") + heartbeat(2) + produce(3, b"three"))
        assert answers(transport) == [2]
        assert broker.asked == ["one", "g", "three"]

    run(test)


def test_a_deferred_completes_once() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        broker.connect().feed(fetch(1))
        deferred = broker.parked[0][1]
        deferred.complete(broker.fetched(0))
        with pytest.raises(AssertionError, match="exactly once"):
            deferred.complete(broker.fetched(0))

    run(test)


# -- coroutine handlers ----------------------------------------------------------------------------


def test_requests_behind_a_coroutine_wait_for_it() -> None:
    async def test() -> None:
        broker = HandlerBroker()
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


def test_a_coroutine_continues_after_its_client_disconnects() -> None:
    async def test() -> None:
        broker = HandlerBroker()
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
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(list_groups(1))
        await settle()
        await broker.dispatcher.stop()
        await settle()
        assert "listed" not in broker.asked
        assert transport.closed

    run(test)


# -- hurry -----------------------------------------------------------------------------------------


def test_a_parked_request_is_hurried_by_the_next_one() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(fetch(1))
        assert broker.hurried == []
        transport.feed(heartbeat(2))
        transport.feed(heartbeat(3))
        assert broker.hurried == [1]  # once

    run(test)


def test_a_request_parked_before_another_of_the_same_wake_up_is_hurried() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        broker.connect().feed(fetch(1) + heartbeat(2))
        assert broker.hurried == [1]

    run(test)


def test_the_first_bytes_of_another_request_hurry() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        together, later = broker.connect(), broker.connect()
        together.feed(fetch(1) + heartbeat(2)[:3])
        assert broker.hurried == [1]
        later.feed(fetch(3))
        later.feed(heartbeat(4)[:5])
        assert broker.hurried == [1, 3]

    run(test)


def test_a_hurried_request_may_complete_at_once() -> None:
    async def test() -> None:
        broker = HandlerBroker()

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


# -- bad input -------------------------------------------------------------------------------------

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
        broker = HandlerBroker(frame_bytes_max=100_000)
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
        transport = HandlerBroker().connect()
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
        broker = HandlerBroker()
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
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(fetch(1))
        broker.parked[0][1].complete(FetchResponse(throttle_time_ms="soon"))  # type: ignore[arg-type]
        await settle()
        assert transport.closed

    run(test)
    assert "cannot encode" in caplog.text


def test_a_handler_may_close_the_connection() -> None:
    async def test() -> None:
        transport = HandlerBroker().connect()
        transport.feed(heartbeat(1) + heartbeat(2, "close") + heartbeat(3))
        await settle()
        assert (answers(transport), transport.closed) == ([1], True)

    run(test)
