"""Request faults as clients see them: aiokafka in process, librdkafka through the pipe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
)
from confluent_kafka import Consumer, Producer

import tidelog
from support.wire_client import WireClient
from tidelog.control.errors import ControlError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.data import FetchRequest, ProduceRequest
from tidelog_protocol.messages.groups import HeartbeatRequest
from tidelog_protocol.messages.quorum import DescribeQuorumRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Test = Callable[[tidelog.Cluster, Any], Awaitable[None]]


def with_producer(test: Test, *, brokers: int = 1, **options: Any) -> None:
    """Run a test with a producer, on topic "t" of two partitions."""

    async def run() -> None:
        async with tidelog.Cluster(brokers=brokers) as cluster:
            await cluster.create_topic("t", partitions=2)
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10, **options
            ) as producer:
                await test(cluster, producer)

    asyncio.run(run())


async def records_of(cluster: tidelog.Cluster, count: int, partition: int = 0) -> list[bytes]:
    """The values of the first records of a partition, checked for their CRC."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", check_crcs=True
    )
    consumer.assign([TopicPartition("t", partition)])
    values = []
    async with consumer, asyncio.timeout(20):
        while len(values) < count:
            values.append((await consumer.getone()).value)
    return values


def test_an_error_comes_so_often_as_the_trigger_says_and_the_client_retries() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        fault = await cluster.faults.on("Produce", topic="t").times(2).error("NOT_ENOUGH_REPLICAS")
        await producer.send_and_wait("t", b"a", partition=0)
        rule = await fault.wait(2)
        assert (rule.hits, rule.calls) == (2, 3)
        assert await records_of(cluster, 1) == [b"a"]

    with_producer(test)


def test_an_error_that_is_not_retriable_reaches_the_caller_and_nothing_is_written() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        faults = cluster.faults
        chosen = faults.on("Produce", topic="t", partition=1)
        fault = await chosen.every_time().error("INVALID_RECORD")
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"refused", partition=1)
        await producer.send_and_wait("t", b"other", partition=0)
        await fault.remove()
        await producer.send_and_wait("t", b"b", partition=1)
        assert await records_of(cluster, 1, partition=1) == [b"b"]
        assert await faults.list() == ()

    with_producer(test)


def test_a_lost_answer_is_written_twice_without_idempotence_and_once_with_it() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        fault = await cluster.faults.on("Produce").once().drop_connection(after_work=True)
        await producer.send_and_wait("t", b"a", partition=0)
        await producer.send_and_wait("t", b"b", partition=0)
        await fault.wait()
        found = await records_of(cluster, 3 if twice else 2)
        assert found == ([b"a", b"a", b"b"] if twice else [b"a", b"b"])

    for twice in (True, False):
        with_producer(test, enable_idempotence=not twice, acks="all")


def test_a_connection_that_drops_before_the_work_loses_nothing() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        fault = await cluster.faults.on("Produce").once().drop_connection()
        await producer.send_and_wait("t", b"a", partition=0)
        assert await fault.hits() == 1
        assert await records_of(cluster, 1) == [b"a"]

    with_producer(test)


def test_delays_before_and_after_the_work_add_up() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        delay = await cluster.faults.on("Produce").once().delay(0.05)
        later = await cluster.faults.on("Produce").once().delay_answer(0.05)
        started = asyncio.get_running_loop().time()
        await producer.send_and_wait("t", b"slow", partition=0)
        assert asyncio.get_running_loop().time() - started >= 0.1
        assert (await delay.hits(), await later.hits()) == (1, 1)

    with_producer(test)


def test_a_swallowed_answer_ends_in_the_clients_timeout() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        await cluster.faults.on("Produce", partition=1).once().swallow_answer()
        with pytest.raises((KafkaTimeoutError, RequestTimedOutError)):
            await asyncio.wait_for(producer.send_and_wait("t", b"lost", partition=1), 20)
        assert await records_of(cluster, 1, partition=1) == [b"lost"]

    with_producer(test, request_timeout_ms=500)


def test_corrupt_records_are_refused_by_the_broker_and_by_the_consumer() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        sent = await cluster.faults.on("Produce").once().corrupt_records()
        with pytest.raises(CorruptRecordException):
            await producer.send_and_wait("t", b"a", partition=0)
        await producer.send_and_wait("t", b"a", partition=0)
        await sent.wait()
        await cluster.faults.on("Fetch", topic="t").every_time().corrupt_records()
        with pytest.raises(CorruptRecordException):
            await records_of(cluster, 1)
        await cluster.faults.clear()
        assert await records_of(cluster, 1) == [b"a"]

    with_producer(test)


