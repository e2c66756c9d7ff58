"""`common.client.*`, `producer.*` and `consumer.*` of the remote metadata, and what they change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from support.data_path import DataPath, ManualClock, batch
from support.metadata import cluster, topic
from support.remote_metadata import COUNT, P0, Broker
from support.remote_topic import MemoryTopic
from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC, BrokerImage
from tidelog.network.peers import PeerError
from tidelog.simulation.loop import simulate
from tidelog.tiered.metadata.client import MetadataTopicClient, TopicError
from tidelog.tiered.metadata.consumer import MetadataConsumer
from tidelog.tiered.metadata.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    pause_s,
)
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidelog.network.peers import PeerChannel
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.simulation.loop import SimLoop

NAME = REMOTE_LOG_METADATA_TOPIC
OF_BROKER_MS = 30_000  # its request.timeout.ms
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
PRODUCER = {"delivery.timeout.ms": "70000", "request.timeout.ms": "40000", "retry.backoff.ms": "7"}
CONSUMER = {
    "fetch.max.wait.ms": "11",
    "fetch.min.bytes": "12",
    "fetch.max.bytes": "13",
    "max.partition.fetch.bytes": "14",
    "request.timeout.ms": "15",
    "retry.backoff.ms": "16",
}


def key(client: str, name: str) -> str:
    return f"remote.log.metadata.{client}.{name}"


def prefixed(client: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {key(client, name): text for name, text in settings.items()}


def settings_of(config: Mapping[str, str]) -> ClientSettings:
    return ClientSettings.of(config, request_timeout_ms=OF_BROKER_MS)


# -- what they say ---------------------------------------------------------------------------------


def test_nothing_that_is_set_means_what_the_broker_waits_and_what_a_chunk_is() -> None:
    assert settings_of({}) == ClientSettings(
        ProducerSettings(
            request_timeout_ms=OF_BROKER_MS, delivery_timeout_ms=OF_BROKER_MS, retry_backoff_ms=100
        ),
        ConsumerSettings(
            request_timeout_ms=OF_BROKER_MS,
            fetch_max_wait_ms=500,
            fetch_min_bytes=1,
            fetch_max_bytes=1 << 20,
            max_partition_fetch_bytes=1 << 16,
            retry_backoff_ms=100,
        ),
    )


@pytest.mark.parametrize(("client", "given"), [("producer", PRODUCER), ("consumer", CONSUMER)])
def test_common_client_settings_count_and_a_clients_own_win(
    client: str, given: dict[str, str]
) -> None:
    for others in ({}, prefixed("admin", given)):
        own = settings_of(prefixed(client, given) | others)
        common = settings_of(prefixed("common.client", given))
        for read in (own, common):
            values = getattr(read, client)._asdict()
            assert {name.replace("_", "."): str(value) for name, value in values.items()} == given
        for name, text in given.items():
            both = {key(client, name): text, key("common.client", name): "1"}
            field = name.replace(".", "_")
            assert getattr(getattr(settings_of(both), client), field) == int(text)


def test_common_settings_reach_both_clients() -> None:
    read = settings_of({key("common.client", "request.timeout.ms"): "5"})
    assert (read.producer.request_timeout_ms, read.consumer.request_timeout_ms) == (5, 5)
    read = settings_of({key("producer", "retry.backoff.ms"): "5"})
    assert (read.producer.retry_backoff_ms, read.consumer.retry_backoff_ms) == (5, 100)


def test_a_publication_is_tried_for_one_request_at_least() -> None:
    """As Kafka's producer has it: a default grows, what somebody has set is refused."""
    request = {key("producer", "request.timeout.ms"): "60000"}
    assert settings_of(request).producer.delivery_timeout_ms == 60_000
    for client in ("common.client", "producer"):
        name = key(client, "delivery.timeout.ms")
        with pytest.raises(ValueError, match=rf"^{name}: 59999 is below request.timeout.ms, 60000"):
            settings_of({**request, name: "59999"})


