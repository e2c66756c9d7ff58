"""Clusters for tests: started for a test, watched from inside, and a producer that never stops."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import tidelog
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage

WAIT_S_MAX = 60.0

# A failed broker is noticed soon, and everything else is as in production.
FAST = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
# Where nobody dies: those of a busy machine are not given up for dead.
STEADY = {**FAST, "broker.session.timeout.ms": "9000"}


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a loop of its own, not for ever."""

    async def bounded() -> None:
        async with asyncio.timeout(250):
            await test()

    asyncio.run(bounded())


def image_of(node: Any) -> ClusterImage:
    """What a broker of this process knows of the cluster."""
    image: ClusterImage = node.server.metadata.image
    return image


def partition_of(cluster: tidelog.Cluster, topic: str, index: int = 0) -> PartitionImage:
    """A partition as the running brokers' first knows it."""
    node = next(node for node in cluster.brokers if node.is_running)
    partition = image_of(node).partition(topic, index)
    assert partition is not None
    return partition


def all_know(
    cluster: tidelog.Cluster, topic: str, is_so: Callable[[PartitionImage], object], index: int = 0
) -> bool:
    """Whether it is so to all running brokers: who is asked next may be any of them."""
    known = [image_of(node).partition(topic, index) for node in cluster.brokers if node.is_running]
    return all(partition is not None and is_so(partition) for partition in known)


def has_isr_of(cluster: tidelog.Cluster, topic: str, size: int) -> bool:
    """Whether all running brokers, the leader as well, know of so many in-sync replicas."""
    return all_know(cluster, topic, lambda partition: len(partition.isr) == size)


def is_led_by_another(cluster: tidelog.Cluster, topic: str, node_id: int) -> bool:
    """Whether all running brokers know of a leader that is not this one."""
    return all_know(cluster, topic, lambda partition: partition.leader not in (-1, node_id))


def controller_of(cluster: tidelog.Cluster) -> Any:
    """The handle on the active controller; None if there is none."""
    for node in cluster.brokers:
        if node.is_running and node.server.metadata.is_leader:
            return node
    return None


async def until(is_so: Callable[[], object], what: str = "") -> None:
    """Wait until something is so; real sockets and timers leave no event to wait for."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WAIT_S_MAX:.0f} s: {what}"
        await asyncio.sleep(0.02)


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Run a blocking client beside the brokers of this loop."""
    return await asyncio.to_thread(function, *args)


def librdkafka(bootstrap: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """Settings of a librdkafka client that gives up nothing and says nothing; `bootstrap` may be
    such settings."""
    given = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
    return {
        **given,
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def create_topic(
    bootstrap: str | dict[str, Any], name: str, partitions: int, replicas: int, **config: str
) -> None:
    """Create a topic and return when the broker that was asked serves it."""
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient(librdkafka(bootstrap))
    topic = NewTopic(name, partitions, replicas, config=settings)
    admin.create_topics([topic])[name].result(WAIT_S_MAX)


def leader_of(bootstrap: str, topic: str, index: int = 0) -> int:
    """The node id of a partition's leader, as some broker knows it; -1 for none."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient(librdkafka(bootstrap)).list_topics(topic, timeout=WAIT_S_MAX)
    return int(found.topics[topic].partitions[index].leader)


def consume(bootstrap: str | dict[str, Any], topic: str, index: int = 0) -> list[bytes]:
    """All records of a partition up to its present end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        librdkafka(bootstrap, group_id="none", auto_offset_reset="earliest")
        | {"enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=WAIT_S_MAX)
        values: list[bytes] = []
        deadline = time.monotonic() + WAIT_S_MAX
        while len(values) < end and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value())
        return values
    finally:
        consumer.close()


class Load(threading.Thread):
    """An idempotent producer with acks=all on partition 0 of a topic, until `finish`.

    `acked` are the values that were acknowledged, `errors` what was refused for good.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="load", daemon=True)
        self.bootstrap, self.topic = bootstrap, topic
        self.acked: list[bytes] = []
        self.errors: list[str] = []
        self.left = 0
        self._end = threading.Event()

    def run(self) -> None:
        """Produce about 200 records a second."""
        from confluent_kafka import Producer

        producer = Producer(
            librdkafka(self.bootstrap, acks="all", enable_idempotence=True) | {"linger.ms": 0}
        )
        for number in itertools.count():
            if self._end.is_set():
                break
            producer.produce(self.topic, b"%d" % number, partition=0, on_delivery=self._delivered)
            producer.poll(0.005)
        self.left = producer.flush(WAIT_S_MAX)

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        self.acked.append(message.value())

    async def finish(self) -> None:
        """Produce no more; wait until everything is answered."""
        self._end.set()
        await asyncio.to_thread(self.join)


def check_nothing_lost(load: Load, values: list[bytes]) -> None:
    """Everything acknowledged is there, once, in order, and nothing was refused."""
    assert load.errors == []
    assert load.left == 0
    assert len(values) == len(set(values)), "doubled"
    assert set(load.acked) <= set(values), "lost"
    assert values == sorted(values, key=int), "out of order"
