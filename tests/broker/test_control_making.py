"""Gaps, control batches, aborted transactions, tombstones and truncations on request."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import tidelog
from support.clusters import run
from tidelog.control.errors import ControlError
from tidelog.control.losing import Lost
from tidelog.control.making import Made


async def offsets(cluster: tidelog.Cluster, isolation_level: str, count: int) -> list[int]:
    """The offsets of the first records that a consumer gets."""
    async with AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
    ) as consumer:
        return [(await consumer.getone()).offset for _ in range(count)]


def test_offsets_without_records_are_in_all_replicas_and_consumers_pass_them() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.create_topic("t")
            topics = cluster.topics
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                assert (await producer.send_and_wait("t", b"first")).offset == 0
                assert await topics.make_gap("t", count=3) == Made(1, 3)
                assert await topics.make_aborted("t", values=["x", "y"]) == Made(4, 6)
                assert await topics.make_control_batch("t", commit=False) == Made(7, 7)
                assert await topics.make_tombstones("t", ["a"]) == Made(8, 8)
                assert (await producer.send_and_wait("t", b"last")).offset == 9
            assert await offsets(cluster, "read_committed", 3) == [0, 8, 9]
            assert await offsets(cluster, "read_uncommitted", 5) == [0, 4, 5, 8, 9]
            state = await cluster.wait_for(
                lambda state: [log.high_watermark for log in state.partition("t").logs] == [10] * 3
            )
            for log in state.partition("t").logs:
                assert (log.log_end_offset, log.last_stable_offset) == (10, 10)

    run(test)


def test_a_truncated_follower_fetches_again_what_it_lost() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.create_topic("t")
            for _ in range(3):
                await cluster.topics.make_tombstones("t", ["a", "b"])
            state = await cluster.wait_for(
                lambda state: [log.log_end_offset for log in state.partition("t").logs] == [6] * 3
            )
            leader = state.partition("t").leader
            follower = 1 + leader % 3
            with pytest.raises(ControlError, match=f"broker: broker {leader} does not follow t-0"):
                await cluster.topics.truncate("t", 0, leader, 0)
            with pytest.raises(ControlError, match=r"offset: .* t-0 on broker \d has 0 to 6, not"):
                await cluster.topics.truncate("t", 0, follower, 7)

            await cluster.network.cut(leader, follower)
            assert await cluster.topics.truncate("t", 0, follower, 3) == 2
            log = (await cluster.state()).partition("t").log(follower)
            assert (log.log_end_offset, log.high_watermark) == (2, 2)
            await cluster.network.heal()
            await cluster.wait_for(
                lambda state: state.partition("t").log(follower).high_watermark == 6
            )
            assert await cluster.topics.truncate("t", 0, follower, 0) == 0
            await cluster.wait_for(
                lambda state: state.partition("t").log(follower).high_watermark == 6
            )

    run(test)


def test_a_follower_that_lacks_records_leads_and_the_others_lose_them() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.create_topic("t")
            for _ in range(3):
                await cluster.topics.make_tombstones("t", ["a", "b"])
            before = await cluster.wait_for(
                lambda state: [log.high_watermark for log in state.partition("t").logs] == [6] * 3
            )
            leader = before.partition("t").leader
            chosen = 1 + leader % 3
            with pytest.raises(ControlError, match=f"broker {leader} does not follow t-0"):
                await cluster.topics.lose("t", offset=3, broker=leader)
            with pytest.raises(ControlError, match=r"offset: .* t-0 on broker \d has 0 to 6, not"):
                await cluster.topics.lose("t", offset=7)
            assert await cluster.topics.lose("t", offset=3, broker=chosen) == Lost(chosen, 2)
            await cluster.topics.make_tombstones("t", ["c"])
            after = await cluster.wait_for(
                lambda state: [log.high_watermark for log in state.partition("t").logs] == [3] * 3
            )
            partition = after.partition("t")
            assert (partition.leader, set(partition.isr)) == (chosen, {1, 2, 3})
            assert partition.leader_epoch > before.partition("t").leader_epoch
            ends = [[epoch.start_offset for epoch in log.epochs] for log in partition.logs]
            assert ends == [[0, 2]] * 3, "no log keeps what the new leader lacked"

    run(test)


def test_a_partition_without_a_follower_loses_nothing() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            await cluster.create_topic("t")
            with pytest.raises(ControlError, match="partition: t-0 has no other replica"):
                await cluster.topics.lose("t", offset=0)

    run(test)


def test_what_cannot_be_made_is_refused_with_the_field() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            await cluster.create_topic("t")
            with pytest.raises(ControlError, match="count: must be 1 to"):
                await cluster.topics.make_gap("t", count=0)
            with pytest.raises(ControlError, match="values: needs at least one"):
                await cluster.topics.make_aborted("t", values=[])
            with pytest.raises(ControlError, match="keys: needs at least one"):
                await cluster.topics.make_tombstones("t", [])
            with pytest.raises(ControlError, match="partition: t has no partition 1"):
                await cluster.topics.make_control_batch("t", 1)
            assert (await cluster.state()).partition("t").log().log_end_offset == 0

    run(test)
