"""The dispatcher and its contract with handlers, without connections."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from support.handler_calls import RecordingPeer, make_context
from support.wire_client import request_bytes, response_of
from tidelog.awaiting import answer_of
from tidelog.network.dispatch import Deferred, Dispatcher, RequestContext
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.encoders import TURN_ELEMENTS
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from tidelog_protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def frame(version: int = 4) -> memoryview:
    return memoryview(request_bytes(REQUEST, version, 77))[4:]


def answered(version: int = 4) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=version)


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_decoded_and_answered_in_itself(version: int) -> None:
    seen: list[Any] = []

    def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
        seen.append((context.api_key, context.api_version, context.client_id, request.group_id))
        return answered(5)

    context = Dispatcher({ApiKey.HEARTBEAT: handler}).dispatch(RecordingPeer(), frame(version))
    assert seen == [(ApiKey.HEARTBEAT, version, "test", "g")]
    assert context.answer is not None
    correlation_id, response = response_of(REQUEST, version, b"".join(context.answer)[4:])
    assert correlation_id == 77
    assert response.throttle_time_ms == (5 if version >= 1 else 0)


def test_truncated_requests_raise_protocol_errors_alone() -> None:
    dispatcher = Dispatcher({ApiKey.HEARTBEAT: lambda context, request: answered()})
    whole = frame()
    for length in range(len(whole) - 1):
        with pytest.raises(ProtocolError):
            dispatcher.dispatch(RecordingPeer(), whole[:length])
    # Bytes left over are nobody's business.
    assert dispatcher.dispatch(RecordingPeer(), memoryview(bytes(whole) + b"more")).answer


def test_an_api_without_a_handler_is_not_served() -> None:
    with pytest.raises(ProtocolError, match="not served"):
        Dispatcher({}).dispatch(RecordingPeer(), frame())


def test_errors_of_handlers_are_theirs() -> None:
    def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Dispatcher({ApiKey.HEARTBEAT: handler}).dispatch(RecordingPeer(), frame())


def test_an_encoded_body_answers_a_request_that_was_parked_when_handlers_changed() -> None:
    """A parked Fetch lost its connection: its body was encoded as if it were a message."""
    parked: list[RequestContext] = []

    def handler(context: RequestContext, request: Any) -> Any:
        parked.append(context)
        return context.defer()

    dispatcher = Dispatcher({ApiKey.HEARTBEAT: handler})
    dispatcher.dispatch(RecordingPeer(), frame(4))
    dispatcher.intercept(lambda key, handler: handler)
    body = API[ApiKey.HEARTBEAT].response_codec(4).encode_parts(answered(7))
    _, response = response_of(REQUEST, 4, b"".join(dispatcher.encode(parked[0], body))[4:])
    assert response.throttle_time_ms == 7


def test_coroutines_are_named_owned_tasks() -> None:
    async def test() -> None:
        names = []

        async def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
            task = asyncio.current_task()
            assert task is not None
            names.append(task.get_name())
            return answered()

        peer = RecordingPeer()
        context = Dispatcher({ApiKey.HEARTBEAT: handler}).dispatch(peer, frame())
        assert context.answer is None
        assert context.deferred is None
        await asyncio.sleep(0)
        assert peer.responses == [answered()]
        assert names == ["Heartbeat of 192.0.2.1:51234 #77"]

    asyncio.run(test())


def test_a_plain_handler_may_return_a_coroutine() -> None:
    async def later() -> HeartbeatResponse:
        return answered()

    async def test() -> None:
        peer = RecordingPeer()
        dispatcher = Dispatcher({ApiKey.HEARTBEAT: lambda context, request: later()})
        dispatcher.dispatch(peer, frame())
        await asyncio.sleep(0)
        assert peer.responses == [answered()]

    asyncio.run(test())


def test_a_coroutine_that_fails_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
        raise LookupError("gone wrong")

    async def test() -> None:
        peer = RecordingPeer()
        Dispatcher({ApiKey.HEARTBEAT: handler}).dispatch(peer, frame())
        await asyncio.sleep(0)
        assert peer.closed
        assert peer.responses == []

    asyncio.run(test())
    assert "gone wrong" in caplog.text


def test_a_stop_before_a_coroutine_has_begun_closes_it() -> None:
    """It was left to the garbage collector, which warns of it."""

    async def later() -> HeartbeatResponse:
        return answered()

    async def test() -> None:
        coroutine = later()
        dispatcher = Dispatcher({ApiKey.HEARTBEAT: lambda context, request: coroutine})
        dispatcher.dispatch(RecordingPeer(), frame())
        await dispatcher.stop()
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED

    asyncio.run(test())


WIDE = DescribeConfigsRequest(resources=[])


def wide_response(count: int, error_message: str = "") -> DescribeConfigsResponse:
    each = DescribeConfigsResponse.DescribeConfigsResult
    return DescribeConfigsResponse(
        results=[each(error_message=error_message, resource_name=str(n)) for n in range(count)]
    )


def encoded(response: DescribeConfigsResponse) -> tuple[int, DescribeConfigsResponse]:
    """How many turns of the loop a coroutine's response takes, and what its client reads."""

    async def handler(context: RequestContext, request: Any) -> DescribeConfigsResponse:
        return response

    async def test() -> tuple[int, Any]:
        dispatcher, peer = Dispatcher({ApiKey.DESCRIBE_CONFIGS: handler}), RecordingPeer()
        context = dispatcher.dispatch(peer, memoryview(request_bytes(WIDE, 4, 77))[4:])
        turns = 0
        while not peer.responses:
            turns += 1
            await asyncio.sleep(0)
        return turns, dispatcher.encode(context, peer.responses[0])

    turns, frame = asyncio.run(test())
    return turns, response_of(WIDE, 4, b"".join(frame)[4:])[1]