def test_the_wire_shows_errors_throttling_and_records_cut_short() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        await producer.send_and_wait("t", b"a" * 100, partition=0)
        await cluster.faults.on("Fetch", partition=1).every_time().error("OFFSET_OUT_OF_RANGE")
        await cluster.faults.on("Fetch", partition=0).every_time().cut_short(30)
        await cluster.faults.on("Fetch").every_time().throttle(0.25)
        await cluster.faults.on("Heartbeat", group="g*").every_time().error("UNKNOWN_MEMBER_ID")
        asked = FetchRequest.FetchTopic
        request = FetchRequest(
            max_wait_ms=5000,
            min_bytes=1,
            topics=[
                asked(
                    topic="t",
                    partitions=[
                        asked.FetchPartition(partition=n, partition_max_bytes=1 << 20)
                        for n in (0, 1)
                    ],
                )
            ],
        )
        async with await WireClient.connect(cluster.bootstrap_servers) as client:
            answer = await client.ask(request, 12)
            (topic,) = answer.responses
            found = {each.partition_index: each for each in topic.partitions}
            assert len(found[0].records) == 30
            assert (found[1].error_code, bytes(found[1].records or b"")) == (1, b"")
            assert (answer.throttle_time_ms, answer.session_id) == (250, 0)
            request.session_id, request.session_epoch = 7, 1
            code = (await client.ask(request, 12)).error_code
            assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            beat = await client.ask(HeartbeatRequest(group_id="g1"), 4)
            assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            quiet = ProduceRequest(acks=0)
            await cluster.faults.on("Produce").once().error("CORRUPT_MESSAGE")
            client.send(quiet, 9)
            assert await client.closed(), "an error of acks=0 closes the connection"

    with_producer(test)


def test_a_throttle_of_all_apis_leaves_alone_what_has_no_throttle_time() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        fault = await cluster.faults.on().throttle(0.01)
        async with await WireClient.connect(cluster.bootstrap_servers) as client:
            assert (await client.ask(DescribeQuorumRequest(), 2)).error_code == 0
            assert (await client.ask(MetadataRequest(), 12)).throttle_time_ms == 10
        assert await fault.hits() >= 1
        await cluster.faults.clear()

    with_producer(test)


def test_metadata_may_have_errors_and_stale_leaders() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        async def ask(client: WireClient) -> Any:
            answer = await client.ask(MetadataRequest(topics=None), 12)
            return next(topic for topic in answer.topics if topic.name == "t")

        async with await WireClient.connect(cluster.bootstrap_servers.split(",")[0]) as client:
            true = await ask(client)
            await cluster.faults.on("Metadata", topic="t").once().stale_leader()
            stale = await ask(client)
            for before, after in zip(true.partitions, stale.partitions, strict=True):
                assert after.leader_id != before.leader_id
                assert after.leader_epoch == max(0, before.leader_epoch - 1)
            await cluster.faults.on("Metadata", topic="t").once().error("LEADER_NOT_AVAILABLE")
            failed = await ask(client)
            assert (failed.error_code, failed.partitions) == (5, [])
            assert await ask(client) == true

    with_producer(test, brokers=2)


def test_a_client_recovers_from_a_stale_leader_and_from_records_cut_short() -> None:
    """The leader named wrongly refuses, and the client asks again; a part of a batch is read
    again."""

    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        for value in (b"a" * 20, b"b" * 20):
            await producer.send_and_wait("t", value, partition=0)
        await cluster.faults.on("Metadata", topic="t").times(2).stale_leader()
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10
        ) as late:
            await late.send_and_wait("t", b"c" * 20, partition=0)
        cut = await cluster.faults.on("Fetch", topic="t").once().cut_short(100)  # one whole batch
        assert await records_of(cluster, 3) == [each * 20 for each in (b"a", b"b", b"c")]
        assert [rule.hits for rule in await cluster.faults.list()] == [2, 1]
        assert cut.rule.calls == 0, "as of when it was added"

    with_producer(test, brokers=2)


def test_rules_match_the_client_its_connection_and_the_broker() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        (node,) = cluster.brokers
        rules = [
            await cluster.faults.on("Metadata", client_id="someone-*").every_time().delay(0),
            await cluster.faults.on("Metadata", connection="127.0.0.1:1").every_time().delay(0),
            await cluster.faults.on("Metadata", broker=node.node_id).every_time().delay(0),
        ]
        async with await WireClient.connect(cluster.bootstrap_servers) as client:
            await client.ask(MetadataRequest(topics=[]), 12)
        assert [await fault.hits() for fault in rules] == [0, 0, 1]
        await cluster.brokers[0].stop()
        await cluster.brokers[0].start()
        async with await WireClient.connect(cluster.bootstrap_servers) as client:
            await client.ask(MetadataRequest(topics=[]), 12)
        assert await rules[2].hits() == 2, "a broker that starts again has the rules"

    with_producer(test)


