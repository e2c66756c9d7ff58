"""How fast a share group reads, with one consumer and with ten: `python -m
tidelog_bench.bench_share`.

A topic of four partitions has 400,000 records of 100 bytes in batches of 500. Consumers ask for as
many records as Kafka's do, 500 at a time, and accept them in their next ShareFetch. Of heartbeats
there are only the first ones, which make the group. tidelog and Apache Kafka in turns, each after a
run that does not count. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from tidelog.embedded.simple_client import SimpleClient, create_topic
from tidelog_bench.bench_groups import Connection, await_coordinator, check, compare
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.messages.share_consumers import ShareFetchRequest
from tidelog_protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from tidelog_bench.peers.peer import Peer

__all__ = ["Size", "measure"]

GROUP_RESOURCE, SET = 32, 0
FETCH_VERSION, BEAT_VERSION, PRODUCE_VERSION = 2, 1, 12
MEMBER = "the-first"
ACCEPT = 1
POLL_RECORDS = 500  # max.poll.records of Kafka's share consumers
FETCH_BYTES, FETCH_WAIT_MS = 50 << 20, 500  # fetch.max.bytes and fetch.max.wait.ms of theirs
PAUSE_S = 0.02
WAIT_S_MAX = 120.0
NO_LEADER_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_numbers = itertools.count()


class Size(NamedTuple):
    """How much is measured."""

    records: int = 400_000
    record_bytes: int = 100
    batch_records: int = 500
    partitions: int = 4
    consumers: tuple[int, ...] = (1, 10)


class Reading:
    """A group that reads a topic: how many records it has, and when it had all."""

    def __init__(self, group: str, topic_id: bytes, wanted: int) -> None:
        self.group, self.topic_id = group, topic_id
        self.done_at = 0.0
        self._left = wanted

    def take(self, records: int) -> None:
        """Count records that came."""
        self._left -= records
        if self._left <= 0 and not self.done_at:
            self.done_at = time.perf_counter()


def fill(client: SimpleClient, topic: str, size: Size) -> None:
    """Produce all records, a batch a request, to each partition in turn."""
    value = bytes(size.record_bytes)
    records = [Record(n, 1_700_000_000_000, None, value) for n in range(size.batch_records)]
    batch = build_batch(records)
    data = ProduceRequest.TopicProduceData
    for number in range(size.records // size.batch_records):
        partition = data.PartitionProduceData(index=number % size.partitions, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=[partition])]
        )
        _append(client, request)


def _append(client: SimpleClient, request: ProduceRequest) -> None:
    """Produce one batch; Kafka's leader of a new partition may not be there at once."""
    end = time.monotonic() + WAIT_S_MAX
    while True:
        answer = client.ask(request, version_max=PRODUCE_VERSION)
        done = answer.responses[0].partition_responses[0]
        if done.error_code not in NO_LEADER_YET or time.monotonic() > end:
            check(done)
            return
        time.sleep(PAUSE_S)


def begin(client: SimpleClient, group: str, topic: str) -> bytes:
    """Make a group that reads from the topic's first records; return the topic's id."""
    await_coordinator(client, group)
    from_the_first = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name="share.auto.offset.reset", config_operation=SET, value="earliest"
            )
        ],
    )
    client.ask(IncrementalAlterConfigsRequest(resources=[from_the_first]))
    epoch, end = 0, time.monotonic() + WAIT_S_MAX
    while time.monotonic() < end:
        request = ShareGroupHeartbeatRequest(group_id=group, member_id=MEMBER, member_epoch=epoch)
        if not epoch:
            request.subscribed_topic_names = [topic]
        answer = client.ask(request, version_max=BEAT_VERSION)
        check(answer)
        epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            topic_id: bytes = answer.assignment.topic_partitions[0].topic_id
            return topic_id
        time.sleep(PAUSE_S)
    raise TimeoutError(f"the members of {group} have no partitions")


async def consume(reading: Reading, number: int, partitions: range, connection: Connection) -> None:
    """Be a consumer of these partitions until the group has read everything."""
    part = ShareFetchRequest.FetchPartition
    named = [part(partition_index=each) for each in partitions]
    for epoch in itertools.count():
        topic = ShareFetchRequest.FetchTopic(topic_id=reading.topic_id, partitions=named)
        request = ShareFetchRequest(
            group_id=reading.group,
            member_id=f"consumer-{number}",
            share_session_epoch=epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            max_records=POLL_RECORDS,
            batch_size=POLL_RECORDS,
            topics=[topic] if named else [],
        )
        answer = await connection.ask(request, FETCH_VERSION)
        check(answer)
        named = []
        for data in (each for one in answer.responses for each in one.partitions):
            check(data)
            if data.acknowledge_error_code:
                raise RuntimeError(f"an acknowledgement failed: {data}")
            taken = [(each.first_offset, each.last_offset) for each in data.acquired_records]
            reading.take(sum(last - first + 1 for first, last in taken))
            named.append(
                part(
                    partition_index=data.partition_index,
                    acknowledgement_batches=[_accepted(*each) for each in taken],
                )
            )
        if reading.done_at:
            return


def _accepted(
    first: int, last: int
) -> ShareFetchRequest.FetchTopic.FetchPartition.AcknowledgementBatch:
    return ShareFetchRequest.AcknowledgementBatch(
        first_offset=first, last_offset=last, acknowledge_types=[ACCEPT]
    )


async def read_all(bootstrap: str, reading: Reading, consumers: int, partitions: int) -> float:
    """Have so many consumers read everything; return the seconds. With more consumers than
    partitions several share one, as Kafka's assignor has it."""
    opened = [await Connection.open(bootstrap) for _ in range(consumers)]
    began = time.perf_counter()
    try:
        async with asyncio.timeout(WAIT_S_MAX), asyncio.TaskGroup() as tasks:
            for number, connection in enumerate(opened):
                first = number % partitions
                parts = range(first, first + 1) if consumers > 1 else range(partitions)
                tasks.create_task(consume(reading, number, parts, connection))
    finally:
        for connection in opened:
            connection.close()
    return reading.done_at - began


def measure(peer: Peer, size: Size) -> dict[str, float]:
    """Measure one broker."""
    topic = f"shared-{next(_numbers)}"
    create_topic(peer.bootstrap, topic, size.partitions, {})
    figures: dict[str, float] = {}
    with SimpleClient(peer.bootstrap) as client:
        fill(client, topic, size)
        for consumers in size.consumers:
            group = f"{topic}-{consumers}"
            reading = Reading(group, begin(client, group, topic), size.records)
            before = peer.cpu_seconds()
            seconds = asyncio.run(read_all(peer.bootstrap, reading, consumers, size.partitions))
            spent = peer.cpu_seconds() - before
            name = f"{consumers} consumer{'s' if consumers > 1 else ''}"
            figures[f"{name}, records/s"] = round(size.records / seconds)
            figures[f"{name}, CPU us/record"] = round(1e6 * spent / size.records, 2)
    return figures


def measure_warm(peer: Peer) -> dict[str, float]:
    """Measure one broker twice; the first run does not count: a JVM has not yet compiled this."""
    measure(peer, Size())
    return measure(peer, Size())


if __name__ == "__main__":
    compare(__doc__, measure_warm)
