"""Offsets of share groups (KIP-932): DescribeShareGroupOffsets, AlterShareGroupOffsets,
DeleteShareGroupOffsets.

Behaviour. The share coordinator has the offsets; the group coordinator knows which there are. A
share partition without a state has start offset -1 and no error. Offsets of a group with members
are not changed. AlterShareGroupOffsets makes a group that is not there. While the cluster's
`share.version` is 0 all of it is refused with UNSUPPORTED_VERSION.

Version notes. DescribeShareGroupOffsets 1 (KIP-1226): lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.awaiting import all_of
from tidelog.cluster.metadata.features import SHARE_FEATURE
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.network.wide_requests import PART_MAX
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.share.offsets import DescribedTopic, ShareOffsets
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog_protocol.messages.share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequest,
    )

__all__ = ["ShareGroupOffsetsApi"]

_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = _Group.DescribeShareGroupOffsetsResponseTopic
_Partition = _Topic.DescribeShareGroupOffsetsResponsePartition
_AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_AlteredPartition = _AlteredTopic.AlterShareGroupOffsetsResponsePartition
_DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


class ShareGroupOffsetsApi:
    """Handlers of a share group's offsets."""

    def __init__(self, offsets: ShareOffsets, image: Callable[[], ClusterImage]) -> None:
        self._all_offsets = offsets
        self._image = image

    @property
    def _offsets(self) -> ShareOffsets:
        if self._image().features.get(SHARE_FEATURE, 0) < 1:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        return self._all_offsets

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self.describe,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self.alter,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self.delete,
        }

    def describe(
        self, context: RequestContext, request: DescribeShareGroupOffsetsRequest
    ) -> Deferred | DescribeShareGroupOffsetsResponse:
        """Answer a DescribeShareGroupOffsets request."""
        return context.answer_with(
            all_of(self._described(group) for group in request.groups),
            lambda groups: DescribeShareGroupOffsetsResponse(groups=groups),
        )

    async def _described(
        self, group: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    ) -> _Group:
        answer = _Group(group_id=group.group_id)
        try:
            for part in self._parts(group):
                for found in await self._offsets.describe(group.group_id, part):
                    _add(answer.topics, found)
        except RefusedError as refusal:
            return _Group(
                group_id=group.group_id,
                error_code=refusal.code,
                error_message=_message(refusal.code, refusal.message),
            )
        return answer

    def _parts(
        self, group: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    ) -> Iterator[Mapping[str, Sequence[int]]]:
        """Yield the partitions of a request by topic: those that it names, of which a wide request
        has few here, or all that the group has, `PART_MAX` at a time."""
        if group.topics is not None:
            yield {each.topic_name: each.partitions for each in group.topics}
            return
        initialized = self._offsets.initialized(group.group_id)
        places = [(name, each) for name, indexes in initialized.items() for each in indexes]
        for start in range(0, len(places), PART_MAX):
            part: dict[str, list[int]] = {}
            for name, each in places[start : start + PART_MAX]:
                part.setdefault(name, []).append(each)
            yield part

    def alter(
        self, context: RequestContext, request: AlterShareGroupOffsetsRequest
    ) -> Deferred | AlterShareGroupOffsetsResponse:
        """Answer an AlterShareGroupOffsets request."""
        return context.answer_with(self._alter(request), lambda response: response)

    async def _alter(
        self, request: AlterShareGroupOffsetsRequest
    ) -> AlterShareGroupOffsetsResponse:
        topics = {
            topic.topic_name: {each.partition_index: each.start_offset for each in topic.partitions}
            for topic in request.topics
        }
        try:
            found = await self._offsets.alter(request.group_id, topics)
        except RefusedError as refusal:
            return AlterShareGroupOffsetsResponse(
                error_code=refusal.code, error_message=_message(refusal.code, refusal.message)
            )
        return AlterShareGroupOffsetsResponse(
            responses=[
                _AlteredTopic(
                    topic_name=name,
                    topic_id=topic_id,
                    partitions=[
                        _AlteredPartition(
                            partition_index=partition,
                            error_code=outcome.error,
                            error_message=_message(outcome.error, outcome.message),
                        )
                        for partition, outcome in outcomes.items()
                    ],
                )
                for name, topic_id, outcomes in found
            ]
        )

    def delete(
        self, context: RequestContext, request: DeleteShareGroupOffsetsRequest
    ) -> Deferred | DeleteShareGroupOffsetsResponse:
        """Answer a DeleteShareGroupOffsets request."""
        return context.answer_with(self._delete(request), lambda response: response)

    async def _delete(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse:
        names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
        try:
            found = await self._offsets.delete(request.group_id, names)
        except RefusedError as refusal:
            return DeleteShareGroupOffsetsResponse(
                error_code=refusal.code, error_message=_message(refusal.code, refusal.message)
            )
        return DeleteShareGroupOffsetsResponse(
            responses=[
                _DeletedTopic(
                    topic_name=name,
                    topic_id=topic_id,
                    error_code=outcome.error,
                    error_message=_message(outcome.error, outcome.message),
                )
                for name, topic_id, outcome in found
            ]
        )


def _add(topics: list[_Topic], found: DescribedTopic) -> None:
    """Add described partitions, to the last topic if they are of it."""
    if not topics or topics[-1].topic_name != found.name:
        topics.append(_Topic(topic_name=found.name, topic_id=found.topic_id))
    topics[-1].partitions += [
        _Partition(
            partition_index=each.partition,
            start_offset=each.start_offset,
            leader_epoch=each.leader_epoch,
            lag=each.lag,
            error_code=each.error,
            error_message=_message(each.error, None),
        )
        for each in found.partitions
    ]


_TEXTS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "The coordinator is loading and hence can't process requests."
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
}


def _message(error: ErrorCode, message: str | None) -> str | None:
    """Return the text beside an error, none beside no error."""
    if error is ErrorCode.NONE:
        return None
    return message or _TEXTS.get(error, error.name)