@pytest.mark.parametrize("client", ["common.client", "consumer"])
@pytest.mark.parametrize("name", CONSUMER)
def test_what_cannot_be_names_its_key(client: str, name: str) -> None:
    wrong, high = key(client, name), INT64_MAX if name == "retry.backoff.ms" else INT32_MAX
    for text, reason in (
        ("soon", "'soon' is not a number"),
        ("-1", "-1 is below 0"),
        (str(high + 1), f"{high + 1} is above {high}"),
    ):
        with pytest.raises(ValueError, match=f"^{wrong}: {reason}$"):
            settings_of({wrong: text})
    for text in ("0", str(high)):
        one = {wrong: text, key("producer", "request.timeout.ms"): "0"}
        assert getattr(settings_of(one).consumer, name.replace(".", "_")) == int(text)
    consumer_settings = settings_of({key("consumer", "retry.backoff.ms"): "0"}).consumer
    assert pause_s(consumer_settings.retry_backoff_ms) > 0


@pytest.mark.parametrize("client", ["common.client", "producer", "consumer", "admin"])
def test_another_protocol_than_listeners_have_is_refused(client: str) -> None:
    """Who asks for it would not have his metadata go in the clear."""
    name = key(client, "security.protocol")
    with pytest.raises(
        ValueError, match=f"^{name}: it is SASL_SSL, and the listener has PLAINTEXT$"
    ):
        settings_of({name: "SASL_SSL"})
    assert settings_of({name: "plaintext"}) == settings_of({})
    secured = ClientSettings.of({name: "ssl"}, request_timeout_ms=30_000, protocol="SSL")
    assert secured == settings_of({})


def test_which_settings_mean_anything() -> None:
    for client, given in (("producer", PRODUCER), ("consumer", CONSUMER)):
        for name in given:
            assert ClientSettings.knows(key(client, name))
            assert ClientSettings.knows(key("common.client", name))
    for client, name in (
        ("producer", "fetch.max.bytes"),
        ("consumer", "delivery.timeout.ms"),
        ("admin", "request.timeout.ms"),
        ("producer", "acks"),
        ("common.client", "bootstrap.servers"),
        ("consumer", "client.id"),
    ):
        assert not ClientSettings.knows(key(client, name))


# -- what they change ------------------------------------------------------------------------------


