"""The transaction coordinator: transactional ids of the partitions that this broker leads.

It performs what `decisions` decides: it writes the record, and once that is committed answers the
client and, at the end of a transaction, sends the markers. It owns the shards that `LedPartitions`
loads and unloads. The transaction APIs call it, and the metadata log on new images; it does not
know the wire. Requests are work for `awaiting.drive`.

A shard serves once everything loaded is committed: a decision that only this broker has in its log
must not reach the partitions, because another coordinator may decide otherwise.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import answer_early, answer_of, drive, first_answer_of
from tidelog.cluster.metadata.image import TRANSACTION_STATE_TOPIC
from tidelog.coordinators.led_partitions import LedPartitions
from tidelog.coordinators.transactions import decisions
from tidelog.coordinators.transactions.decisions import Ending, ProducerIdAndEpoch
from tidelog.coordinators.transactions.log_writer import append
from tidelog.coordinators.transactions.markers import Marking
from tidelog.coordinators.transactions.records import decode, record, tombstone
from tidelog.coordinators.transactions.shard import TransactionShard
from tidelog.coordinators.transactions.states import PREPARED, TransactionState
from tidelog.coordinators.transactions.transaction import (
    NO_EPOCH,
    Transaction,
    TransactionValue,
    TransactionVersion,
)
from tidelog.replication.internal_topics import InternalTopic, partition_for
from tidelog.turns import Turns
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.transactions.markers import MarkerSender
    from tidelog.coordinators.transactions.producer_ids import ProducerIds
    from tidelog.replication.internal_topics import KeyValue
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Timeline, TimerHandle
    from tidelog_protocol.records import BatchHeader, Record
    from tidelog_storage.types import TopicPartition

__all__ = ["TransactionCoordinator"]

logger = logging.getLogger(__name__)

TOMBSTONES_MAX = 1000  # in one batch: far below max.message.bytes
SWEPT_AT_ONCE = 5000  # transactions of one turn of the loop: about 10 ms
ABORTED_AS = 250  # others: what an open one counts for, because its end is written
REWRITE_S = 0.1  # between attempts to write that a transaction is complete


class TransactionCoordinator:
    """Transactional ids by partition, their records and their timeouts."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        sessions: Timeline,
        work: Timeline,
        replica_manager: ReplicaManager,
        producer_ids: ProducerIds,
        markers: MarkerSender,
    ) -> None:
        """Transactions time out in the time of `sessions`; unused ids expire in that of `work`."""
        self.config = config
        self.topic = InternalTopic(
            TRANSACTION_STATE_TOPIC,
            replica_manager,
            commit_timeout_ms=config.request_timeout_ms,
            load_buffer_bytes=config.transaction_state_log_load_buffer_size,
        )
        self.producer_ids = producer_ids
        self._clock = replica_manager.clock
        self._sessions = sessions
        self._markers = markers
        self.led: LedPartitions[TransactionShard] = LedPartitions(
            self.topic, replica_manager.node_id, sessions, self
        )
        self._sweeps: dict[str, TimerHandle | Turns] = {}
        late_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._sweep_every(sessions, late_ms, self.abort_late)
        unused_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._sweep_every(work, unused_ms, self.expire)

    # ---- elections ---------------------------------------------------------------------------

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        self._markers.on_image(image)
        self.led.on_image(delta, image)

    def close(self) -> None:
        """Unload all shards, as if another broker had taken over."""
        for sweep in self._sweeps.values():
            sweep.cancel()
        self.led.close()
        self._markers.close()

    def new_shard(self, index: int, leader_epoch: int) -> TransactionShard:
        """Create a shard; this and the next three methods are for `LedPartitions`."""
        return TransactionShard(index, leader_epoch)

    def replay(self, shard: TransactionShard, header: BatchHeader, record: Record) -> None:
        """Apply a record of the log."""
        change = None if header.is_control else decode(record.key, record.value)
        if change is not None:
            shard.replay(change, record.offset + 1)

    def loaded(self, shard: TransactionShard) -> None:
        """Serve once everything loaded is committed, and complete decided transactions."""
        drive(self._serve_committed(shard))

    async def _serve_committed(self, shard: TransactionShard) -> None:
        while True:
            error = await answer_of(partial(self.topic.commit, shard.index, shard.end_offset))
            if not self.led.holds(shard):
                return
            if error is not ErrorCode.REQUEST_TIMED_OUT:
                break
        if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            self._serve(shard)
        # Otherwise the partition is leaving this broker, as the next image shows.

    def _serve(self, shard: TransactionShard) -> None:
        shard.is_loading = False
        for transaction in shard.transactions.values():
            if transaction.value.state in PREPARED:
                target = transaction.prepare_complete(self._clock.wall_ms())
                drive(self._complete(shard, transaction, target))

    def resigned(self, shard: TransactionShard) -> None:
        """Stop sending markers: the new coordinator sends them."""
        self._markers.forget(shard)

    # ---- look-up -----------------------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        """Return an id's partition of `__transaction_state`."""
        count = self.led.partition_count or self.config.transaction_state_log_num_partitions
        return partition_for(transactional_id, count)

    def shard_of(self, transactional_id: str) -> TransactionShard | ErrorCode:
        """Return an id's shard, or the error if it is not served here now."""
        return self.led.at(self.partition_for(transactional_id))

    def find(self, transactional_id: str) -> tuple[TransactionShard, Transaction] | ErrorCode:
        """Return an id and its shard; INVALID_PRODUCER_ID_MAPPING if it is unknown."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        shard = self.shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return shard, transaction

    # ---- requests ----------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ErrorCode | ProducerIdAndEpoch:
        """Handle InitProducerId with a transactional id: bump the epoch, fence older producers."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        shard = self.shard_of(transactional_id)
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            shard = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if isinstance(shard, ErrorCode):
            return shard
        now_ms = self._clock.wall_ms()
        try:
            transaction = shard.transactions.get(transactional_id)
            if transaction is None:
                transaction = self._create(shard, transactional_id, timeout_ms, now_ms)
            target = decisions.init_producer_id(
                transaction, timeout_ms, expected, now_ms, self.producer_ids.take
            )
        except StorageError as error:
            return error.code
        if isinstance(target, ErrorCode):
            return target
        if target.state is TransactionState.PREPARE_EPOCH_FENCE:
            refusal = await self._abort(transaction, target)
            return ErrorCode.CONCURRENT_TRANSACTIONS if refusal is ErrorCode.NONE else refusal
        refusal = await self._write(shard, transaction, target)
        return _producer_of(target) if refusal is ErrorCode.NONE else refusal

    def _create(
        self, shard: TransactionShard, transactional_id: str, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """Create an unknown id. Its first record is that of its first epoch."""
        value = TransactionValue(
            producer_id=self.producer_ids.take(),
            producer_epoch=NO_EPOCH,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )
        transaction = shard.transactions[transactional_id] = Transaction(transactional_id, value)
        return transaction

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: AbstractSet[TopicPartition],
        client_version: int,
    ) -> ErrorCode:
        """Add partitions to a transaction, for AddPartitionsToTxn and AddOffsetsToTxn."""
        found = self.find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        shard, transaction = found
        decision = decisions.add_partitions(
            transaction, producer, partitions, self._clock.wall_ms(), client_version
        )
        if isinstance(decision, ErrorCode):
            return decision
        return await self._write(shard, transaction, decision)

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: AbstractSet[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Verify for a leader that the partitions were added before it appends (KIP-890)."""
        found = self.find(transactional_id)
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        return decisions.verify_partitions(found[1], producer, partitions)

    async def end(self, transactional_id: str, ending: Ending) -> ErrorCode | ProducerIdAndEpoch:
        """Handle EndTxn; return when the decision is committed; the markers follow.

        From transaction.version 2 on the result is the producer id and epoch to continue with.
        """
        found = self.find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        shard, transaction = found
        try:
            decision = decisions.end_transaction(
                transaction, ending, self._clock.wall_ms(), self.producer_ids.take
            )
        except StorageError as error:
            return error.code
        if not isinstance(decision, ErrorCode):
            return await first_answer_of(self._decide(shard, transaction, decision, ending))
        if decision is ErrorCode.NONE and ending.has_bump:
            return _producer_of(transaction.value)
        return decision

    async def _decide(
        self,
        shard: TransactionShard,
        transaction: Transaction,
        decision: TransactionValue,
        ending: Ending,
    ) -> ErrorCode | ProducerIdAndEpoch:
        """Write the end of a transaction; answer, then complete it."""
        error = await self._settle(shard, transaction, decision)
        if error is not ErrorCode.NONE:
            transaction.has_failed_fence = not (ending.is_from_client or ending.has_bump)
            return error
        target = decisions.complete_transaction(
            transaction, ending.producer, is_commit=ending.is_commit, now_ms=self._clock.wall_ms()
        )
        if isinstance(target, ErrorCode):
            return target
        await answer_early(_producer_of(target) if ending.has_bump else ErrorCode.NONE)
        await self._complete(shard, transaction, target)
        return ErrorCode.NONE

    # ---- timeouts and expiry ------------------------------------------------------------------

    def abort_late(self) -> Iterator[None]:
        """Abort transactions that have exceeded their timeout, and yield between parts."""
        now_ms = self._clock.wall_ms()
        for transaction in self._in_parts():
            if transaction is None:
                yield
                continue
            value = transaction.value
            is_late = (
                value.state is TransactionState.ONGOING
                and self._sessions.elapsed_ms(value.start_ms, now_ms) > value.timeout_ms
            )
            target = decisions.fence(transaction) if is_late else None
            if target is not None:
                logger.info("transaction %s timed out", transaction.transactional_id)
                drive(self._abort(transaction, target), _log_failure)

    def abort_open(self) -> Iterator[None]:
        """Abort all open transactions, as if they had exceeded their timeouts; yield between
        parts."""
        for transaction in self._in_parts():
            target = None if transaction is None else decisions.fence(transaction)
            if transaction is None:
                yield
            elif target is not None:
                drive(self._abort(transaction, target), _log_failure)

    def _in_parts(self) -> Iterator[Transaction | None]:
        """Yield the transactions here, and None after a part of them: those that are open take
        longer, as an end is written."""
        room = SWEPT_AT_ONCE
        for shard in self.led.active():
            for transaction in list(shard.transactions.values()):
                if room <= 0:
                    yield None
                    room = SWEPT_AT_ONCE
                is_current = shard.transactions.get(transaction.transactional_id) is transaction
                if is_current and self.led.holds(shard):
                    is_open = transaction.value.state is TransactionState.ONGOING
                    room -= ABORTED_AS if is_open else 1
                    yield transaction

    async def _abort(self, transaction: Transaction, fence: TransactionValue) -> ErrorCode:
        """Abort a fenced transaction, which only the coordinator may end."""
        # The cluster's own level of the feature counts, not the client's.
        ending = Ending(_producer_of(fence), False, False, TransactionVersion.V2)
        result = await self.end(transaction.transactional_id, ending)
        if transaction.pending is TransactionState.PREPARE_EPOCH_FENCE:
            transaction.abandon()
        return result if isinstance(result, ErrorCode) else ErrorCode.NONE

    def expire(self) -> Iterator[None]:
        """Expire ids that were not used for transactional.id.expiration.ms."""
        return self.forget_until(self._clock.wall_ms() - self.config.transactional_id_expiration_ms)

    def forget_until(self, oldest_ms: int) -> Iterator[None]:
        """Forget the ids without an open transaction that were not used since then; yield between
        parts."""
        for shard in self.led.active():
            ids = list(shard.transactions)
            for start in range(0, len(ids), TOMBSTONES_MAX):
                if start:
                    yield
                some = map(shard.transactions.get, ids[start : start + TOMBSTONES_MAX])
                idle = [each for each in some if each is not None and each.is_idle_since(oldest_ms)]
                if idle and self.led.holds(shard):
                    drive(self._forget(shard, idle))

    async def _forget(self, shard: TransactionShard, idle: list[Transaction]) -> None:
        for transaction in idle:
            transaction.prepare_dead()
        error = await self._append(shard, [tombstone(each.transactional_id) for each in idle])
        for transaction in idle:
            if error is ErrorCode.NONE:
                shard.transactions.pop(transaction.transactional_id, None)
            else:
                transaction.abandon()

    def _sweep_every(
        self, time: Timeline, interval_ms: int, sweep: Callable[[], Iterator[None]]
    ) -> None:
        again = partial(self._sweep_every, time, interval_ms, sweep)

        def run() -> None:
            self._sweeps[sweep.__name__] = turns = Turns(time, sweep(), again)
            turns.begin()

        self._sweeps[sweep.__name__] = time.call_at(time.time() + interval_ms / 1000, run)

    # ---- markers -----------------------------------------------------------------------------

    async def _complete(
        self, shard: TransactionShard, transaction: Transaction, target: TransactionValue
    ) -> None:
        """Send the markers, then write that the transaction is complete."""
        value = transaction.value

        def begin(on_done: Callable[[None], None]) -> None:
            self._markers.send(
                Marking(
                    shard,
                    value.producer_id,
                    value.producer_epoch,
                    is_commit=value.state is TransactionState.PREPARE_COMMIT,
                    transaction_version=value.client_version,
                    left=set(value.partitions),
                    on_done=on_done,
                )
            )

        await answer_of(begin)
        while self.led.holds(shard):
            error = await self._append(shard, [record(transaction.transactional_id, target)])
            if error is ErrorCode.NONE:
                transaction.complete(target)
                return
            if self.led.holds(shard):
                name = transaction.transactional_id
                logger.warning("Could not complete transaction %s: %s", name, error.name)
                await answer_of(self._pause)

    def _pause(self, on_done: Callable[[None], None]) -> None:
        self._sessions.call_at(self._sessions.time() + REWRITE_S, on_done, None)

    # ---- writing -----------------------------------------------------------------------------

    async def _write(
        self, shard: TransactionShard, transaction: Transaction, target: TransactionValue
    ) -> ErrorCode:
        """Write a pending change; return when it is complete or abandoned, or takes too long."""
        return await first_answer_of(self._settle(shard, transaction, target))

    async def _settle(
        self, shard: TransactionShard, transaction: Transaction, target: TransactionValue
    ) -> ErrorCode:
        error = await self._append(shard, [record(transaction.transactional_id, target)])
        if error is ErrorCode.NONE:
            transaction.complete(target)
        else:
            transaction.abandon()
        return error

    async def _append(self, shard: TransactionShard, records: list[KeyValue]) -> ErrorCode:
        """See `log_writer`."""
        return await append(self.led, shard, records, self._clock.wall_ms())


def _producer_of(value: TransactionValue) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(value.producer_id, value.producer_epoch)


def _log_failure(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        logger.warning("Could not abort a timed-out transaction: %s", error.name)
