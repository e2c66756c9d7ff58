"""Producers for share groups: a plain one, and one with transactions. No value is sent twice."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.share_history import Attempt
from sim.share_members import OF_TRANSACTIONS, Connections
from sim.wire import Lost
from tidelog.simulation.machine import START_MS
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.messages.txns import EndTxnRequest, InitProducerIdRequest
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from typing import Any

    from sim.share_world import ShareWorld
    from tidelog_protocol.schema import Message

TRIES = 40
PAUSE_S = 0.1
LATER = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class PlainWriter:
    """Batches without a producer id."""

    def __init__(self, world: ShareWorld, name: str) -> None:
        self.world, self.name = world, name
        self.rng = random.Random(f"{world.seed}:share {name}")
        self.connections = Connections(world, name)
        self.producer = (-1, -1)
        self._sent = 0

    async def run(self) -> None:
        """Until the faults are over."""
        while not self.world.is_quiet:
            await asyncio.sleep(self.rng.uniform(0.02, 0.25))
            await self.write(Attempt(is_sent_to_commit=True, outcome=True))
        self.connections.close()

    async def write(self, attempt: Attempt, sequences: dict[int, int] | None = None) -> bool:
        """One batch; whether it is acknowledged. `sequences`: the next ones of a transaction."""
        index = self.rng.randrange(len(self.world.history.partitions))
        sequence = -1 if sequences is None else sequences.get(index, 0)
        values = []
        for _ in range(self.rng.choice((1, 1, 3, 8))):
            self._sent += 1
            values.append(f"{self.name}-{self._sent}".encode())
            self.world.history.attempts[values[-1]] = attempt
        name = self.world.leader_of(index)
        if not name:
            return False
        sent_s = self.world.loop.time()
        try:
            answer = await self.connections.ask(name, self._batch(index, values, sequence), 12)
        except Lost:
            return False
        part = answer.responses[0].partition_responses[0]
        if part.error_code:
            return False
        known = self.world.history.partitions[index]
        for offset, value in enumerate(values, part.base_offset):
            attempt.written.append((index, offset, sent_s))
            known.facts.setdefault(offset, value)
        self.world.history.count("records written", len(values))
        if sequences is not None:
            sequences[index] = sequence + len(values)
        return True

    def _batch(self, index: int, values: list[bytes], sequence: int) -> ProduceRequest:
        now_ms = START_MS + int(self.world.loop.time() * 1000)
        is_transactional = sequence >= 0
        records = build_batch(
            [Record(n, now_ms, None, value) for n, value in enumerate(values)],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            transactional=is_transactional,
        )
        partition = ProduceRequest.PartitionProduceData(index=index, records=records)
        topic = ProduceRequest.TopicProduceData(name=self.world.topic, partition_data=[partition])
        return ProduceRequest(
            transactional_id=self.name if is_transactional else None,
            acks=-1,
            timeout_ms=2000,
            topic_data=[topic],
        )


class TransactionalWriter(PlainWriter):
    """Transactions one after the other, each in an epoch of its own."""

    def __init__(self, world: ShareWorld, name: str) -> None:
        super().__init__(world, name)
        self.connections = Connections(world, name, (OF_TRANSACTIONS, name))

    async def run(self) -> None:
        """Until the faults are over; then what is open is aborted."""
        while not self.world.is_quiet:
            await asyncio.sleep(self.rng.uniform(0.02, 0.25))
            if await self._begin():
                await self._transaction()
        for _ in range(TRIES):
            if await self._begin():
                break
        self.connections.close()

    async def _begin(self) -> bool:
        """A new epoch; an open transaction of the last one is aborted."""
        message = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=2000,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await self._ask(message, 4)
        if answer is None or answer.error_code:
            return False
        self.producer = answer.producer_id, answer.producer_epoch
        return True

    async def _transaction(self) -> None:
        attempt = Attempt()
        sequences: dict[int, int] = {}
        is_whole = True
        for _ in range(self.rng.randint(1, 3)):
            is_whole = is_whole and await self.write(attempt, sequences)
        await self._end(attempt, is_commit=is_whole and self.rng.random() < 0.6)

    async def _end(self, attempt: Attempt, *, is_commit: bool) -> None:
        message = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=is_commit,
        )
        attempt.is_sent_to_commit = is_commit
        if not is_commit:
            attempt.outcome = False
        answer = await self._ask(message, 5)
        if is_commit and answer is not None and answer.error_code == ErrorCode.NONE:
            attempt.outcome = True
        self.world.history.count(f"transactions ended as {attempt.outcome}")

    async def _ask(self, message: Message, version: int) -> Any:
        """A coordinator's last word, None without one."""
        for _ in range(TRIES):
            try:
                answer = await self.connections.ask_coordinator(message, version)
            except Lost:
                await asyncio.sleep(PAUSE_S)
                continue
            error = ErrorCode(answer.error_code)
            if error not in LATER:
                return answer
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self.connections.coordinator = ""
            await asyncio.sleep(PAUSE_S)
        return None