class NoReplicas:
    """Of a broker that leads nothing."""

    node_id = 1

    clock = ManualClock()

    def partition(self, _topic: str, _index: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Asked(NamedTuple):
    """A request that went out, how long its answer was waited for, and when."""

    request: Any
    timeout_s: float
    at: float


def far_client(config: Mapping[str, str], asked: list[Asked]) -> MetadataTopicClient:
    """A client whose leader is another broker, and away."""

    class Channel:
        host, port = "brokers", 1

        async def ask(self, request: Any, *, timeout_s: float) -> Any:
            asked.append(Asked(request, timeout_s, asyncio.get_running_loop().time()))
            raise PeerError("away")

    leader = BrokerImage(2, "brokers", 1)
    image = cluster(topic(NAME, 1, replicas=(2,)), brokers=[leader])
    return MetadataTopicClient(
        NAME,
        replicas=cast("ReplicaManager", NoReplicas()),
        image=lambda: image,
        new_channel=lambda _host, _port: cast("PeerChannel", Channel()),
        settings=settings_of(config),
    )


def test_publications_follow_the_producers_settings() -> None:
    """Until the next attempt would begin when the time is over."""
    given = {"delivery.timeout.ms": "1000", "request.timeout.ms": "900", "retry.backoff.ms": "300"}
    asked: list[Asked] = []

    async def main(_: SimLoop) -> None:
        with pytest.raises(TopicError, match="away"):
            await far_client(prefixed("producer", given), asked).publish(0, b"event")

    simulate(1, main)
    assert [round(one.at - asked[0].at, 6) for one in asked] == [0, 0.3, 0.6, 0.9]
    for one in asked:
        assert one.request.API_KEY == ApiKey.PRODUCE
        assert (one.request.acks, one.request.timeout_ms, one.timeout_s) == (-1, 900, 0.9)


def test_reads_follow_the_consumers_settings() -> None:
    asked: list[Asked] = []

    async def main(_: SimLoop) -> None:
        client = far_client(prefixed("consumer", CONSUMER), asked)
        for look_up in (client.end_offset, client.start_offset):
            with pytest.raises(TopicError, match="away"):
                await look_up(0)
        with pytest.raises(PeerError, match="away"):
            await client.fetch(2, {0: 5})

    simulate(1, main)
    keys = [one.request.API_KEY for one in asked]
    assert keys == [ApiKey.LIST_OFFSETS, ApiKey.LIST_OFFSETS, ApiKey.FETCH]
    assert {one.timeout_s for one in asked} == {0.015}
    fetch = asked[-1].request
    assert (fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) == (11, 12, 13)
    assert fetch.topics[0].partitions[0].partition_max_bytes == 14


def test_a_fetch_that_failed_is_made_again_after_the_consumers_pause() -> None:
    asked: list[Asked] = []

    async def main(_: SimLoop) -> None:
        client = far_client({key("consumer", "retry.backoff.ms"): "250"}, asked)
        consumer = MetadataConsumer(client, lambda *_: None, lambda *_: None)
        consumer.assign(0, 0)
        consumer.start()
        await asyncio.sleep(0.8)
        await consumer.stop()

    simulate(1, main)
    assert [round(one.at - asked[0].at, 6) for one in asked] == [0, 0.25, 0.5, 0.75]


def test_a_look_up_that_failed_is_made_again_after_the_same_pause() -> None:
    times: list[float] = []

    async def main(loop: SimLoop) -> None:
        async def away(_index: int) -> int:
            times.append(loop.time())
            raise TopicError(ErrorCode.LEADER_NOT_AVAILABLE, "away")

        broker = Broker(MemoryTopic(COUNT))
        broker.client.settings = settings_of({key("consumer", "retry.backoff.ms"): "250"})
        broker.client.end_offset = away
        broker.metadata.on_leadership_changes({P0}, set())
        await asyncio.sleep(0.8)
        await broker.stop(saves=False)

    simulate(1, main)
    assert [round(at - times[0], 6) for at in times] == [0, 0.25, 0.5, 0.75]


def near_client(path: DataPath, config: Mapping[str, str]) -> MetadataTopicClient:
    return MetadataTopicClient(
        NAME,
        replicas=path.replicas,
        image=lambda: path.image,
        new_channel=None,
        settings=settings_of(config),
    )


def test_where_the_leader_is_here_its_replicas_are_waited_for_as_long(tmp_path: Path) -> None:
    path = DataPath(tmp_path)
    path.create(NAME, replicas=(1, 2), isr=(1, 2))
    given = {"delivery.timeout.ms": "700", "request.timeout.ms": "700", "retry.backoff.ms": "700"}

    async def main(loop: SimLoop) -> None:
        client = near_client(path, prefixed("producer", given))
        publication = loop.create_task(client.publish(0, b"event"))
        await asyncio.sleep(0.1)
        path.timers.advance_ms(699)
        await asyncio.sleep(0.1)
        assert not publication.done()
        path.timers.advance_ms(1)
        with pytest.raises(TopicError, match="REQUEST_TIMED_OUT"):
            await publication

    simulate(1, main)


@pytest.mark.parametrize(("most", "read"), [("0", 1), ("65536", 3)])
def test_no_more_is_read_here_at_a_time_than_from_another_broker(
    tmp_path: Path, most: str, read: int
) -> None:
    path = DataPath(tmp_path)
    path.create(NAME)
    for _ in range(3):
        path.produce(NAME, 0, batch(1))
    chunk = near_client(path, {key("consumer", "max.partition.fetch.bytes"): most}).read_here(0, 0)
    assert chunk is not None
    assert chunk.next_offset == read