def test_a_disabled_fault_matches_nothing_and_goes_on_from_its_counts() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        fault = await cluster.faults.on("Produce", topic="t").times(2).error("INVALID_RECORD")
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"refused", partition=0)
        rule = await fault.disable()
        assert (rule.is_enabled, rule.calls, rule.hits) == (False, 1, 1)
        await producer.send_and_wait("t", b"a", partition=0)
        assert await fault.hits() == 1
        with pytest.raises(ControlError, match=r"has 1 of 2 hits .*; it is disabled"):
            await fault.wait(2, seconds=0)
        assert (await fault.enable()).is_enabled
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"refused", partition=0)
        await producer.send_and_wait("t", b"b", partition=0)
        assert await records_of(cluster, 2) == [b"a", b"b"]
        (rule,) = await cluster.faults.list()
        assert (rule.calls, rule.hits) == (3, 2)
        await fault.remove()
        with pytest.raises(ControlError, match="there is no fault") as raised:
            await fault.disable()
        assert raised.value.field == "id"

    with_producer(test)


def test_a_refused_rule_changes_nothing() -> None:
    async def test(cluster: tidelog.Cluster, producer: Any) -> None:
        faults = cluster.faults
        for on, field in (
            (faults.on("Produce", topic="nope"), "match.topic"),
            (faults.on("Produce", topic="t", partition=2), "match.partition"),
            (faults.on("Produce", broker=9), "match.broker"),
            (faults.on("Produce").times(-1), "trigger.times"),
        ):
            with pytest.raises(ControlError) as raised:
                await on.error("NOT_ENOUGH_REPLICAS")
            assert raised.value.field == field
        with pytest.raises(ControlError, match=r"effect\.kind: stale_leader needs a second broker"):
            await faults.on("Metadata").stale_leader()
        with pytest.raises(ControlError, match="there is no fault 5"):
            await cluster.ask("faults.remove", {"id": 5})
        assert await faults.list() == ()
        fault = await faults.on("Produce").once().swallow_answer()
        with pytest.raises(ControlError, match="has 0 of 1 hits after 0 s; 0 requests matched"):
            await fault.wait(seconds=0)

    with_producer(test)


def test_isolated_brokers_count_together() -> None:
    """`times(3)` is three times in all, whichever of the brokers is asked."""

    async def test() -> None:
        async with tidelog.Cluster(brokers=2, isolated=True) as cluster:
            beats = cluster.faults.on("Heartbeat")
            fault = await beats.times(3).error("UNKNOWN_MEMBER_ID")
            always = await beats.delay(0)
            off = await beats.once().error("UNKNOWN_SERVER_ERROR")
            await off.disable()
            codes = []
            for _ in range(3):
                for node in cluster.brokers:
                    async with await WireClient.connect(node.bootstrap_server) as client:
                        answer = await client.ask(HeartbeatRequest(group_id="g"), 4)
                        codes.append(answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID)
            assert codes == [True] * 3 + [False] * 3
            rule = await fault.wait(3)
            assert (rule.calls, rule.hits) == (6, 3)
            assert (await always.hits(), await off.hits()) == (6, 0)
            await cluster.brokers[1].kill()
            await cluster.brokers[1].start()
            once = await beats.once().error("UNKNOWN_MEMBER_ID")
            async with await WireClient.connect(cluster.brokers[1].bootstrap_server) as client:
                for expected in (True, False):
                    answer = await client.ask(HeartbeatRequest(group_id="g"), 4)
                    is_fault = answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                    assert is_fault is expected
            assert await once.hits() == 1

    asyncio.run(test())


def test_librdkafka_through_the_blocking_door() -> None:
    """The same methods, blocking; two isolated brokers."""
    with tidelog.run(brokers=2, isolated=True) as cluster:
        cluster.create_topic("t", 1)
        fault = cluster.faults.on("Produce", topic="t").once().error("INVALID_RECORD")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        errors: list[Any] = []
        for value in (b"refused", b"taken"):
            producer.produce("t", value, callback=lambda error, _: errors.append(error))
            producer.flush(20)
        assert [error and error.code() for error in errors] == [87, None]
        assert fault.wait().hits == 1
        cluster.faults.on("Produce").once().throttle(0.2)
        waits: list[float] = []
        slow = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "throttle_cb": lambda event: waits.append(event.throttle_time),
            }
        )
        slow.produce("t", b"throttled")
        assert slow.flush(20) == 0
        deadline = time.monotonic() + 20
        while not waits and time.monotonic() < deadline:
            slow.poll(0.05)
        assert waits == [0.2]
        cluster.faults.on("Fetch", client_id="slow").times(2).error("NOT_LEADER_OR_FOLLOWER")
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "client.id": "slow",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"taken"
        consumer.close()
        assert [rule.hits for rule in cluster.faults.list()] == [1, 1, 2]
        cluster.faults.clear()
        assert cluster.faults.list() == ()
