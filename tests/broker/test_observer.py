"""Requests in the log and in the meters, and nothing paid while both are off."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import ManualClock
from support.handler_calls import RecordingPeer
from support.wire_client import request_bytes
from tidelog.metrics.meters import Meters, Name, Sample
from tidelog.metrics.prometheus import families
from tidelog.network.dispatch import Dispatcher, RequestContext
from tidelog.network.observer import KEPT_MAX, KEPT_S, REQUESTS, RequestObserver, first_error
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest, FetchResponse, ProduceResponse
from tidelog_protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

ERROR = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
TAKES_MS = 250


def frame(version: int = 4) -> memoryview:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return memoryview(request_bytes(request, version, 77))[4:]


@pytest.fixture
def requests_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, REQUESTS):
        yield caplog


def fields_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name == REQUESTS]


def test_handlers_are_not_wrapped_while_nothing_observes() -> None:
    def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
        return ERROR

    dispatcher = Dispatcher({ApiKey.HEARTBEAT: handler})
    RequestObserver(1, ManualClock(), [dispatcher], None)
    assert dispatcher.dispatch(RecordingPeer(), frame()).began_s is None


def test_a_request_is_one_line_with_its_client_time_and_error(
    requests_log: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()

    def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
        clock.now_ms += TAKES_MS
        return ERROR

    dispatcher = Dispatcher({ApiKey.HEARTBEAT: handler})
    observer = RequestObserver(1, clock, [dispatcher], None)
    dispatcher.dispatch(RecordingPeer(), frame())
    expected = {
        "broker": 1,
        "client_id": "test",
        "client": "192.0.2.1:51234",
        "api": "Heartbeat",
        "version": 4,
        "correlation_id": 77,
        "latency_ms": 250.0,
        "error": "UNKNOWN_MEMBER_ID",
    }
    assert fields_of(requests_log) == [expected]
    line = "broker 1: 192.0.2.1:51234 'test' Heartbeat v4 #77 250.000 ms UNKNOWN_MEMBER_ID"
    assert requests_log.messages == [line]
    logging.getLogger(REQUESTS).setLevel(logging.INFO)
    observer.follow_level()
    dispatcher.dispatch(RecordingPeer(), frame())
    assert len(requests_log.records) == 1


def test_a_parked_request_is_logged_when_it_has_its_response(
    requests_log: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    dispatcher = Dispatcher({ApiKey.HEARTBEAT: lambda context, request: context.defer()})
    before = dispatcher.dispatch(RecordingPeer(), frame())
    RequestObserver(1, clock, [dispatcher], None)
    context = dispatcher.dispatch(RecordingPeer(), frame())
    assert fields_of(requests_log) == []
    clock.now_ms += TAKES_MS
    dispatcher.encode(before, ERROR)  # its begin was not seen
    dispatcher.encode(context, HeartbeatResponse())
    (fields,) = fields_of(requests_log)
    assert (fields["latency_ms"], fields["error"]) == (250.0, "NONE")


def test_a_coroutine_is_logged_at_its_end(requests_log: pytest.LogCaptureFixture) -> None:
    class Encodes(RecordingPeer):
        def complete(self, context: RequestContext, response: Any) -> None:
            dispatcher.encode(context, response)

    async def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
        return ERROR

    dispatcher = Dispatcher({ApiKey.HEARTBEAT: handler})
    RequestObserver(1, ManualClock(), [dispatcher], None)

    async def test() -> None:
        dispatcher.dispatch(Encodes(), frame())
        assert fields_of(requests_log) == []
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(test())
    assert [fields["error"] for fields in fields_of(requests_log)] == ["UNKNOWN_MEMBER_ID"]


def test_requests_are_counted_and_timed_by_kafkas_names() -> None:
    clock, meters = ManualClock(), Meters()

    def handler(context: RequestContext, request: Any) -> HeartbeatResponse:
        clock.now_ms += TAKES_MS
        return ERROR

    dispatcher = Dispatcher({ApiKey.HEARTBEAT: handler})
    RequestObserver(1, clock, [dispatcher], meters)
    for version in (3, 4, 4):
        dispatcher.dispatch(RecordingPeer(), frame(version))
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families(meters)
        for sample in family.samples
    }
    rates, times = ("kafka_network_requestmetrics_" + name for name in ("requests", "totaltimems"))
    own = ("request", "Heartbeat")
    assert found[f"{rates}_total", own, ("version", "3")] == 1
    assert found[f"{rates}_total", own, ("version", "4")] == 2
    assert found[f"{times}_count", own] == 3
    assert found[f"{times}_sum", own] == 750
    assert found[times, ("quantile", "0.99"), own] == 250


def test_errors_are_counted_by_api_and_code() -> None:
    partition = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
    codes = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    topic = ProduceResponse.TopicProduceResponse(
        partition_responses=[partition(index=n, error_code=code) for n, code in enumerate(codes)]
    )
    meters = Meters()
    observer = RequestObserver(1, ManualClock(), [], meters)
    for response in (ProduceResponse(responses=[topic]), [b"encoded"], None):
        context = RequestContext(RecordingPeer(), ApiKey.PRODUCE, 12)
        context.began_s = 0
        observer.answered(context, response)
    found = {name.name: samples for name, samples in meters.counts()}
    labels = (("error", "NOT_LEADER_OR_FOLLOWER"), ("request", "Produce"))
    assert found["ErrorsPerSec"] == [Sample(labels, 2)]
    assert [sample.value for sample in found["RequestsPerSec"]] == [3]


def test_fetches_of_followers_and_consumers_are_counted_apart_and_together() -> None:
    clock, meters = ManualClock(), Meters()
    dispatcher = Dispatcher({ApiKey.FETCH: lambda context, request: FetchResponse()})
    RequestObserver(1, clock, [dispatcher], meters)
    follower = FetchRequest.ReplicaState(replica_id=2, replica_epoch=1)
    for request, version in (
        (FetchRequest(replica_id=2), 12),
        (FetchRequest(replica_id=-1), 12),
        (FetchRequest(replica_state=follower), 17),
        (FetchRequest(), 17),
        (FetchRequest(), 17),
    ):
        dispatcher.dispatch(RecordingPeer(), memoryview(request_bytes(request, version, 1))[4:])
    rates = dict(meters.counts())[Name("kafka.network", "RequestMetrics", "RequestsPerSec")]
    told = {tuple(dict(labels).values()): value for labels, value in rates}
    assert told == {
        ("Fetch", "12"): 2,
        ("Fetch", "17"): 3,
        ("FetchConsumer", "12"): 1,
        ("FetchConsumer", "17"): 2,
        ("FetchFollower", "12"): 1,
        ("FetchFollower", "17"): 1,
    }
    ((_, times),) = meters.timers()
    counts = {dict(labels)["request"]: timer.count for labels, timer in times}
    assert counts == {"Fetch": 5, "FetchConsumer": 3, "FetchFollower": 2}


def test_the_first_error_of_a_response_may_be_deep_inside() -> None:
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse
    good = topic(name="a", partition_responses=[partition(index=0)])
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    bad = topic(name="b", partition_responses=[partition(index=0, error_code=code)])
    assert first_error(ProduceResponse(responses=[good])) == 0
    assert first_error(ProduceResponse(responses=[good, bad])) == code
    assert first_error(None) == first_error([b"encoded"]) == 0


def test_the_last_requests_are_kept_while_they_are_asked_for() -> None:
    clock = ManualClock()
    dispatcher = Dispatcher({ApiKey.HEARTBEAT: lambda context, request: ERROR})
    observer = RequestObserver(1, clock, [dispatcher], None)
    dispatcher.dispatch(RecordingPeer(), frame())
    assert observer.kept() == []
    for _ in range(KEPT_MAX + 5):
        dispatcher.dispatch(RecordingPeer(), frame())
    kept = observer.kept()
    assert len(kept) == KEPT_MAX
    assert (kept[-1].client_id, kept[-1].error) == ("test", ErrorCode.UNKNOWN_MEMBER_ID)
    clock.now_ms += 1000 * KEPT_S + 1
    dispatcher.dispatch(RecordingPeer(), frame())
    assert dispatcher.dispatch(RecordingPeer(), frame()).began_s is None, "it has ended by itself"
    assert observer.kept() == []