def test_a_wide_response_leaves_turns_to_others() -> None:
    turns, read = encoded(wide_response(10_000))
    assert turns > 10_000 // TURN_ELEMENTS
    assert read == wide_response(10_000)


def test_a_response_that_does_not_fit_is_cut() -> None:
    _, read = encoded(wide_response(1, "x" * 100_000))
    assert len(read.results[0].error_message or "") < 100_000


def test_work_that_never_waits_is_answered_at_once() -> None:
    """Most heartbeats are such work: they pay for no deferred answer."""

    async def work() -> int:
        return 7

    def handler(context: RequestContext, _request: Any) -> Any:
        return context.answer_with(work(), answered)

    peer = RecordingPeer()
    context = Dispatcher({ApiKey.HEARTBEAT: handler}).dispatch(peer, frame())
    assert context.deferred is None
    assert context.answer is not None
    assert response_of(REQUEST, 4, b"".join(context.answer)[4:])[1].throttle_time_ms == 7


def test_work_that_waits_is_answered_later() -> None:
    waiting: list[Any] = []

    async def work() -> int:
        first: int = await answer_of(waiting.append)
        return first + await answer_of(lambda on_done: on_done(1))

    peer = RecordingPeer()
    context = make_context(ApiKey.HEARTBEAT, 4, peer=peer)
    deferred = context.answer_with(work(), answered)
    assert isinstance(deferred, Deferred)
    assert context.deferred is deferred
    assert not deferred.done
    waiting.pop()(6)
    assert deferred.done
    assert peer.responses == [answered(7)]


def test_deferred_hurries_once_and_never_after_its_end() -> None:
    events: list[str] = []
    deferred = make_context(1, 12).defer(
        lambda: events.append("hurry"), lambda: events.append("cancel")
    )
    deferred.hurry()
    deferred.hurry()
    deferred.cancel()
    deferred.cancel()
    deferred.hurry()
    deferred.complete(object())
    assert events == ["hurry", "cancel"]
    assert (deferred.done, deferred.cancelled) == (False, True)


def test_a_completed_deferred_is_not_cancelled() -> None:
    events: list[str] = []
    context = make_context(1, 12)
    deferred = context.defer(None, lambda: events.append("cancel"))
    deferred.complete("response")
    deferred.cancel()
    deferred.fail()
    assert context.peer.responses == ["response"]
    assert not context.peer.closed
    assert events == []


def test_a_failed_deferred_closes_the_connection() -> None:
    context = make_context(1, 12)
    context.defer().fail()
    assert context.peer.closed


def test_context_has_the_clients_identity() -> None:
    context = make_context(3, 12, client_id="me")
    assert context.client_id == "me"
    assert (context.client_host, context.client_port) == ("192.0.2.1", 51234)
    assert context.listener == "PLAINTEXT"
    assert context.software == ("unknown", "unknown")
    assert API[context.api_key].name == "Metadata"
