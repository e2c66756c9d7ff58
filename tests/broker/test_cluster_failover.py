"""A producer goes on while brokers of its cluster stop, die and come back: nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import (
    FAST,
    STEADY,
    Load,
    all_know,
    check_nothing_lost,
    consume,
    controller_of,
    create_topic,
    has_isr_of,
    image_of,
    in_thread,
    is_led_by_another,
    partition_of,
    run,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("confluent_kafka")

TOPIC = "t"


async def replicated(cluster: tidelog.Cluster) -> Load:
    """A topic on all brokers, and a producer that has written to it."""
    await in_thread(
        lambda: create_topic(cluster.bootstrap_servers, TOPIC, 1, 3, min_insync_replicas="2")
    )
    load = Load(cluster.bootstrap_servers, TOPIC)
    load.start()
    await acknowledged(load, 50)
    return load


async def acknowledged(load: Load, more: int) -> None:
    enough = len(load.acked) + more
    await until(lambda: len(load.acked) >= enough, f"{more} more acknowledgements")


def victim_of(cluster: tidelog.Cluster, who: str) -> int:
    """Index of the leader of the topic, the active controller, or a broker that is neither."""
    leader = partition_of(cluster, TOPIC).leader
    controller = controller_of(cluster).node_id
    if who == "leader":
        return leader - 1
    if who == "controller":
        return int(controller) - 1
    return next(n for n in (1, 2, 3) if n not in (leader, controller)) - 1


@pytest.mark.parametrize("who", ["leader", "controller", "follower"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_cluster_works_without_one_broker(who: str, how: str) -> None:
    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=3) as cluster:
            load = await replicated(cluster)
            await until(lambda: controller_of(cluster), "a controller")
            victim = cluster.brokers[victim_of(cluster, who)]
            await getattr(victim, how)()
            if how == "stop":  # a controlled shutdown moves its leaderships first (KIP-631)
                await until(lambda: controller_of(cluster), "a controller")
                decided = image_of(controller_of(cluster)).partition(TOPIC, 0)
                assert decided.leader not in (-1, victim.node_id)
            await until(lambda: is_out_of_sync(cluster, victim.node_id), "out of the ISR")
            await acknowledged(load, 50)
            await until(lambda: is_led_by_another(cluster, TOPIC, victim.node_id), "a leader")
            await until(lambda: controller_of(cluster), "a controller")
            await victim.start()
            await until(lambda: has_isr_of(cluster, TOPIC, 3), "back in the ISR")
            await acknowledged(load, 50)
            await load.finish()
            values = await in_thread(consume, cluster.bootstrap_servers, TOPIC)
            check_nothing_lost(load, values)
            await until(  # at once, unless a busy machine has dropped one of them meanwhile
                lambda: log_of(cluster, 0) == log_of(cluster, 1) == log_of(cluster, 2), "the same"
            )

    run(test)


def is_out_of_sync(cluster: tidelog.Cluster, node_id: int) -> bool:
    """Whether all who are left know that it is."""
    return all_know(cluster, TOPIC, lambda partition: node_id not in partition.isr)


def log_of(cluster: tidelog.Cluster, index: int) -> bytes:
    """The records of the topic's partition on one broker, below its high watermark."""
    (directory,) = cluster.brokers[index].config.log_directories()
    with open(f"{directory}/{TOPIC}-0/{0:020}.log", "rb") as file:
        return file.read()


def test_every_broker_in_turn_is_killed() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=3) as cluster:
            load = await replicated(cluster)
            for node in cluster.brokers:
                await node.kill()
                await until(lambda down=node: is_out_of_sync(cluster, down.node_id), "fenced")
                await acknowledged(load, 20)
                await node.start()
                await until(lambda: has_isr_of(cluster, TOPIC, 3), "caught up")
            await load.finish()
            check_nothing_lost(load, await in_thread(consume, cluster.bootstrap_servers, TOPIC))

    run(test)


