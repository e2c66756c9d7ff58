"""The state of a cluster as values, read on every door, and waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import tidelog
from support.clusters import image_of, run
from tidelog.control.errors import ControlError
from tidelog.control.state import ClusterState
from tidelog.control.values import from_json, to_json

FEW = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}


async def produce(servers: str, topic: str, count: int, **settings: Any) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"%d" % number)


def test_partitions_logs_and_epochs() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW, brokers=3) as cluster:
            await cluster.create_topic("t", config={"segment.bytes": 1_048_576})
            await produce(cluster.bootstrap_servers, "t", 5, enable_idempotence=True)
            state = await cluster.wait_for(
                lambda state: all(log.high_watermark == 5 for log in state.partition("t").logs)
            )
            partition = state.partition("t")
            assert [log.broker for log in partition.logs] == [1, 2, 3]
            assert sorted(partition.isr) == sorted(partition.replicas) == [1, 2, 3]
            log = partition.log()
            assert log.is_leader
            assert log.broker == partition.leader
            assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (0, 5, 5)
            (segment,) = log.segments
            assert (segment.base_offset, segment.end_offset, segment.is_active) == (0, 5, True)
            assert segment.max_timestamp > 0
            assert [(one.epoch, one.start_offset) for one in log.epochs] == [(0, 0)]
            (producer,) = log.producers
            assert (producer.last_sequence, producer.transaction_start) == (4, None)
            assert state.topic("t").config == {"segment.bytes": "1048576"}
            assert [broker.node_id for broker in state.brokers] == [1, 2, 3]
            assert state.controller == image_of(cluster.brokers[0]).controller_id
            assert from_json(ClusterState, to_json(state)) == state

            leader = cluster.brokers[partition.leader - 1]
            await leader.stop()
            after = await cluster.wait_for(lambda state: len(state.partition("t").isr) == 2)
            assert after.partition("t").leader_epoch > 0
            assert {log.broker for log in after.partition("t").logs} == set(
                after.partition("t").isr
            )
            with pytest.raises(LookupError, match=f"no running broker {leader.node_id}"):
                after.broker(leader.node_id)

    run(test)


def test_groups_members_lag_and_transactions() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW) as cluster:
            servers = cluster.bootstrap_servers
            await cluster.create_topic("t", partitions=2)
            consumer = AIOKafkaConsumer(
                "t", bootstrap_servers=servers, group_id="g", client_id="reader"
            )
            producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x")
            async with consumer, producer:
                async with producer.transaction():
                    for number in range(4):
                        await producer.send_and_wait("t", b"%d" % number, partition=1)
                await consumer.commit({TopicPartition("t", 1): 3})
                state = await cluster.wait_for(lambda state: state.group("g").lag == 2)
                group = state.group("g")
                assert (group.state, group.protocol_type, group.coordinator) == (
                    "Stable",
                    "consumer",
                    1,
                )
                (member,) = group.members
                assert (member.client_id, member.assignment) == ("reader", {"t": (0, 1)})
                (committed,) = [one for one in group.offsets if one.partition == 1]
                assert (committed.offset, committed.lag) == (3, 2)  # a record and a marker
                waiting = [name for one in state.broker(1).connections for name in one.waiting]
                assert set(waiting) <= {"Fetch", "Heartbeat"}
                assert set(state.broker(1).purgatories) == {"Fetch", "Produce", "DeleteRecords"}

                assert state.transaction("x").state in ("PrepareCommit", "CompleteCommit")
                await producer.begin_transaction()
                await producer.send_and_wait("t", b"open", partition=1)
                state = await cluster.state()
                log = state.partition("t", 1).log()
                (open_one,) = log.producers
                assert open_one.transaction_start == log.last_stable_offset == 5
                transaction = state.transaction("x")
                assert transaction.state == "Ongoing"
                assert [(one.topic, one.partition) for one in transaction.partitions] == [("t", 1)]
                await producer.abort_transaction()
            assert [topic.name for topic in (await cluster.state()).topics] == ["t"]
            names = [topic.name for topic in (await cluster.state(internal=True)).topics]
            assert names == ["__consumer_offsets", "__transaction_state", "t"]

    run(test)


def test_remote_segments() -> None:
    async def test() -> None:
        settings = {**FEW, "rlmm.config.remote.log.metadata.topic.num.partitions": 1}
        async with tidelog.Cluster(settings, tiered=True) as cluster:
            config = {"remote.storage.enable": True, "segment.index.bytes": 12}
            await cluster.create_topic("t", config=config)
            await produce(cluster.bootstrap_servers, "t", 3)
            state = await cluster.wait_for(lambda state: len(state.partition("t").remote) == 2)
            first = state.partition("t").remote[0]
            assert (first.start_offset, first.end_offset, first.broker) == (0, 0, 1)
            assert [(one.epoch, one.start_offset) for one in first.epochs] == [(0, 0)]
            await cluster.wait_for(
                lambda state: (
                    {one.state for one in state.partition("t").remote} == {"COPY_SEGMENT_FINISHED"}
                )
            )

    run(test)


def test_a_wait_that_fails_shows_the_last_state() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            await cluster.create_topic("t")
            with pytest.raises(ControlError) as raised:
                await cluster.wait_for(
                    lambda state: state.partition("t").log().log_end_offset, timeout_s=0.05
                )
            assert raised.value.status == 504
            assert "t-0: leader 1 in epoch 0, replicas [1], isr [1]" in str(raised.value)
            assert "broker 1 (leader): log start 0" in str(raised.value)
            with pytest.raises(ControlError, match=r"after 0 s \('?there is no topic none"):
                await cluster.wait_for(lambda state: state.topic("none"), timeout_s=0)
            with pytest.raises(ControlError, match="timeout_s: must not be negative"):
                await cluster.wait_for(lambda _: True, timeout_s=-1)
            with pytest.raises(ControlError, match="topics: there is no topic 'none'") as raised:
                await cluster.state(topics=["t", "none"])
            assert (raised.value.field, raised.value.status) == ("topics", 404)
            with pytest.raises(ControlError, match="topics: must be a list, not 't'"):
                await cluster.state(topics="t")
            state = await cluster.state(topics=["t", "none"], missing_ok=True)
            assert [topic.name for topic in state.topics] == ["t"]
            with pytest.raises(ControlError, match="there is no topic none"):
                await cluster.wait_for(lambda s: s.topic("none"), topics=["none"], timeout_s=0)

    run(test)


def test_the_same_values_come_from_isolated_brokers() -> None:
    with tidelog.run(FEW, brokers=2, isolated=True) as cluster:
        cluster.create_topic("t", config={"min.insync.replicas": 1})
        state = cluster.wait_for(lambda state: len(state.partition("t").isr) == 2)
        assert [log.broker for log in state.partition("t").logs] == [1, 2]
        assert state.topic("t").config == {"min.insync.replicas": "1"}
        assert cluster.state(topics=[]).topics == ()
