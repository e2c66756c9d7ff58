"""One instance of a transactional producer, as raw requests: both protocols, every error judged.

The first protocol tells the coordinator of partitions and groups; the second (KIP-890) leaves that
to the leaders, and gets a new epoch at each end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.client import PAUSE_S, ClusterClient
from sim.cluster.groups import NOT_NOW
from sim.cluster.producers import LATER
from sim.cluster.transactions_ledger import ABORTED, UNKNOWN
from sim.history import Violation, require
from sim.wire import Lost
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.replication.internal_topics import partition_for
from tidelog.simulation.machine import START_MS
from tidelog.simulation.machines import host_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.txns import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from sim.cluster.transactions_ledger import Attempt
    from sim.history import PartitionHistory
    from tidelog_protocol.schema import Message

GROUP, TRANSACTION = 0, 1  # types of coordinators
COORDINATED = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
WAIT = NOT_NOW | LATER | {ErrorCode.CONCURRENT_TRANSACTIONS}
IMPATIENCE = 0.04
IMPATIENCE_AT_FIRST = 0.12  # while the leader asks the coordinator
ASKED_S = 0.004  # time to ask it
ABORT = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
GONE_ON = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class Abort(Exception):  # noqa: N818 - what has happened
    """The transaction can only be aborted."""


class NotMember(Abort):
    """Its group has gone on without who asked: another member has its partitions."""


class Fenced(Exception):  # noqa: N818 - what has happened
    """Another instance has the transactional id, or the coordinator has ended the transaction."""


class Membership(NamedTuple):
    """A member of a consumer group in one of its generations."""

    member_id: str
    generation: int


ANYBODY = Membership("", -1)


class TransactionalClient:
    """`name` is the instance; `transactional_id` what it shares with those before and after it."""

    def __init__(
        self, world: Any, transactional_id: str, name: str, host: str, rng: random.Random
    ) -> None:
        self.world, self.ledger = world, world.transactions.ledger
        self.transactional_id, self.name, self.rng = transactional_id, name, rng
        self.cluster = ClusterClient(world.machines, host, rng)
        self.is_v2 = rng.random() < 0.5
        self.timeout_ms = rng.choice((800, 3000, 60_000))
        self.producer_id = self.epoch = -1
        self.is_unresolved = False  # something was sent, and may come late
        self._coordinators: dict[tuple[str, int], int] = {}
        self._sequences: dict[PartitionHistory, int] = {}
        self._added: set[object] = set()
        self._sent: set[object] = set()  # partitions with a batch of this transaction
        self._is_started = False
        self.is_witness = False  # who gave the last answer was the coordinator all the while

    # -- coordinators --------------------------------------------------------------------------

    async def ask(self, key: str, kind: int, message: Message, version: int) -> Any:
        """One request to a coordinator, Lost if it can't be found or does not answer."""
        before = self._term(key, kind)
        try:
            node_id = self._coordinators.get((key, kind))
            if node_id is None:
                node_id = await self._find(key, kind)
            answer = await self.cluster.ask(node_id, message, version)
        except Lost:
            self.forget(key, kind)
            await asyncio.sleep(PAUSE_S)
            raise
        self.is_witness = before == self._term(key, kind) and before[0] == node_id
        return answer

    def _term(self, key: str, kind: int) -> tuple[int, int]:
        """Who is coordinator, and since which epoch, as the controller has it."""
        image = self.world.machines.image()
        topic = None if image is None else image.topics.get(COORDINATED[kind])
        if topic is None:
            return -1, -1
        state = topic.partitions[partition_for(key, len(topic.partitions))]
        return state.leader, state.leader_epoch

    def forget(self, key: str, kind: int) -> None:
        """It is not the coordinator: find another."""
        self._coordinators.pop((key, kind), None)

    async def _find(self, key: str, kind: int) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        response = await self.cluster.ask(self.cluster.any_broker(), request, 5)
        found = response.coordinators[0]
        error = ErrorCode(found.error_code)
        require(error is ErrorCode.NONE or error in NOT_NOW, f"FindCoordinator gives {error.name}")
        if error is not ErrorCode.NONE:
            raise Lost(error.name)
        node_id = self._coordinators[key, kind] = int(found.node_id)
        return node_id

    async def _until(
        self, ask: Callable[[], Awaitable[tuple[int, Any]]], key: str, kind: int, tries: int
    ) -> tuple[ErrorCode, Any, bool]:
        """Ask until the error does not pass by itself: it, the answer, and whether an earlier try
        may have been carried out. Abort after so many tries."""
        is_retry = False
        for _ in range(tries):
            try:
                code, answer = await ask()
            except Lost:
                is_retry = self.is_unresolved = True
                continue
            error = ErrorCode(code)
            if error not in WAIT:
                return error, answer, is_retry
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self.forget(key, kind)
                is_retry = True
            await asyncio.sleep(PAUSE_S)
        raise Abort("out of patience")

    def _patience(self) -> int:
        """Attempts before a transaction is given up."""
        return 1000 if self.world.is_quiet else self.rng.choice((3, 10, 40))

    # -- the life of an instance ---------------------------------------------------------------

    async def init(self, *, goes_on: bool = False) -> None:
        """Become the only one, or go on with the next epoch (KIP-360)."""
        known = (self.producer_id, self.epoch) if goes_on else (-1, -1)
        message = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        asked_s = 0.0

        async def ask() -> tuple[int, Any]:
            nonlocal asked_s
            asked_s = self.world.loop.time()
            answer = await self.ask(self.transactional_id, TRANSACTION, message, 4)
            return answer.error_code, answer

        error, answer, _ = await self._until(ask, self.transactional_id, TRANSACTION, 100_000)
        if error in FENCED and goes_on:
            raise Fenced(error.name)
        self._judge(error, "InitProducerId")
        self._holds(answer)
        if not goes_on:
            now_s = self.world.loop.time()
            self.ledger.began(self.transactional_id, self.name, asked_s, now_s)
        self.is_unresolved = False
        self.world.history.count("transactional instances")

    def _holds(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.ledger.holds(self.producer_id, self.epoch, self.name)
        self._sequences.clear()

    def _judge(self, error: ErrorCode, what: str) -> None:
        """Errors that no fault explains are violations."""
        if error is ErrorCode.NONE:
            return
        self.world.history.count(f"{what} {error.name}")
        if error is ErrorCode.PRODUCER_FENCED:
            raise Fenced(error.name)
        if error in ABORT:
            raise Abort(error.name)
        if error in GONE_ON and what == "TxnOffsetCommit":
            raise NotMember(error.name)
        if self._has_expired(error):
            raise Fenced(error.name)
        if not self.is_witness and what != "Produce":
            raise Fenced(error.name)
        raise Violation(f"{what} of {self.name} was answered {error.name}")

    def _has_expired(self, error: ErrorCode) -> bool:
        """Whether the transactional id was forgotten, or has another producer id by now: whoever
        ended the last transaction of its epochs began with a new one."""
        habits = self.world.transactions.habits
        may_be = habits.has_expiry or habits.epoch_max is not None
        if error is not ErrorCode.INVALID_PRODUCER_ID_MAPPING or not may_be:
            return False
        self.world.history.count("producer ids that are no more")
        return True

    def begin(self) -> Attempt:
        """A new transaction."""
        self._added.clear()
        self._sent.clear()
        self._is_started = False
        attempt: Attempt = self.ledger.new_attempt(self.transactional_id)
        return attempt

    # -- inside a transaction ------------------------------------------------------------------

    async def _add(self, target: PartitionHistory) -> None:
        """The first protocol: this partition belongs to it."""
        if target in self._added:
            return
        topic_of = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic_of(name=target.topic.name, partitions=[target.index])],
        )

        async def ask() -> tuple[int, Any]:
            answer = await self.ask(self.transactional_id, TRANSACTION, message, 3)
            topic = answer.results_by_topic_v3_and_below[0]
            return topic.results_by_partition[0].partition_error_code, answer

        patience = self._patience()
        error, _, _ = await self._until(ask, self.transactional_id, TRANSACTION, patience)
        self._judge(error, "AddPartitionsToTxn")
        self._added.add(target)
        self._is_started = True

    async def send(self, target: PartitionHistory, values: list[bytes]) -> None:
        """One batch, until it is acknowledged or the transaction is given up."""
        impatience = IMPATIENCE if target in self._sent else IMPATIENCE_AT_FIRST
        self._sent.add(target)
        if not self.is_v2:
            await self._add(target)
        sequence = self._sequences.get(target, 0)
        message = self._produce(target, values, sequence)
        version = 12 if self.is_v2 else self.rng.choice((9, 11))
        self._is_started = True
        for _ in range(self._patience()):
            try:
                _, node_id = await self.cluster.leader(target)
                if node_id < 0:
                    raise Lost("no leader")
                await self._perhaps_no_more(node_id, message, version, impatience)
                response = await self.cluster.ask(node_id, message, version)
            except Lost:
                self.is_unresolved = True
                await asyncio.sleep(PAUSE_S)
                await self.cluster.refresh()
                continue
            error = ErrorCode(response.responses[0].partition_responses[0].error_code)
            if error is ErrorCode.NONE:
                self._sequences[target] = sequence + len(values)
                return
            if error not in WAIT:
                self._judge(error, "Produce")
            self.is_unresolved = True  # some of these errors come after the append
            self.world.history.count(f"transactional produce {error.name}")
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()
        raise Abort("a batch is not acknowledged")

    async def _perhaps_no_more(
        self, node_id: int, message: Message, version: int, impatience: float = IMPATIENCE
    ) -> None:
        """Now and then a request is sent, and the transaction given up before its answer comes."""
        if self.world.is_quiet or self.rng.random() >= impatience:
            return
        connection = await self.cluster.connection(node_id)
        network, loop = self.world.machines.network, self.world.loop
        coordinator = self._coordinators.get((self.transactional_id, TRANSACTION), node_id)
        chance = self.rng.random()
        if chance < 0.4:  # and comes when the transaction is over
            links = [(self.cluster.name, host_of(node_id))]
            network.cut(links)
            loop.call_later(self.rng.choice((0.1, 0.5, 2.0)), network.heal, links)
        elif chance < 0.8:  # or in time, and then what the coordinator says of it comes too late
            link = (host_of(coordinator), host_of(node_id))
            network.slow_links[link] = (0.3, 0.8)
            loop.call_later(ASKED_S, network.slow_links.pop, link, None)
        connection.send(message, version)
        self.is_unresolved = True
        await asyncio.sleep(self.rng.choice((0.0, 0.0005, 0.002, 0.02, 0.3)))
        self.world.history.count("transactions given up in haste")
        raise Abort("who asked has lost patience")

    def _produce(
        self, target: PartitionHistory, values: list[bytes], sequence: int
    ) -> ProduceRequest:
        now_ms = START_MS + int(self.world.loop.time() * 1000)
        records = build_batch(
            [Record(delta, now_ms, None, value) for delta, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index=target.index, records=records)
        topic = ProduceRequest.TopicProduceData(
            name=target.topic.name, topic_id=target.topic.topic_id, partition_data=[data]
        )
        return ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=2000, topic_data=[topic]
        )

    async def send_offset(
        self, group: str, place: tuple[str, int], offset: int, member: Membership = ANYBODY
    ) -> None:
        """Have a group's offset committed with the transaction, perhaps in a member's name."""
        topic, index = place
        if not self.is_v2 and group not in self._added:
            await self._add_group(group)
        topic_of = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic_of.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        message = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            member_id=member.member_id,
            generation_id=member.generation,
            topics=[topic_of(name=topic, partitions=[partition])],
        )
        self._is_started = True

        version = 5 if self.is_v2 else 3

        async def ask() -> tuple[int, Any]:
            known = self._coordinators.get((group, GROUP))
            if known is not None:
                await self._perhaps_no_more(known, message, version)
            answer = await self.ask(group, GROUP, message, version)
            return answer.topics[0].partitions[0].error_code, answer

        error, _, _ = await self._until(ask, group, GROUP, self._patience())
        self._judge(error, "TxnOffsetCommit")

    async def _add_group(self, group: str) -> None:
        message = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )

        async def ask() -> tuple[int, Any]:
            answer = await self.ask(self.transactional_id, TRANSACTION, message, 3)
            return answer.error_code, answer

        patience = self._patience()
        error, _, _ = await self._until(ask, self.transactional_id, TRANSACTION, patience)
        self._judge(error, "AddOffsetsToTxn")
        self._added.add(group)
        self._is_started = True

    # -- its end -------------------------------------------------------------------------------

    async def commit(self, attempt: Attempt) -> None:
        """All of it. Abort: nobody knows, and this instance is at its end. Fenced: likewise, but
        for a first try that was refused."""
        attempt.end(UNKNOWN)
        asked_s = self.world.loop.time()
        try:
            error, answer, is_retry = await self._end(is_commit=True)
        except Abort:
            raise Fenced("the outcome is not known") from None
        # Second protocol: the coordinator has aborted it, in the name of the epoch that follows.
        is_over = self.is_v2 and error is ErrorCode.INVALID_TXN_STATE
        if error in FENCED or is_over:
            if not is_retry and self.is_witness:
                attempt.end(ABORTED)
            raise Fenced(error.name)
        if self._has_expired(error):
            raise Fenced(error.name)
        if error is not ErrorCode.NONE and not self.is_witness:
            raise Fenced("an earlier coordinator has the word")  # as in Kafka, and fatal there
        if error is not ErrorCode.NONE:
            raise Violation(f"the commit of {attempt} of {self.name} was answered {error.name}")
        self.ledger.committed(attempt, self.name, asked_s)
        await self._next(answer)

    async def abort(self, attempt: Attempt) -> None:
        """Nothing of it."""
        attempt.end(ABORTED)
        self.world.history.count("transactions aborted")
        if self._is_started:
            try:
                error, answer, _ = await self._end(is_commit=False)
            except Abort:
                raise Fenced("nobody aborts") from None
            if error in FENCED or self._has_expired(error):
                raise Fenced(error.name)
            if error is not ErrorCode.NONE and not self.is_witness:
                raise Fenced("an earlier coordinator has the word")
            if error is not ErrorCode.NONE:
                raise Violation(f"the abort of {attempt} of {self.name} was answered {error.name}")
            await self._next(answer)

    async def _end(self, *, is_commit: bool) -> tuple[ErrorCode, Any, bool]:
        message = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )

        async def ask() -> tuple[int, Any]:
            version = 5 if self.is_v2 else 4
            answer = await self.ask(self.transactional_id, TRANSACTION, message, version)
            return answer.error_code, answer

        patience = self._patience()
        return await self._until(ask, self.transactional_id, TRANSACTION, patience)

    async def _next(self, answer: Any) -> None:
        """Go on in the next epoch: always, or (first protocol) if what was sent may come late."""
        if self.is_v2:
            self._holds(answer)
            self.is_unresolved = False
        elif self.is_unresolved:
            await self.init(goes_on=True)

    def close(self) -> None:
        """End all connections."""
        self.cluster.close()