def test_all_brokers_are_killed_at_once_and_come_back(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = tidelog.Cluster(FAST, brokers=3, data_dir=tmp_path)
        await cluster.start()
        load = await replicated(cluster)
        await asyncio.gather(*(node.kill() for node in cluster.brokers))
        await asyncio.gather(*(node.start() for node in cluster.brokers))
        await until(lambda: has_isr_of(cluster, TOPIC, 3), "all in sync")
        await acknowledged(load, 20)
        await load.finish()
        check_nothing_lost(load, await in_thread(consume, cluster.bootstrap_servers, TOPIC))
        await cluster.stop()

    run(test)


def test_too_few_in_sync_replicas_refuse_a_produce() -> None:
    async def test() -> None:
        async with tidelog.Cluster(STEADY, brokers=3) as cluster:
            await in_thread(
                lambda: create_topic(
                    cluster.bootstrap_servers, TOPIC, 1, 3, min_insync_replicas="3"
                )
            )
            assert await in_thread(produce_one, cluster.bootstrap_servers, "all") is None
            leader = partition_of(cluster, TOPIC).leader
            follower = cluster.brokers[leader % 3]
            await follower.stop()
            await until(lambda: has_isr_of(cluster, TOPIC, 2))
            servers = cluster.bootstrap_servers
            assert await in_thread(produce_one, servers, "all") == "NOT_ENOUGH_REPLICAS"
            assert await in_thread(produce_one, servers, "1") is None
            await follower.start()
            await until(lambda: has_isr_of(cluster, TOPIC, 3))
            assert await in_thread(produce_one, servers, "all") is None

    run(test)


def produce_one(bootstrap: str, acks: str) -> str | None:
    """The error that one record meets, or None."""
    from confluent_kafka import Producer

    results: list[str | None] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "retries": 0, "log_level": 0}
    )
    producer.produce(
        TOPIC,
        b"x",
        partition=0,
        on_delivery=lambda error, _: results.append(None if error is None else error.name()),
    )
    producer.flush(60)
    return results[0]


@pytest.mark.nightly  # chaos does it in CI
@pytest.mark.slow
def test_processes_are_killed_and_paused() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=3, isolated=True) as cluster:
            servers = cluster.bootstrap_servers
            await in_thread(lambda: create_topic(servers, TOPIC, 1, 3, min_insync_replicas="2"))
            load = Load(servers, TOPIC)
            load.start()
            await acknowledged(load, 50)
            for node in cluster.brokers:
                await node.kill()
                await acknowledged(load, 50)
                await node.start()
                await acknowledged(load, 50)
            for node in cluster.brokers:
                os.kill(node.pid, signal.SIGSTOP)
                await asyncio.sleep(2.5)  # longer than the session
                os.kill(node.pid, signal.SIGCONT)
                await acknowledged(load, 50)
            await load.finish()
            check_nothing_lost(load, await in_thread(consume, servers, TOPIC))

    run(test)


def test_a_node_that_runs_by_itself_moves_its_leaderships_when_it_stops() -> None:
    """As one that `tidelog serve -c server.properties` runs: the others of its cluster stay."""

    async def test() -> None:
        async with tidelog.Cluster(STEADY, brokers=3) as cluster:
            third = cluster.brokers[2]
            await third.stop()
            alone = tidelog.Cluster(third.config.given)
            await alone.start()
            try:
                await until(lambda: image_of(controller_of(cluster)).is_active(3), "it is there")
                await in_thread(lambda: create_topic(cluster.bootstrap_servers, TOPIC, 6, 3))
                decided = image_of(controller_of(cluster)).topics[TOPIC].partitions
                assert 3 in {partition.leader for partition in decided}
            finally:
                await alone.stop()
            await until(lambda: controller_of(cluster), "a controller")
            decided = image_of(controller_of(cluster)).topics[TOPIC].partitions
            assert {partition.leader for partition in decided} <= {1, 2}

    run(test)
