"""TxnOffsetCommit: offsets of a group that take effect when a transaction commits (KIP-98,
KIP-447).

Behaviour. As in OffsetCommit, each topic and partition is checked against the cluster first, then
the group. The transaction's coordinator verifies that the group's partition of `__consumer_offsets`
belongs to the transaction, or adds it (version 5, KIP-890). The remaining offsets are written as
one batch of the transaction.

Version notes. Below 2 COORDINATOR_NOT_AVAILABLE replaces COORDINATOR_LOAD_IN_PROGRESS. 3 (KIP-447):
the member of the group. 4 and 5 (KIP-890): TRANSACTION_ABORTABLE; no AddOffsetsToTxn before it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.api.group_offsets import java_length
from tidelog.awaiting import called_back, drive
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.coordinators.groups.admin import Committer
from tidelog.coordinators.groups.offsets import OffsetAndMetadata, OffsetChange
from tidelog.network.wide_requests import PART_MAX
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txns import TxnOffsetCommitResponse
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.coordinators.transactions.decisions import ProducerIdAndEpoch
    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Clock
    from tidelog_protocol.messages.txns import TxnOffsetCommitRequest

__all__ = ["TxnOffsetsApi"]

_IMPLICIT_VERSION = 5
_ABORTABLE_VERSION = 4
_NO_SEQUENCE = -1

_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = _Topic.TxnOffsetCommitResponsePartition


class TxnOffsetsApi:
    """Handler of TxnOffsetCommit."""

    def __init__(
        self,
        admin: GroupAdmin,
        transactions: Transactions,
        clock: Clock,
        group_partition: Callable[[str], int],
        replicas: ReplicaManager,
    ) -> None:
        """`group_partition` returns a group's partition of `__consumer_offsets`."""
        self._admin = admin
        self._transactions = transactions
        self._replicas = replicas
        self._clock = clock
        self._group_partition = group_partition

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.TXN_OFFSET_COMMIT: self.commit}

    async def commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        """Answer a TxnOffsetCommit request."""
        errors: dict[TopicPartition, ErrorCode] = {}
        existing: list[TopicPartition] = []
        changes: list[OffsetChange] = []
        for _ in self._changes(request, errors, existing, changes):
            await asyncio.sleep(0)
        if existing:
            error = await self._write(context.api_version, request, changes)
            if len(existing) > PART_MAX:
                await asyncio.sleep(0)
            if error is not ErrorCode.NONE:
                errors.update(dict.fromkeys(existing, _told(error, context.api_version)))
        topics = []
        room = PART_MAX
        for topic in request.topics:
            if room <= 0:
                await asyncio.sleep(0)
                room = PART_MAX
            room -= len(topic.partitions)
            partitions = [
                _Partition(
                    partition_index=each.partition_index,
                    error_code=errors[TopicPartition(topic.name, each.partition_index)],
                )
                for each in topic.partitions
            ]
            if partitions:
                topics.append(_Topic(name=topic.name, partitions=partitions))
        return TxnOffsetCommitResponse(topics=topics)

    def _changes(
        self,
        request: TxnOffsetCommitRequest,
        errors: dict[TopicPartition, ErrorCode],
        existing: list[TopicPartition],
        changes: list[OffsetChange],
    ) -> Iterator[None]:
        """Find the partitions that exist and the offsets that may be written; set the error of each
        partition if the write succeeds. Yield between parts."""
        image = self._transactions.image
        metadata_bytes_max = self._transactions.config.offset_metadata_max_bytes
        now_ms = self._clock.wall_ms()
        number = 0
        for topic in request.topics:
            known = image.topics.get(topic.name)
            for each in topic.partitions:
                number += 1
                if not number % PART_MAX:
                    yield
                one = TopicPartition(topic.name, each.partition_index)
                metadata = each.committed_metadata or ""
                if known is None or not 0 <= one.partition < len(known.partitions):
                    errors[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                existing.append(one)
                errors[one] = ErrorCode.NONE
                if java_length(metadata) > metadata_bytes_max:
                    errors[one] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    offset = OffsetAndMetadata(
                        each.committed_offset,
                        each.committed_leader_epoch,
                        metadata,
                        now_ms,
                        topic_id=known.topic_id,
                    )
                    changes.append(OffsetChange(request.group_id, *one, offset))

    async def _write(
        self, version: int, request: TxnOffsetCommitRequest, changes: list[OffsetChange]
    ) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        from tidelog.coordinators.transactions.decisions import ProducerIdAndEpoch  # noqa: PLC0415 - seldom needed

        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        home = TopicPartition(GROUP_METADATA_TOPIC, self._group_partition(request.group_id))
        verify_only = version < _IMPLICIT_VERSION
        if not verify_only or self._transactions.config.transaction_partition_verification_enable:
            error = await self._verified(
                request.transactional_id, producer, home, verify_only=verify_only
            )
            if error is not ErrorCode.NONE:
                return error
        committer = Committer(request.member_id, request.group_instance_id, request.generation_id)
        work = self._admin.commit_in_transaction(request.group_id, committer, producer, changes)
        return await called_back(partial(drive, work))

    async def _verified(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        home: TopicPartition,
        *,
        verify_only: bool,
    ) -> ErrorCode:
        """Return whether the offsets may be written; ask the coordinator before the first ones."""
        partition = self._replicas.partition(*home)
        if isinstance(partition, ErrorCode) or not partition.is_leader:
            return ErrorCode.NOT_COORDINATOR
        verifications = self._transactions.verifications
        try:
            guard = verifications.begin(partition, *producer, _NO_SEQUENCE)
        except StorageError as refusal:
            return refusal.code
        if guard is None:
            return ErrorCode.NONE

        def again() -> None:
            nonlocal guard
            assert guard is not None
            guard = verifications.renew(guard)

        outcome = await self._transactions.add_partitions(
            transactional_id, producer, {home}, verify_only=verify_only, again=again
        )
        error = outcome.get(home, ErrorCode.UNKNOWN_SERVER_ERROR)
        if error is ErrorCode.NONE:
            try:
                verifications.redeem(guard, partition, _NO_SEQUENCE)
            except StorageError as refusal:
                return refusal.code
        return error


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error in a form that this version knows."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # a retry without looking for a coordinator
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if version < 2 and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.PRODUCER_FENCED:  # a leader uses this code for every client
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
