"""ListOffsets (2), OffsetForLeaderEpoch (23) and DeleteRecords (21).

Behaviour. ListOffsets answers each partition on its own: INVALID_REQUEST if it is named twice,
UNSUPPORTED_VERSION for a special timestamp that the version does not know, then the checks of epoch
and role and the look-up of `partition.py`. Only the leader answers OffsetForLeaderEpoch (KIP-101,
KIP-279). DeleteRecords moves log starts at once and is parked until every live replica has
followed.

Look-ups by time that begin in the remote tier are parked by `offsets_remote.py`.

Version notes, ListOffsets. 1: one offset. 2: isolation level. 4 (KIP-320): leader epochs. 5
(KIP-207): OFFSET_NOT_AVAILABLE, before that LEADER_NOT_AVAILABLE. 7 (KIP-734): -3, largest
timestamp. 8 (KIP-405): -4, earliest local. 9 (KIP-1005): -5, latest tiered. 10 (KIP-1075): timeout.
11 (KIP-1023): -6, earliest pending upload. OffsetForLeaderEpoch. 3: replica id; every id gets the
same answer. DeleteRecords. 1: as 0. 2: flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.image import is_internal_topic
from tidelog.network.wide_requests import PART_MAX, in_turns
from tidelog.replication.partition import (
    EARLIEST_LOCAL_TIMESTAMP,
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
    from collections.abc import Callable, Coroutine, Generator

    from tidelog.api.offsets_remote import RemoteOffsets, RemoteSearch
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog_protocol.messages.data import (
        DeleteRecordsRequest,
        ListOffsetsRequest,
        OffsetForLeaderEpochRequest,
    )
    from tidelog_storage.types import OffsetAndTimestamp

    _Deletions = list[tuple[Partition, int, Any]]  # with the answer of each

__all__ = ["OffsetsApi"]

# First version that knows each special timestamp; no version knows other negative ones.
_SPECIAL_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}

_CONSUMER = -1
_DEBUGGING_REPLICA = -2  # may ask followers too
_READ_COMMITTED = 1

_OffsetAnswer = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
_DeletionAnswer = DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult


class OffsetsApi:
    """Handlers of ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

    def __init__(
        self, replica_manager: ReplicaManager, remote: RemoteOffsets | None = None
    ) -> None:
        """`remote` is None if this broker has no remote tier."""
        self._replicas = replica_manager
        self._remote = remote

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
            ApiKey.DELETE_RECORDS: self.delete_records,
        }

    # ---- ListOffsets --------------------------------------------------------------------------

    def list_offsets(
        self, context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse | Deferred | Coroutine[Any, Any, ListOffsetsResponse]:
        """Answer a ListOffsets request."""
        searches: list[RemoteSearch] = []

        def finish(
            context: RequestContext, found: ListOffsetsResponse
        ) -> ListOffsetsResponse | Deferred:
            return self._search_remote(context, request, found, searches)

        answer: ListOffsetsResponse | Deferred | Coroutine[Any, Any, ListOffsetsResponse] = (
            in_turns(self._look_up(context.api_version, request, searches), context, finish)
        )
        return answer

    def _search_remote(
        self,
        context: RequestContext,
        request: ListOffsetsRequest,
        response: ListOffsetsResponse,
        searches: list[RemoteSearch],
    ) -> ListOffsetsResponse | Deferred:
        """Complete the response in the remote tier, if something is to be searched there."""
        if not searches:
            return response
        assert self._remote is not None
        return self._remote.list_offsets(context, response, searches, request.timeout_ms)

    def _look_up(
        self, version: int, request: ListOffsetsRequest, searches: list[RemoteSearch]
    ) -> Generator[None, None, ListOffsetsResponse]:
        """Answer all partitions, with a `yield` between parts of `PART_MAX`."""
        seen: set[tuple[str, int]] = set()
        duplicates: set[tuple[str, int]] = set()
        for asked in request.topics:
            for entry in asked.partitions:
                key = (asked.name, entry.partition_index)
                (duplicates if key in seen else seen).add(key)
        topics = []
        room = PART_MAX
        for topic in request.topics:
            answers: list[_OffsetAnswer] = []
            for partition in topic.partitions:
                if room == 0:
                    yield
                    room = PART_MAX
                room -= 1
                key = (topic.name, partition.partition_index)
                if key not in duplicates:
                    answers.append(self._offset(version, request, topic.name, partition, searches))
                elif key in seen:  # answered once, as in Kafka
                    seen.discard(key)
                    answers.append(_no_offset(key[1], ErrorCode.INVALID_REQUEST))
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
        searches: list[RemoteSearch],
    ) -> _OffsetAnswer:
        """Answer one partition; if the look-up begins in the remote tier, add it to `searches`,
        which fills in the answer."""
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
        leader_only = request.replica_id != _DEBUGGING_REPLICA
        answer = _OffsetAnswer(partition_index=index)

        def look(*, local_only: bool) -> OffsetAndTimestamp | SearchRemote | ErrorCode:
            try:
                return partition.offset_for(
                    timestamp,
                    isolation=isolation,
                    current_leader_epoch=asked.current_leader_epoch,
                    leader_only=leader_only,
                    local_only=local_only,
                )
            except (OSError, StorageError):
                return ErrorCode.KAFKA_STORAGE_ERROR

        if timestamp == EARLIEST_LOCAL_TIMESTAMP and request.replica_id >= 0:
            self._replicas.follower_begins(partition, request.replica_id)
        found = look(local_only=self._remote is None)
        if isinstance(found, SearchRemote):
            searches.append(
                self._search(partition, asked, version, answer, look, leader_only=leader_only)
            )
        else:
            _settle(answer, found, version)
        return answer

    def _search(
        self,
        partition: Partition,
        asked: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
        version: int,
        answer: _OffsetAnswer,
        look: Callable[..., OffsetAndTimestamp | SearchRemote | ErrorCode],
        *,
        leader_only: bool,
    ) -> RemoteSearch:
        from tidelog.api.offsets_remote import RemoteSearch  # noqa: PLC0415 - tiers alone need it

        def error() -> ErrorCode | None:
            now = self._replicas.partition(*partition.topic_partition)
            if isinstance(now, ErrorCode):
                return now
            if now is not partition:  # a partition of another topic with that name
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return now.leader_error(asked.current_leader_epoch, leader_only=leader_only)

        def local() -> OffsetAndTimestamp | ErrorCode:
            found = look(local_only=True)
            assert not isinstance(found, SearchRemote)
            return found

        return RemoteSearch(
            asked.timestamp,
            partition,
            error,
            local,
            lambda found: _settle(answer, found, version),
        )

    # ---- OffsetForLeaderEpoch -----------------------------------------------------------------

    def offset_for_leader_epoch(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Answer an OffsetForLeaderEpoch request."""
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

    def delete_records(self, context: RequestContext, request: DeleteRecordsRequest) -> Any:
        """Move log starts, in turns, then wait for the replicas."""
        work = self._move_log_starts(request)
        return in_turns(work, context, partial(self._await_deletion, request))

    def _move_log_starts(
        self, request: DeleteRecordsRequest
    ) -> Generator[None, None, tuple[DeleteRecordsResponse, _Deletions]]:
        """Return the answer as it is now, and what it waits for."""
        waits: _Deletions = []
        topics = []
        number = 0
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                number += 1
                if not number % PART_MAX:
                    yield
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
        return DeleteRecordsResponse(topics=topics), waits

    def _await_deletion(
        self,
        request: DeleteRecordsRequest,
        context: RequestContext,
        moved: tuple[DeleteRecordsResponse, _Deletions],
    ) -> DeleteRecordsResponse | Deferred:
        response, waits = moved
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


def _settle(answer: _OffsetAnswer, found: OffsetAndTimestamp | ErrorCode, version: int) -> None:
    """Put the outcome into the answer."""
    if isinstance(found, ErrorCode):
        if found is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
            found = ErrorCode.LEADER_NOT_AVAILABLE
        answer.error_code = found
        answer.timestamp = answer.offset = answer.leader_epoch = -1
    else:
        answer.error_code = 0
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        answer.leader_epoch = found.leader_epoch


def _no_offset(index: int, error: ErrorCode) -> _OffsetAnswer:
    return _OffsetAnswer(partition_index=index, error_code=error, timestamp=-1, offset=-1)
