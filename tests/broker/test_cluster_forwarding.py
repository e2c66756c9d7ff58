"""What clients ask of a broker that is not the active controller; groups when coordinators move."""

from __future__ import annotations

import asyncio

import pytest

import tidelog
from support.clusters import (
    FAST,
    controller_of,
    create_topic,
    image_of,
    in_thread,
    librdkafka,
    run,
    until,
)
from support.wire_client import WireClient
from tidelog.cluster.forwarding import says_not_controller
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.controller import BrokerHeartbeatResponse
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.txns import InitProducerIdRequest


def creation(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def test_not_controller_is_found_anywhere_in_a_response() -> None:
    Result = CreateTopicsResponse.CreatableTopicResult  # noqa: N806 - a class
    good, bad = Result(name="a"), Result(name="b", error_code=ErrorCode.NOT_CONTROLLER)
    assert says_not_controller(CreateTopicsResponse(topics=[good, bad]))
    assert not says_not_controller(CreateTopicsResponse(topics=[good]))
    assert says_not_controller(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert not says_not_controller(BrokerHeartbeatResponse(error_code=ErrorCode.NONE))


def test_every_broker_does_what_admins_ask_and_knows_of_it() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            for node in cluster.brokers:
                name = f"t{node.node_id}"
                async with await WireClient.connect(node.bootstrap_server) as client:
                    created = await client.ask(creation(name), 7)
                    assert created.topics[0].error_code == ErrorCode.NONE
                    topic = MetadataRequest.MetadataRequestTopic(name=name)
                    known = await client.ask(MetadataRequest(topics=[topic]), 12)
                    assert known.topics[0].error_code == ErrorCode.NONE
                    again = await client.ask(creation(name), 7)
                    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
                    state = DeleteTopicsRequest.DeleteTopicState(name=name)
                    await client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=60_000), 6)
                    gone = await client.ask(MetadataRequest(topics=[topic]), 12)
                    assert gone.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


def test_no_producer_id_is_given_twice() -> None:
    async def test() -> None:
        ids = []
        async with tidelog.Cluster(brokers=3) as cluster:
            for node in cluster.brokers:
                async with await WireClient.connect(node.bootstrap_server) as client:
                    for _ in range(2):
                        answer = await client.ask(InitProducerIdRequest(transactional_id=None), 4)
                        assert answer.error_code == ErrorCode.NONE
                        ids.append(answer.producer_id)
        assert len(set(ids)) == 6

    run(test)


def test_a_broker_left_alone_says_that_it_is_no_controller() -> None:
    async def test() -> None:
        settings = {**FAST, "request.timeout.ms": "300"}
        async with tidelog.Cluster(settings, brokers=3) as cluster:
            await until(lambda: controller_of(cluster) is not None)
            controller = controller_of(cluster)
            left = next(node for node in cluster.brokers if node is not controller)
            await asyncio.gather(*(node.kill() for node in cluster.brokers if node is not left))
            async with await WireClient.connect(left.bootstrap_server) as client:
                answer = await client.ask(creation("t"), 7)
            assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER

    run(test)


def test_all_brokers_name_the_same_coordinator() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3, offsets_topic_num_partitions=3) as cluster:
            for group in ("a", "b", "c"):
                found = set()
                for node in cluster.brokers:
                    async with await WireClient.connect(node.bootstrap_server) as client:
                        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
                        answer = (await client.ask(request, 4)).coordinators[0]
                        assert answer.error_code == ErrorCode.NONE
                        found.add(answer.node_id)
                assert len(found) == 1

    run(test)


def test_committed_offsets_survive_their_coordinator() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")

    def commit(bootstrap: str, offset: int | None) -> int:
        """Commit an offset, if one is given; what is committed."""
        consumer = confluent_kafka.Consumer(
            librdkafka(bootstrap, group_id="g") | {"enable.auto.commit": False}
        )
        try:
            if offset is not None:
                position = confluent_kafka.TopicPartition("t", 0, offset)
                consumer.commit(offsets=[position], asynchronous=False)
            asked = [confluent_kafka.TopicPartition("t", 0)]
            return int(consumer.committed(asked, timeout=60)[0].offset)
        finally:
            consumer.close()

    async def test() -> None:
        settings = {**FAST, "offsets.topic.num.partitions": "1"}
        async with tidelog.Cluster(settings, brokers=3) as cluster:
            servers = cluster.bootstrap_servers
            await in_thread(create_topic, servers, "t", 1, 3)
            for offset, how in ((5, "stop"), (6, "kill")):
                assert await in_thread(commit, servers, offset) == offset
                image = image_of(next(node for node in cluster.brokers if node.is_running))
                partition = image.partition("__consumer_offsets", 0)
                assert partition is not None
                coordinator = cluster.brokers[partition.leader - 1]
                await getattr(coordinator, how)()
                assert await in_thread(commit, servers, None) == offset
                await coordinator.start()
                assert await in_thread(commit, servers, None) == offset

    run(test)
