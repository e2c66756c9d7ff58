"""Clients above their quotas: what is charged, throttle times, connections that are not read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import create_topic, in_thread, librdkafka, until
from support.clusters import run as run_cluster
from support.data_path import DataPath, ManualClock, batch, bytes_of, data_of, fetch_request
from support.handler_broker import HandlerBroker, answers, heartbeat, run
from support.handler_calls import RecordingPeer
from support.metadata import broker_config, cluster
from support.share_path import SharePath, acquired
from support.wire_client import WireClient, request_bytes, response_of
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import quota_entity
from tidelog.metrics.meters import Meters, Name
from tidelog.network.connections import Connections
from tidelog.network.dispatch import Dispatcher
from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.security.principal import Principal
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from tidelog_protocol.messages.quotas import AlterClientQuotasRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog_protocol.schema import Message

CLIENT = {"client-id": "test"}
ACCEPT = 1  # a kind of acknowledgement


class Throttled:
    """Quotas over the handlers of a data path, and requests of one client."""

    def __init__(self, path: DataPath | None = None, **handlers: Any) -> None:
        self.clock = ManualClock() if path is None else path.clock
        self.meters = Meters()
        self.quotas = ClientQuotas(broker_config(), self.clock, self.meters)
        table = {ApiKey[name.upper()]: handler for name, handler in handlers.items()}
        self.dispatcher = Dispatcher(table if path is None else path.handlers)
        self.quotas.throttle(self.dispatcher)
        if path is not None:
            self.quotas.limit_fetches(path.fetch_api.limit_by)
        self.image = cluster()
        self.peer = RecordingPeer()

    def set(self, entity: dict[str, str | None] | None = None, **quotas: float) -> None:
        """Let these be the only quotas."""
        key = quota_entity(CLIENT if entity is None else entity)
        new = self.image._replace(client_quotas={key: quotas} if quotas else {})
        delta = MetadataDelta(self.image, new)
        self.image = new
        self.quotas.on_image(delta, new)

    def ask(self, request: Message, version: int) -> Any:
        """The response, None if there is none."""
        frame = memoryview(bytearray(request_bytes(request, version)[4:]))
        answer = self.dispatcher.dispatch(self.peer, frame).answer
        assert answer is not None
        return response_of(request, version, b"".join(answer)[4:])[1] if answer else None

    @property
    def throttles(self) -> list[float]:
        """For how many seconds the connection was not read, in order; forgets them."""
        throttles, self.peer.throttles = self.peer.throttles, []
        return throttles


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo", 1)
    yield path
    path.logs.abandon()


def produce_request(records: memoryview, acks: int = 1) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[data(name="foo", partition_data=[part])]
    )


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_produce_above_the_quota_is_done_and_throttled(path: DataPath, version: int) -> None:
    throttled = Throttled(path)
    throttled.set(producer_byte_rate=10_000)
    value = bytes(100_000)
    size = len(request_bytes(produce_request(batch(1, value)), version)) - 4
    first = throttled.ask(produce_request(batch(1, value)), version)
    expected_ms = round((size / 10 - 10_000) / 10_000 * 10_000)
    assert first.throttle_time_ms == expected_ms
    assert throttled.throttles == [expected_ms / 1000]
    answer = first.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    path.clock.now_ms += 60_000
    small = throttled.ask(produce_request(batch(1)), version)
    assert (small.throttle_time_ms, throttled.throttles) == (0, [])


def test_a_produce_without_response_throttles_the_connection(path: DataPath) -> None:
    throttled = Throttled(path)
    throttled.set(producer_byte_rate=1, request_percentage=0.001)
    assert throttled.ask(produce_request(batch(1), acks=0), 9) is None
    (seconds,) = throttled.throttles
    assert seconds > 10


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_consumer_above_the_quota_gets_nothing_and_asks_again(
    path: DataPath, version: int
) -> None:
    for _ in range(3):
        path.produce("foo", 0, batch(1, bytes(60_000)))
    throttled = Throttled(path)
    throttled.set(consumer_byte_rate=10_000)
    request = fetch_request(("foo", 0, 0))
    first = throttled.ask(request, version)
    assert (first.throttle_time_ms, throttled.throttles) == (0, [])
    size = len(bytes_of(data_of(first)))
    assert 60_000 < size <= 100_000, "no more than the quota allows in ten seconds"
    second = throttled.ask(request, version)
    assert second.responses == []
    assert second.throttle_time_ms == round(2 * size / 10 - 10_000)
    assert throttled.throttles == [second.throttle_time_ms / 1000]
    path.clock.now_ms += 11_000
    third = throttled.ask(request, version)
    assert len(bytes_of(data_of(third))) == size


def test_a_share_consumer_above_the_quota_acquires_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        path = DataPath(tmp_path)
        foo = path.create("foo", 1)
        shares = SharePath(path)
        throttled = Throttled(path)
        throttled.quotas.limit_fetches(shares.api.limit_by)
        for _ in range(4):
            path.produce("foo", 0, batch(1, bytes(60_000)))
        throttled.set(consumer_byte_rate=10_000)
        first = await shares.fetched((foo, 0))
        size = len(first.responses[0].partitions[0].records)
        assert (acquired(first), first.throttle_time_ms) == ([(0, 0, 1)], 0)
        second = await shares.fetched()
        assert acquired(second) == [(1, 1, 1)], "sent: dropped, it would be locked"
        assert second.throttle_time_ms == round(2 * size / 10 - 10_000)
        third = await shares.fetched((foo, 0, (0, 1, [ACCEPT])))
        assert acquired(third) == []
        assert third.throttle_time_ms == second.throttle_time_ms
        state = shares.partitions.lead("g", (foo, 0)).state
        assert state is not None
        assert state.start_offset == 2, "accepted"
        path.clock.now_ms += 11_000
        assert acquired(await shares.fetched()) == [(2, 2, 1)]
        throttled.set(consumer_byte_rate=1)
        path.clock.now_ms += 60_000
        last = await shares.fetched()
        assert acquired(last) == [(3, 3, 1)]
        assert last.throttle_time_ms == 15_000, "its locks end after twice that"
        await shares.partitions.close()
        path.logs.abandon()

    asyncio.run(story())


def test_a_throttled_fetch_leaves_its_session_as_it_was(path: DataPath) -> None:
    path.produce("foo", 0, batch(1, bytes(60_000)))
    throttled = Throttled(path)
    opened = throttled.ask(fetch_request(("foo", 0, 1), session_epoch=0), 12)
    assert opened.session_id
    path.produce("foo", 0, batch(1, bytes(60_000)))
    throttled.set(consumer_byte_rate=1_000)
    names = {"session_id": opened.session_id}
    first = throttled.ask(fetch_request(session_epoch=1, **names), 12)
    assert (first.session_id, first.responses) == (opened.session_id, [])
    assert throttled.throttles == [first.throttle_time_ms / 1000]
    path.clock.now_ms += 120_000
    throttled.set()
    again = throttled.ask(fetch_request(session_epoch=2, **names), 12)
    data = data_of(again)
    assert (data.high_watermark, len(bytes_of(data)) > 60_000) == (2, True)


def test_quotas_of_users_hold_for_those_who_authenticated(path: DataPath) -> None:
    throttled = Throttled(path)
    throttled.set({"user": "alice"}, producer_byte_rate=100, consumer_byte_rate=1_000)
    for user in ("bob", "alice"):
        throttled.peer.principal = Principal("User", user)
        produced = throttled.ask(produce_request(batch(1, bytes(60_000))), 12)
        is_limited = user == "alice"
        assert (produced.throttle_time_ms > 0) is is_limited
        assert bool(throttled.throttles) is is_limited
        fetched = [throttled.ask(fetch_request(("foo", 0, 0)), 12) for _ in range(2)]
        assert (fetched[1].throttle_time_ms > 0) is is_limited


def test_followers_are_exempt(path: DataPath) -> None:
    path.create("bar", replicas=(1, 2))
    path.produce("bar", 0, batch(1, bytes(60_000)), acks=1)
    throttled = Throttled(path)
    throttled.set(consumer_byte_rate=1, request_percentage=0.0001)
    answer = throttled.ask(fetch_request(("bar", 0, 0), replica_id=2), 12)
    assert (answer.throttle_time_ms, throttled.throttles) == (0, [])
    assert len(bytes_of(data_of(answer))) > 60_000


def test_the_time_of_requests_is_charged() -> None:
    def slow(context: Any, request: Any) -> HeartbeatResponse:
        throttled.clock.now_ms += 300
        return HeartbeatResponse()

    throttled = Throttled(heartbeat=slow)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    throttled.set(request_percentage=2)
    assert throttled.ask(request, 4).throttle_time_ms == 1000, "at most a window"
    assert throttled.throttles == [1.0]
    throttled.set(request_percentage=50)
    assert throttled.ask(request, 4).throttle_time_ms == 0
    assert throttled.throttles == []
    assert throttled.ask(request, 0) == HeartbeatResponse()


@pytest.mark.parametrize("version", [0, 1])
def test_an_answer_that_is_encoded_already_gets_its_throttle_time(version: int) -> None:
    """That of most ConsumerGroupHeartbeats."""
    wanted = ConsumerGroupHeartbeatResponse(
        member_id="m", member_epoch=3, heartbeat_interval_ms=5000
    )
    codec = API[ApiKey.CONSUMER_GROUP_HEARTBEAT].response_codec(version)

    def slow(context: Any, request: Any) -> Any:
        throttled.clock.now_ms += 300
        return codec.encode_parts(wanted)

    throttled = Throttled(consumer_group_heartbeat=slow)
    throttled.set(request_percentage=2)
    answer = throttled.ask(ConsumerGroupHeartbeatRequest(member_epoch=3), version)
    wanted.throttle_time_ms = 1000
    assert (answer, throttled.throttles) == (wanted, [1.0])


def test_without_quotas_nothing_is_called() -> None:
    throttled = Throttled(heartbeat=lambda context, request: HeartbeatResponse())
    calls: list[int] = []

    def wrap(api_key: int, handler: Any) -> Any:
        calls.append(api_key)
        return handler

    throttled.quotas.wrap = wrap  # type: ignore[method-assign]
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    throttled.ask(request, 4)
    assert calls == []
    throttled.set({"ip": None}, connection_creation_rate=5)
    throttled.ask(request, 4)
    assert calls == []
    throttled.set(request_percentage=5)
    throttled.ask(request, 4)
    assert calls == [ApiKey.HEARTBEAT]
    throttled.set()
    throttled.ask(request, 4)
    assert calls == [ApiKey.HEARTBEAT]


def test_metrics_have_kafkas_names(path: DataPath) -> None:
    throttled = Throttled(path)
    throttled.set(producer_byte_rate=1_000)
    throttled.ask(produce_request(batch(1, bytes(20_000))), 9)
    labels = (("client-id", "test"), ("user", ""))
    gauges = {str(name): samples for name, samples in throttled.meters.gauges()}
    (rate,) = gauges[str(Name("kafka.server", "Produce", "byte-rate"))]
    (time,) = gauges[str(Name("kafka.server", "Produce", "throttle-time"))]
    assert (rate.labels, time.labels) == (labels, labels)
    assert 2_000 < rate.value < 2_100
    assert time.value == pytest.approx(throttled.throttles[0] * 1000)


# ---- connections ------------------------------------------------------------------------------


def test_a_throttled_connection_is_read_again_when_its_time_is_over() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        peer: Any = transport.protocol
        transport.feed(heartbeat(1))
        peer.throttle(0.05)
        peer.throttle(0.01)  # a shorter time does not end the longer one
        assert not transport.reading
        assert peer.waiting, "it is not idle"
        transport.feed(heartbeat(2))
        assert answers(transport) == [1]
        await until(lambda: answers(transport) == [1, 2])
        peer.throttle(30)
        transport.lose(ConnectionResetError())  # cancels the timer

    run(test)


def test_requests_behind_a_throttled_one_wait_and_its_response_goes_out() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        answer = broker.heartbeat

        def throttling(context: Any, request: Any) -> HeartbeatResponse:
            if request.generation_id == 2:
                context.peer.throttle(0.05)
            return answer(context, request)

        broker.dispatcher.intercept(lambda key, handler: throttling)
        transport = broker.connect()
        transport.feed(b"".join(heartbeat(number) for number in range(1, 5)))
        assert answers(transport) == [1, 2]
        await until(lambda: answers(transport) == [1, 2, 3, 4])

    run(test)


def test_too_many_connections_of_an_address_are_closed_unread() -> None:
    async def test() -> None:
        throttled = Throttled()
        broker = HandlerBroker()
        throttled.quotas.limit_connections(broker.connections.limit_new)
        throttled.set({"ip": None}, connection_creation_rate=0.2)
        connected = [broker.connect() for _ in range(3)]
        for transport in connected:
            transport.feed(heartbeat(1))
        assert [answers(transport) for transport in connected] == [[1], [1], []]
        assert not connected[2].closed
        await until(lambda: connected[2].closed)  # at most a window later
        assert answers(connected[2]) == []
        throttled.set()
        late = broker.connect()
        late.feed(heartbeat(1))
        assert answers(late) == [1]

    run(test)


def test_addresses_of_their_own_quota() -> None:
    quotas = Throttled()
    limits: list[Any] = []
    quotas.quotas.limit_connections(limits.append)
    assert limits == [None]
    quotas.set({"ip": "192.0.2.1"}, connection_creation_rate=0.1)
    delay_s = limits[-1]
    assert [delay_s("192.0.2.1") for _ in range(2)] == [0.0, 1.0]
    assert [delay_s("192.0.2.2") for _ in range(5)] == [0.0] * 5
    quotas.clock.now_ms += 20_000
    assert delay_s("192.0.2.1") == 0.0


def test_connections_are_not_delayed_without_quotas() -> None:
    connections = Connections()
    Throttled().quotas.limit_connections(connections.limit_new)
    assert connections._delay_s is None


# ---- a broker ---------------------------------------------------------------------------------


def set_request(key: str, value: float, entity: dict[str, str | None]) -> AlterClientQuotasRequest:
    entry = AlterClientQuotasRequest.EntryData
    return AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type=k, entity_name=v) for k, v in entity.items()],
                ops=[entry.OpData(key=key, value=value, remove=not value)],
            )
        ]
    )


def test_librdkafka_is_throttled_and_sees_its_throttle_time() -> None:
    async def test() -> None:
        from confluent_kafka import Producer

        async with tidelog.Cluster(brokers=1) as broker:
            bootstrap = broker.bootstrap_servers
            await in_thread(create_topic, bootstrap, "t", 1, 1)
            async with await WireClient.connect(bootstrap) as client:
                request = set_request("producer_byte_rate", 20_000, {"client-id": "slow"})
                answer = await client.ask(request, 1)
            assert answer.entries[0].error_code == 0
            times: list[float] = []
            settings = librdkafka(bootstrap, client_id="slow")
            settings["throttle_cb"] = lambda event: times.append(event.throttle_time)
            producer = Producer(settings)
            for _ in range(3):
                producer.produce("t", bytes(70_000))
            assert await in_thread(producer.flush, 30.0) == 0
            await until(lambda: times or producer.poll(0.01), "a throttle time")
            assert 0 < times[0] < 2

    run_cluster(test)
