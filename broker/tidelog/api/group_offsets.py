"""Offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete.

Behaviour. OffsetCommit checks each topic and partition against the cluster first, then the group.
It writes the rest as one batch and answers when that is committed. OffsetFetch uses metadata only
to translate topic ids, so it returns offsets of deleted topics that are still stored. With
require_stable the answer waits for all writes before it, and partitions whose offset an open
transaction may still change get UNSTABLE_OFFSET_COMMIT.

Members of KIP-848 commit and fetch with their epoch; one partition that a lagging member may not
commit any more refuses the whole commit with STALE_MEMBER_EPOCH.

Version notes. OffsetCommit 2-4: retention time; 6 (KIP-320): leader epoch; 7 (KIP-345): instance
id; 9 (KIP-848): GROUP_ID_NOT_FOUND, which is ILLEGAL_GENERATION in older versions; 10 (KIP-848):
topic ids. OffsetFetch 1: errors in the partitions only; 2: null asks for all topics; 7 (KIP-447):
require_stable; 8 (KIP-709): several groups; 9 (KIP-848): member id and epoch; 10: topic ids.
OffsetDelete 0 (KIP-496).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import all_of
from tidelog.coordinators.groups.admin import Committer
from tidelog.coordinators.groups.now import NO_TIMESTAMP
from tidelog.coordinators.groups.offsets import ZERO_UUID, OffsetAndMetadata, OffsetChange
from tidelog.network.wide_requests import PART_MAX, in_turns
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from collections.abc import Set as AbstractSet
    from typing import Any

    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.seams import Clock
    from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetDeleteRequest

    Offsets = Mapping[str, Mapping[int, OffsetAndMetadata]]
    Unstable = AbstractSet[tuple[str, int]]

__all__ = ["GroupOffsetsApi", "java_length"]

_TOPIC_ID_VERSION = 10
_GROUPS_VERSION = 8
_DEFAULT_RETENTION = -1
_TIMESTAMP_MAX = (1 << 63) - 1

_CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_CommitPartition = OffsetCommitResponse.OffsetCommitResponsePartition
_FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchTopics = OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics
_FetchPartitions = _FetchTopics.OffsetFetchResponsePartitions
_DeleteTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_DeletePartition = OffsetDeleteResponse.OffsetDeleteResponsePartition


class _CommitAnswer:
    """Collects results in Kafka's order: topics with a refused partition first."""

    def __init__(self) -> None:
        self.topics: dict[tuple[str, bytes], _CommitTopic] = {}

    def add(
        self, topic: OffsetCommitRequest.OffsetCommitRequestTopic, index: int, error: int
    ) -> Any:
        """Add and return one partition's error code."""
        key = (topic.name, topic.topic_id)
        answer = self.topics.get(key)
        if answer is None:
            answer = self.topics[key] = _CommitTopic(name=topic.name, topic_id=topic.topic_id)
        partition = _CommitPartition(partition_index=index, error_code=error)
        answer.partitions.append(partition)
        return partition

    def response(self) -> OffsetCommitResponse:
        """Return the whole response."""
        return OffsetCommitResponse(topics=list(self.topics.values()))


