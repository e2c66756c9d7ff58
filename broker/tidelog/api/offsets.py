"""ListOffsets (2), OffsetForLeaderEpoch (23) and DeleteRecords (21): where a log begins, ends and
is cut.

Behaviour. ListOffsets answers each partition alone: named twice INVALID_REQUEST; a special
timestamp that its version does not know UNSUPPORTED_VERSION; then epoch, role and look-up in
`partition.py`. OffsetForLeaderEpoch is answered by the leader alone, with replication.md 5.2.
DeleteRecords moves log starts at once and is parked until every live replica has followed.

Left out: look-ups by time in the remote tier, and with it the timeout of v10.

Version notes, ListOffsets. 1: one offset. 2: isolation level. 4 (KIP-320): leader epochs. 5
(KIP-207): OFFSET_NOT_AVAILABLE, before that LEADER_NOT_AVAILABLE. 7 (KIP-734): -3, largest
timestamp. 8 (KIP-405): -4, earliest local. 9 (KIP-1005): -5, latest tiered. 10 (KIP-1075): timeout.
11 (KIP-1023): -6, earliest pending upload. OffsetForLeaderEpoch. 3: replica id; every id gets the
same answer. DeleteRecords. 1: as 0. 2: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metadata.image import is_internal_topic
from tidelog.replication.partition import (
    HIGH_WATERMARK,
    LOG_END,
    TRANSACTION_COMMITTED,
    SearchRemote,
)
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import (
    DeleteRecordsResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
)
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.dispatch import Deferred, Handler, RequestContext
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog_protocol.messages.data import (
        DeleteRecordsRequest,
        ListOffsetsRequest,
        OffsetForLeaderEpochRequest,
    )

__all__ = ["OffsetsApi"]

# First version that knows each special timestamp; other negative ones are known to none.
_SPECIAL_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}

_CONSUMER = -1
_DEBUGGING_REPLICA = -2  # may ask replicas that do not lead
_READ_COMMITTED = 1

_OffsetAnswer = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
_DeletionAnswer = DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult


class OffsetsApi:
    """Handlers of ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replicas = replica_manager

    def handlers(self) -> dict[ApiKey, Handler]:
        """What this object serves."""
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
            ApiKey.DELETE_RECORDS: self.delete_records,
        }

    # ---- ListOffsets --------------------------------------------------------------------------

    def list_offsets(
        self, context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        """Offsets by timestamp or by the special ones."""
        seen: set[tuple[str, int]] = set()
        duplicates: set[tuple[str, int]] = set()
        for asked in request.topics:
            for entry in asked.partitions:
                key = (asked.name, entry.partition_index)
                (duplicates if key in seen else seen).add(key)
        topics = []
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                if key in duplicates:
                    if key in seen:  # answered once, as in Kafka
                        seen.discard(key)
                        answers.append(_no_offset(key[1], ErrorCode.INVALID_REQUEST))
                else:
                    answers.append(
                        self._offset(context.api_version, request, topic.name, partition)
                    )
            topics.append(
                ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers)
            )
        return ListOffsetsResponse(topics=topics)

    def _offset(
        self,
        version: int,
        request: ListOffsetsRequest,
        topic: str,
        asked: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
    ) -> _OffsetAnswer:
        index = asked.partition_index
        timestamp = asked.timestamp
        if timestamp < 0 and version < _SPECIAL_SINCE.get(timestamp, version + 1):
            return _no_offset(index, ErrorCode.UNSUPPORTED_VERSION)
        partition = self._replicas.partition(topic, index)
        if isinstance(partition, ErrorCode):
            return _no_offset(index, partition)
        if request.replica_id != _CONSUMER:
            isolation = LOG_END
        elif request.isolation_level == _READ_COMMITTED:
            isolation = TRANSACTION_COMMITTED
        else:
            isolation = HIGH_WATERMARK
        try:
            found = partition.offset_for(
                timestamp,
                isolation=isolation,
                current_leader_epoch=asked.current_leader_epoch,
                leader_only=request.replica_id != _DEBUGGING_REPLICA,
                local_only=True,
            )
        except (OSError, StorageError):
            found = ErrorCode.KAFKA_STORAGE_ERROR
        assert not isinstance(found, SearchRemote)
        if isinstance(found, ErrorCode):
            if found is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
                found = ErrorCode.LEADER_NOT_AVAILABLE
            return _no_offset(index, found)
        return _OffsetAnswer(
            partition_index=index,
            error_code=0,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    # ---- OffsetForLeaderEpoch -----------------------------------------------------------------

    def offset_for_leader_epoch(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Where leader epochs ended."""
        del context
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition)
                partition = self._replicas.partition(topic.topic, asked.partition)
                end = (
                    partition
                    if isinstance(partition, ErrorCode)
                    else partition.end_offset_for_epoch(
                        asked.leader_epoch, current_leader_epoch=asked.current_leader_epoch
                    )
                )
                if isinstance(end, ErrorCode):
                    answer.error_code = end
                else:
                    answer.leader_epoch = end.leader_epoch
                    answer.end_offset = end.offset
                answers.append(answer)
            topics.append(
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=answers
                )
            )
        return OffsetForLeaderEpochResponse(topics=topics)

    # ---- DeleteRecords ------------------------------------------------------------------------

    def delete_records(
        self, context: RequestContext, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse | Deferred:
        """Move log starts, then wait for the replicas."""
        waits: list[tuple[Partition, int, _DeletionAnswer]] = []
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                answer = _DeletionAnswer(partition_index=asked.partition_index, low_watermark=-1)
                answers.append(answer)
                deleted = self._delete(topic.name, asked.partition_index, asked.offset)
                if isinstance(deleted, ErrorCode):
                    answer.error_code = deleted
                else:
                    partition, offset = deleted
                    answer.low_watermark = partition.low_watermark
                    waits.append((partition, offset, answer))
            topics.append(
                DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=answers)
            )
        response = DeleteRecordsResponse(topics=topics)
        if all(answer.low_watermark >= offset for _, offset, answer in waits):
            return response

        def settle(errors: list[ErrorCode]) -> None:
            for (partition, _, answer), error in zip(waits, errors, strict=True):
                answer.error_code = error
                answer.low_watermark = partition.low_watermark

        def on_done(errors: list[ErrorCode]) -> None:
            settle(errors)
            deferred.complete(response)

        operation = self._replicas.await_deletion(
            [(partition, offset) for partition, offset, _ in waits], request.timeout_ms, on_done
        )
        deferred = context.defer(
            on_cancel=lambda: self._replicas.delete_records_purgatory.cancel(operation)
        )
        return deferred

    def _delete(self, topic: str, index: int, offset: int) -> tuple[Partition, int] | ErrorCode:
        partition = self._replicas.partition(topic, index)
        if partition is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_internal_topic(topic):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if isinstance(partition, ErrorCode):
            return partition
        try:
            deleted = partition.delete_records(offset)
        except StorageError as error:
            return error.code
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return deleted if isinstance(deleted, ErrorCode) else (partition, deleted)


def _no_offset(index: int, error: ErrorCode) -> _OffsetAnswer:
    return _OffsetAnswer(partition_index=index, error_code=error, timestamp=-1, offset=-1)
