"""A cluster is as new after a reset, whatever a test left in it."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import tidelog
from support.clusters import run

FEW = {
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.mark.parametrize("brokers", [1, 3])
def test_topics_groups_transactions_and_faults_are_gone(brokers: int) -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW, brokers=brokers) as cluster:
            servers = cluster.bootstrap_servers
            for name in ("a", "b", "c"):
                await cluster.create_topic(name, partitions=3)
            await cluster.faults.on("ListOffsets", topic="a").error("UNKNOWN_SERVER_ERROR")
            consumer = AIOKafkaConsumer(
                "b", bootstrap_servers=servers, group_id="g", enable_auto_commit=False
            )
            producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x")
            await consumer.start()
            await producer.start()
            await consumer.commit({TopicPartition("b", 0): 0})
            await producer.begin_transaction()
            await producer.send_and_wait("c", b"open", partition=1)
            await producer.send_offsets_to_transaction({TopicPartition("b", 1): 0}, "g")

            await cluster.reset()

            state = await cluster.state()
            assert (state.topics, state.groups, state.transactions) == ((), (), ())
            assert await cluster.faults.list() == ()
            own = await cluster.state(internal=True)
            for topic in own.topics:
                for partition in topic.partitions:
                    assert partition.log().last_stable_offset == partition.log().high_watermark
            await consumer.stop()
            await producer.stop()

            await cluster.create_topic("a", partitions=1)
            async with AIOKafkaProducer(bootstrap_servers=servers) as plain:
                assert (await plain.send_and_wait("a", b"new")).offset == 0

    run(test)


def test_a_reset_through_the_pipe() -> None:
    with tidelog.run(FEW, tiered=True) as cluster:
        cluster.create_topic("t", config={"remote.storage.enable": True})
        cluster.reset()
        assert cluster.state().topics == ()
        cluster.create_topic("t", config={"remote.storage.enable": True})
        cluster.tier.copy("t")


def test_a_reset_after_an_advance_forgets_transactional_ids() -> None:
    """They were last used in a time that the reset took back."""

    async def test() -> None:
        async with tidelog.Cluster(FEW) as cluster:
            await cluster.create_topic("t")
            await cluster.clock.advance(hours=25)
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"
            )
            async with producer, producer.transaction():
                await producer.send("t", b"tomorrow's")
            await cluster.reset()
            assert (await cluster.state()).transactions == ()

    run(test)