class GroupOffsetsApi:
    """Handlers of committed offsets."""

    def __init__(
        self,
        admin: GroupAdmin,
        image: Callable[[], ClusterImage],
        clock: Clock,
        *,
        metadata_bytes_max: int,
    ) -> None:
        """`metadata_bytes_max` is offset.metadata.max.bytes."""
        self._admin = admin
        self._image = image
        self._clock = clock
        self._metadata_bytes_max = metadata_bytes_max

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.OFFSET_COMMIT: self.commit,
            ApiKey.OFFSET_FETCH: self.fetch,
            ApiKey.OFFSET_DELETE: self.delete,
        }

    # ---- OffsetCommit ------------------------------------------------------------------------

    def commit(self, context: RequestContext, request: OffsetCommitRequest) -> Any:
        """Answer an OffsetCommit request; a wide one is checked in turns."""
        work = self._checked(context.api_version, request)
        return in_turns(work, context, partial(self._commit, request))

    def _checked(
        self, version: int, request: OffsetCommitRequest
    ) -> Generator[None, None, tuple[_CommitAnswer, list[OffsetChange], list[Any]]]:
        """Return the answer if all goes well, what is to be written, and the part of the answer
        that an error of this changes."""
        answer = _CommitAnswer()
        now_ms = self._clock.wall_ms()
        expire_timestamp = NO_TIMESTAMP
        if request.retention_time_ms != _DEFAULT_RETENTION:
            expire_timestamp = min(now_ms + request.retention_time_ms, _TIMESTAMP_MAX)
        changes: list[OffsetChange] = []
        accepted = []
        existing = yield from self._existing(version, request, answer)
        for number, (topic, image, partition) in enumerate(existing):
            if number % PART_MAX == PART_MAX - 1:
                yield
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if java_length(metadata) > self._metadata_bytes_max:
                accepted.append(answer.add(topic, index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            accepted.append(answer.add(topic, index, ErrorCode.NONE))
            offset = OffsetAndMetadata(
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                now_ms,
                expire_timestamp,
                image.topic_id,
            )
            changes.append(OffsetChange(request.group_id, image.name, index, offset))
        return answer, changes, accepted

    def _commit(
        self,
        request: OffsetCommitRequest,
        context: RequestContext,
        checked: tuple[_CommitAnswer, list[OffsetChange], list[Any]],
    ) -> Deferred | OffsetCommitResponse:
        """Write what is accepted, and answer."""
        answer, changes, accepted = checked
        if not accepted:
            return answer.response()

        def respond(error: ErrorCode) -> OffsetCommitResponse:
            if error is not ErrorCode.NONE:
                for each in accepted:
                    each.error_code = error
            return answer.response()

        committer = Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            context.api_version,
        )
        work = self._admin.commit(request.group_id, committer, changes)
        return context.answer_with(work, respond)

    def _existing(
        self, version: int, request: OffsetCommitRequest, answer: _CommitAnswer
    ) -> Generator[None, None, list[tuple[Any, TopicImage, Any]]]:
        """Return topic, its image and partition of those that exist; add an error for the
        others."""
        cluster = self._image()
        accepted = []
        number = 0
        for topic in request.topics:
            if version >= _TOPIC_ID_VERSION:
                image = cluster.topic_by_id(topic.topic_id)
                missing = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                image = cluster.topics.get(topic.name)
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for partition in topic.partitions:
                number += 1
                if not number % PART_MAX:
                    yield
                index = partition.partition_index
                if image is None:
                    answer.add(topic, index, missing)
                elif not 0 <= index < len(image.partitions):
                    answer.add(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    accepted.append((topic, image, partition))
        return accepted

    # ---- OffsetFetch -------------------------------------------------------------------------

    def fetch(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> Deferred | OffsetFetchResponse:
        """Answer an OffsetFetch request."""
        version = context.api_version
        groups = request.groups if version >= _GROUPS_VERSION else [_single_group(request)]
        if not groups:
            return OffsetFetchResponse()
        stable = request.require_stable
        return context.answer_with(
            all_of(self._fetch_group(version, group, require_stable=stable) for group in groups),
            partial(_fetch_response, version),
        )

    async def _fetch_group(
        self,
        version: int,
        group: OffsetFetchRequest.OffsetFetchRequestGroup,
        *,
        require_stable: bool,
    ) -> _FetchGroup:
        error, offsets, unstable = await self._admin.fetch(
            group.group_id, (group.member_id, group.member_epoch), require_stable=require_stable
        )
        answer = self._fetched(version, group, error, offsets)
        if unstable:
            _mark_unstable(answer, unstable)
        return answer

    def _fetched(
        self,
        version: int,
        group: OffsetFetchRequest.OffsetFetchRequestGroup,
        error: ErrorCode,
        offsets: Offsets,
    ) -> _FetchGroup:
        answer = _FetchGroup(group_id=group.group_id, error_code=error)
        if error is not ErrorCode.NONE:
            if version < 2:  # only partitions have a field for it
                answer.topics = [
                    _no_offsets(topic.name, ZERO_UUID, topic.partition_indexes, error)
                    for topic in group.topics or ()
                ]
        elif group.topics is None:
            answer.topics = self._all_topics(version, offsets)
        else:
            topics = [self._asked_topic(version, topic, offsets) for topic in group.topics]
            if version >= _TOPIC_ID_VERSION:  # as Kafka: unknown ids come last
                topics.sort(key=lambda topic: not topic.name)
            answer.topics = topics
        return answer

    def _all_topics(self, version: int, offsets: Offsets) -> list[_FetchTopics]:
        cluster = self._image()
        answers = []
        for name, partitions in offsets.items():
            image = cluster.topics.get(name)
            if image is None and version >= _TOPIC_ID_VERSION:
                continue  # it cannot be named
            answers.append(
                _FetchTopics(
                    name=name,
                    topic_id=ZERO_UUID if image is None else image.topic_id,
                    partitions=[_offset(index, each) for index, each in partitions.items()],
                )
            )
        return answers

    def _asked_topic(
        self,
        version: int,
        topic: OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics,
        offsets: Offsets,
    ) -> _FetchTopics:
        name, topic_id = topic.name, ZERO_UUID
        if version >= _TOPIC_ID_VERSION:
            topic_id = topic.topic_id
            image = self._image().topic_by_id(topic_id)
            if image is None:
                return _no_offsets(
                    "", topic_id, topic.partition_indexes, ErrorCode.UNKNOWN_TOPIC_ID
                )
            name = image.name
        known = offsets.get(name, {})
        answer = _FetchTopics(name=name, topic_id=topic_id)
        for index in topic.partition_indexes:
            offset = known.get(index)
            if offset is None or not offset.is_of(topic_id):
                answer.partitions.append(_no_offset(index, ErrorCode.NONE))
            else:
                answer.partitions.append(_offset(index, offset))
        return answer

    # ---- OffsetDelete ------------------------------------------------------------------------

    def delete(self, context: RequestContext, request: OffsetDeleteRequest) -> Any:
        """Answer an OffsetDelete request; a wide one is checked in turns."""
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return in_turns(self._known(request), context, partial(self._delete, request))

    def _known(
        self, request: OffsetDeleteRequest
    ) -> Generator[None, None, tuple[dict[str, _DeleteTopic], dict[str, list[Any]]]]:
        """Return the answer if all goes well, by topic, and its partitions that exist."""
        cluster = self._image()
        answers: dict[str, _DeleteTopic] = {}
        existing: dict[str, list[Any]] = {}
        number = 0
        for topic in request.topics:
            for partition in topic.partitions:
                number += 1
                if not number % PART_MAX:
                    yield
                index = partition.partition_index
                one = _DeletePartition(partition_index=index)
                if cluster.partition(topic.name, index) is None:
                    one.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    answer = answers.setdefault(topic.name, _DeleteTopic(name=topic.name))
                    answer.partitions.append(one)
                else:
                    existing.setdefault(topic.name, []).append(one)
        return answers, existing

    def _delete(
        self,
        request: OffsetDeleteRequest,
        context: RequestContext,
        known: tuple[dict[str, _DeleteTopic], dict[str, list[Any]]],
    ) -> Deferred | OffsetDeleteResponse:
        """Delete the offsets of what exists, and answer."""
        answers, existing = known

        def respond(results: ErrorCode | Mapping[str, ErrorCode]) -> OffsetDeleteResponse:
            if isinstance(results, ErrorCode):
                return OffsetDeleteResponse(error_code=results)
            for name, partitions in existing.items():
                if results[name] is not ErrorCode.NONE:
                    for one in partitions:
                        one.error_code = results[name]
                answer = answers.setdefault(name, _DeleteTopic(name=name))
                answer.partitions += partitions
            return OffsetDeleteResponse(topics=list(answers.values()))

        topics = {
            name: [one.partition_index for one in partitions]
            for name, partitions in existing.items()
        }
        work = self._admin.delete_offsets(request.group_id, topics)
        return context.answer_with(work, respond)


def java_length(text: str) -> int:
    """Return the length as Java counts it: a character outside the basic plane counts as two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _single_group(request: OffsetFetchRequest) -> OffsetFetchRequest.OffsetFetchRequestGroup:
    """Convert a request before v8 to the form of later ones."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=topic.name, partition_indexes=topic.partition_indexes
            )
            for topic in request.topics
        ]
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch_response(version: int, groups: list[_FetchGroup]) -> OffsetFetchResponse:
    if version >= _GROUPS_VERSION:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _offset(index: int, offset: OffsetAndMetadata) -> _FetchPartitions:
    return _FetchPartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _no_offset(index: int, error: ErrorCode) -> _FetchPartitions:
    return _FetchPartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )


def _no_offsets(name: str, topic_id: bytes, indexes: list[int], error: ErrorCode) -> _FetchTopics:
    return _FetchTopics(
        name=name, topic_id=topic_id, partitions=[_no_offset(index, error) for index in indexes]
    )


def _mark_unstable(answer: _FetchGroup, unstable: Unstable) -> None:
    """Replace offsets that may change by an error, so that the client retries. If it asks for all
    topics, offsets that only an open transaction has are left out, as in Kafka."""
    for topic in answer.topics:
        topic.partitions = [
            _no_offset(each.partition_index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if (topic.name, each.partition_index) in unstable and not each.error_code
            else each
            for each in topic.partitions
        ]
