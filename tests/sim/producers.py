"""Producers: idempotent ones that retry as real clients do, and plain ones with any acks."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from sim.history import Violation, require
from sim.wire import Client, Lost
from tidelog.simulation.machine import START_MS
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.messages.txns import InitProducerIdRequest
from tidelog_protocol.records import Codec, Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sim.history import PartitionHistory
    from sim.world import World

IN_FLIGHT_MAX = 5  # what a broker remembers of a producer, and what clients keep to
LARGE_BYTES = 40_000
RETRIABLE = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class Batch(NamedTuple):
    """Records on their way; sequence -1 without idempotence."""

    values: tuple[bytes, ...]
    codec: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1


class Producer:
    """What both kinds do alike."""

    producer_id = producer_epoch = -1

    def __init__(self, world: World, name: str, records: int) -> None:
        self.world, self.name, self.left = world, name, records
        self.rng = random.Random(f"{world.seed}:{name}")
        self.client = Client(world.machine, name)
        self.version = self.rng.choice((9, 12, 13))
        self.skew_ms = self.rng.randint(-1500, 1500)
        self.codec = self.rng.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))
        self._number = 0

    def new_values(self, target: PartitionHistory) -> tuple[bytes, ...]:
        """Values of one batch: never used before, of any size that a segment can hold."""
        values = []
        has_room = int(target.topic.config["internal.segment.bytes"]) > 4 * LARGE_BYTES
        for _ in range(min(self.rng.randint(1, 4), self.left)):
            self._number += 1
            self.left -= 1
            size = self.rng.choice((0, 0, 20, 100, 400))
            if has_room and self.rng.random() < 0.02:
                size = LARGE_BYTES
            values.append(f"{self.name}/{self._number}/".encode() + b"." * size)
        return tuple(values)

    def new_batches(
        self, target: PartitionHistory, sequences: Mapping[PartitionHistory, int]
    ) -> tuple[list[Batch], int]:
        """Batches that may be in flight together, and the sequence after them."""
        # Before the first acknowledgement any sequence is accepted: one batch at a time.
        most = IN_FLIGHT_MAX if target in sequences else 1
        sequence = sequences.get(target, 0)
        batches = []
        for _ in range(self.rng.randint(1, most)):
            values = self.new_values(target)
            if values:
                batches.append(
                    Batch(values, self.codec, self.producer_id, self.producer_epoch, sequence)
                )
                sequence += len(values)
        return batches, sequence

    def target(self) -> PartitionHistory:
        """Where the next batches go."""
        # A name may be given to another topic, so who writes by name keeps to those that stay.
        by_id = self.version >= 13
        topics = self.world.history.existing() if by_id else self.world.base_topics
        topic = self.rng.choice(topics)
        return topic.partition(self.rng.randrange(topic.partitions_min))

    def request(self, target: PartitionHistory, batch: Batch, acks: int) -> ProduceRequest:
        """One batch for one partition."""
        now_ms = START_MS + int(self.world.loop.time() * 1000) + self.skew_ms
        records = build_batch(
            [
                self.record_of(delta, now_ms + delta, value)
                for delta, value in enumerate(batch.values)
            ],
            codec=batch.codec,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.sequence,
        )
        data = ProduceRequest.PartitionProduceData(index=target.index, records=records)
        topic = ProduceRequest.TopicProduceData(
            name=target.topic.name, topic_id=target.topic.topic_id, partition_data=[data]
        )
        target.sent.update(batch.values)
        return ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[topic])

    def record_of(self, delta: int, timestamp: int, value: bytes) -> Record:
        """What is written for a value."""
        return Record(delta, timestamp, self.key_of(value), value)

    def key_of(self, value: bytes) -> bytes | None:
        """The key of a record."""
        return None

    def learn(self, target: PartitionHistory, batch: Batch, answer: Any, life: int) -> None:
        """The batch is acknowledged."""
        for delta, value in enumerate(batch.values):
            target.learn(answer.base_offset + delta, value, life, acked=True)
        self.world.loop.tell_acked(str(target), answer.base_offset + len(batch.values))
        self.world.history.count("records acknowledged", len(batch.values))


def answer_of(response: Any) -> Any:
    """The one partition's answer."""
    return response.responses[0].partition_responses[0]


