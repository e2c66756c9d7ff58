"""Producers of a cluster: they find the leader, and send again until all is acknowledged."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S, ClusterClient
from sim.history import Violation, require
from sim.producers import Batch, Producer, answer_of
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txns import InitProducerIdRequest

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld
    from sim.history import PartitionHistory

LATER = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class ClusterProducer(Producer):
    """What both kinds do alike."""

    acks = -1

    def __init__(self, world: ClusterWorld, name: str, records: int) -> None:
        self.world: Any = world
        self.name, self.left = name, records
        self.rng = random.Random(f"{world.seed}:{name}")
        self.cluster = ClusterClient(world.machines, name, self.rng)
        self.version = self.rng.choice((9, 12, 13))
        self.skew_ms = self.rng.randint(-1500, 1500)
        self.codec = 0
        self._number = 0

    async def run(self) -> None:
        """Write all records."""
        await self.begin()
        while self.left > 0:
            target = self.target()
            await self.write(target)
            await asyncio.sleep(self.rng.choice((0, 0.01, 0.05, 0.1)))
        self.cluster.close()

    async def begin(self) -> None:
        """What comes before the first record."""

    async def write(self, target: PartitionHistory) -> None:
        """Some batches for one partition."""
        raise NotImplementedError

    async def try_once(
        self, target: PartitionHistory, batches: list[Batch], acks: int
    ) -> list[Batch]:
        """Send all in one pipeline; what is not acknowledged, in order."""
        failed: list[Batch] = []
        try:
            _, node_id = await self.cluster.leader(target)
            if node_id < 0:
                raise Lost("no leader")
            connection = await self.cluster.connection(node_id)
            requests = [self.request(target, batch, acks) for batch in batches]
            futures = [
                connection.send(request, self.version, answered=acks != 0) for request in requests
            ]
            if acks == 0:
                return []
            for index, (batch, future) in enumerate(zip(batches, futures, strict=True)):
                failed = batches[index:]
                answer = answer_of(await connection.receive(future))
                if answer.error_code != ErrorCode.NONE:
                    self.refused(target, answer)
                    break
                if acks == -1:
                    self.learn(target, batch, answer, connection.life)
                failed = []
            for future in futures:
                if failed and not future.done():
                    # The rest was sent: what comes of it must be known before it is sent again.
                    await asyncio.wait([future], timeout=3.0)
        except Lost:
            failed = failed or batches
        if failed:
            self.world.history.count("batches resent", len(failed))
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()
        return failed

    def refused(self, target: PartitionHistory, answer: Any) -> None:
        """An error that no fault explains is a violation."""
        error = ErrorCode(answer.error_code)
        self.world.history.count(f"produce {error.name}")
        if error not in LATER:
            raise Violation(f"{target}: {self.name} was answered {error.name}")


class IdempotentClusterProducer(ClusterProducer):
    """acks=all, sequences, several batches in flight, each delivered once."""

    def __init__(self, world: ClusterWorld, name: str, records: int) -> None:
        super().__init__(world, name, records)
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[PartitionHistory, int] = {}
        self._is_out_of_sequence = False

    async def begin(self) -> None:
        """Get a producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            response = await self.cluster.ask_any(request, 4)
            if response.error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(PAUSE_S)
        used = self.world.producer_ids
        require(response.producer_id not in used, f"producer id {response.producer_id} given twice")
        used.add(response.producer_id)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    async def write(self, target: PartitionHistory) -> None:
        """Deliver some batches, whatever it takes."""
        batches, sequence = self.new_batches(target, self._sequences)
        self._is_out_of_sequence = False
        while batches:
            batches = await self.try_once(target, batches, -1)
            if batches and target.topic.state != "exists":
                self._sequences.pop(target, None)
                return
            if self._is_out_of_sequence:
                # A snapshot holds a producer's last batch alone: on a leader that was restarted, a
                # batch sent again that has successors in the log is refused, never doubled.
                require(
                    self.world.deaths > 0,
                    f"{target}: {self.name} is out of sequence, and nobody died",
                )
                self._sequences.clear()
                await self.begin()  # what was in flight stays in doubt
                return
        self._sequences[target] = sequence

    def refused(self, target: PartitionHistory, answer: Any) -> None:
        """The first batch that is not acknowledged is in sequence, as long as no broker died."""
        if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self.world.history.count("out of sequence")
            self._is_out_of_sequence = True
            return
        super().refused(target, answer)


class PlainClusterProducer(ClusterProducer):
    """Any acks, no sequences: a retry may double, and some batches are given up."""

    def __init__(self, world: ClusterWorld, name: str, records: int) -> None:
        super().__init__(world, name, records)
        self.acks = self.rng.choice((0, 1, 1, -1, -1))

    async def write(self, target: PartitionHistory) -> None:
        """One batch."""
        batches = [Batch(self.new_values(target), self.codec)]
        while batches := await self.try_once(target, batches, self.acks):
            if target.topic.state != "exists" or self.rng.random() < 0.3:
                return
