"""Controllers and coordinators that move, and members and producer ids that expire on request."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import tidelog
from support.clusters import run
from tidelog.control.errors import ControlError

FEW = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}


def test_another_node_is_the_controller_and_decides() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            before = (await cluster.state()).controller
            after = await cluster.move_controller()
            assert after != before
            assert (await cluster.state()).controller == after
            await cluster.create_topic("t", partitions=2)
            assert await cluster.move_controller() != after

    run(test)


def test_the_controller_of_a_lone_broker_has_no_other_place() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            with pytest.raises(ControlError, match="start a cluster of three brokers"):
                await cluster.move_controller()
            with pytest.raises(ControlError, match="group_id: there is no __consumer_offsets yet"):
                await cluster.groups.move("g", 1)
            with pytest.raises(ControlError, match="group_id: no running broker coordinates"):
                await cluster.groups.expire("g")
            with pytest.raises(ControlError, match="broker: there is no broker 2"):
                await cluster.transactions.move("x", 2)

    run(test)


def test_a_group_and_a_transaction_go_on_at_another_coordinator() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW, brokers=3) as cluster:
            servers = cluster.bootstrap_servers
            await cluster.create_topic("t")
            producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x")
            consumer = AIOKafkaConsumer(
                "t", bootstrap_servers=servers, group_id="g", enable_auto_commit=False
            )
            await producer.start()
            await consumer.start()
            await consumer.commit({TopicPartition("t", 0): 0})
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"1")

            state = await cluster.state()
            group, transaction = state.group("g"), state.transaction("x")
            await cluster.groups.move("g", 1 + group.coordinator % 3)
            await cluster.transactions.move("x", 1 + transaction.coordinator % 3)
            await producer.commit_transaction()
            await consumer.commit({TopicPartition("t", 0): 1})

            state = await cluster.state()
            assert state.group("g").coordinator == 1 + group.coordinator % 3
            assert state.transaction("x").coordinator == 1 + transaction.coordinator % 3
            assert state.group("g").generation == group.generation
            assert state.group("g").offsets[0].offset == 1
            await consumer.stop()
            await producer.stop()

    run(test)


def test_an_expired_member_joins_again_with_another_id() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW) as cluster:
            await cluster.create_topic("t")
            consumer = AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                heartbeat_interval_ms=50,
            )
            await consumer.start()
            try:
                (member,) = (await cluster.state()).group("g").members
                with pytest.raises(ControlError, match="member_id: group g has no member 'none'"):
                    await cluster.groups.expire("g", "none")
                assert await cluster.groups.expire("g", member.member_id) == 1
                await cluster.wait_for(
                    lambda state: (
                        state.group("g").state == "Stable"
                        and state.group("g").members[0].member_id != member.member_id
                    )
                )
                assert await cluster.groups.expire("g") == 1
            finally:
                await consumer.stop()

    run(test)


def test_logs_forget_a_producer_id_but_not_one_in_a_transaction() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW) as cluster:
            servers = cluster.bootstrap_servers
            await cluster.create_topic("t")
            async with AIOKafkaProducer(
                bootstrap_servers=servers, enable_idempotence=True
            ) as producer:
                await producer.send_and_wait("t", b"1")
                (known,) = (await cluster.state()).partition("t").log().producers
                assert await cluster.topics.expire_producer(known.producer_id) == 1
                assert (await cluster.state()).partition("t").log().producers == ()
                for asked in ((known.producer_id, "t", 0), (known.producer_id,)):
                    with pytest.raises(ControlError, match="no log knows producer id") as raised:
                        await cluster.topics.expire_producer(*asked)
                    assert (raised.value.field, raised.value.status) == ("producer_id", 404)
                assert (await producer.send_and_wait("t", b"2")).offset == 1
            async with AIOKafkaProducer(
                bootstrap_servers=servers, transactional_id="x"
            ) as producer:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"3")
                    open_ids = [
                        one.producer_id
                        for one in (await cluster.state()).partition("t").log().producers
                        if one.transaction_start is not None
                    ]
                    assert await cluster.topics.expire_producer(open_ids[0]) == 0
                assert await cluster.topics.expire_producer(open_ids[0]) == 1

    run(test)