class IdempotentProducer(Producer):
    """acks=all, sequences, up to five batches in flight, everything resent in order until acked."""

    def __init__(self, world: World, name: str, records: int) -> None:
        super().__init__(world, name, records)
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[PartitionHistory, int] = {}
        self._since_life = 0  # power failures of this life or later may have cost it its state

    async def run(self) -> None:
        """Write all records."""
        await self._new_id()
        while self.left > 0:
            target = self.target()
            batches, sequence = self.new_batches(target, self._sequences)
            if await self._deliver(target, batches):
                self._sequences[target] = sequence
            await asyncio.sleep(self.rng.choice((0, 0.01, 0.05)))
        self.client.close()

    async def _new_id(self) -> None:
        self._sequences.clear()
        while True:
            try:
                response = await self.client.ask(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
                )
            except Lost:
                continue
            if response.error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(0.1)
        used = self.world.producer_ids
        require(response.producer_id not in used, f"producer id {response.producer_id} given twice")
        used.add(response.producer_id)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._since_life = self.client.life

    async def _deliver(self, target: PartitionHistory, batches: list[Batch]) -> bool:
        """Send until all are acknowledged; False if they were given up."""
        pending = batches
        first_life: int | None = None
        while pending:
            connection = await self.client.connection()
            first_life = connection.life if first_life is None else first_life
            requests = [self.request(target, batch, -1) for batch in pending]
            futures = [connection.send(request, self.version) for request in requests]
            failed: list[Batch] = []
            for index, (batch, future) in enumerate(zip(pending, futures, strict=True)):
                try:
                    answer = answer_of(await connection.receive(future))
                except Lost:
                    failed += pending[index:]
                    break
                if answer.error_code == ErrorCode.NONE:
                    self.learn(target, batch, answer, connection.life)
                    continue
                if not failed and not await self._may_retry(target, answer, first_life):
                    return False
                failed.append(batch)
            self.world.history.count("batches resent", len(failed))
            pending = failed
            if pending:
                await asyncio.sleep(0.02)
                if target.topic.state != "exists":
                    self._sequences.pop(target, None)
                    await self._new_id()
                    return False
        return True

    async def _may_retry(self, target: PartitionHistory, answer: Any, first_life: int) -> bool:
        error = ErrorCode(answer.error_code)
        if error in RETRIABLE:
            return True
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # A snapshot holds a producer's last batch alone: after a restart, a batch sent again
            # that has successors in the log is refused, and never doubled (as in Kafka).
            require(
                self.world.history.power_failed_since(self._since_life)
                or self.client.life > first_life,
                f"{target}: producer {self.producer_id} out of sequence within one life",
            )
            await self._new_id()  # what was in flight stays in doubt
            return False
        raise Violation(f"{target}: {self.name} was answered {error.name}")


class PlainProducer(Producer):
    """No sequences: a retry may double. acks=0 hears nothing, and some batches are not retried."""

    def __init__(self, world: World, name: str, records: int) -> None:
        super().__init__(world, name, records)
        self.acks = self.rng.choice((0, 1, 1, -1))

    async def run(self) -> None:
        """Write all records."""
        while self.left > 0:
            target = self.target()
            batch = Batch(self.new_values(target), self.codec)
            while not await self._send(target, batch):
                if self.rng.random() < 0.3:
                    break
                await asyncio.sleep(0.03)
            await asyncio.sleep(self.rng.choice((0, 0.01, 0.05, 0.1)))
        self.client.close()

    async def _send(self, target: PartitionHistory, batch: Batch) -> bool:
        request = self.request(target, batch, self.acks)
        connection = await self.client.connection()
        if self.acks == 0:
            connection.send(request, self.version, answered=False)
            return True
        try:
            answer = answer_of(await connection.ask(request, self.version))
        except Lost:
            return False
        if answer.error_code != ErrorCode.NONE:
            error = ErrorCode(answer.error_code)
            require(error in RETRIABLE, f"{target}: {self.name} was answered {error.name}")
            return False
        self.learn(target, batch, answer, connection.life)
        return True
