"""Share groups (KIP-932): ShareGroupHeartbeat, ShareGroupDescribe.

Behaviour. While the cluster's `share.version` is 0 both are refused with UNSUPPORTED_VERSION. A
heartbeat is answered once its records are committed. A member gets partitions once the share
coordinator has their state, with a later heartbeat. There is no authorizer: the authorized
operations are all of them.

Version notes. Version 1 is the first; version 0 was of Kafka 4.0's early access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.group_admin import Missing, describe_modern, find_group
from tidelog.cluster.metadata.features import SHARE_FEATURE
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.share.assignor import NAME
from tidelog.coordinators.groups.share.group import ShareGroup
from tidelog.coordinators.groups.share.requests import ShareHeartbeat
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_groups import (
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.coordinators.groups.share.member import ShareMember
    from tidelog.coordinators.groups.share.membership import ShareMembership
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog_protocol.messages.share_groups import (
        ShareGroupDescribeRequest,
        ShareGroupHeartbeatRequest,
    )

__all__ = ["ShareGroupsApi"]

_HeartbeatAssignment = ShareGroupHeartbeatResponse.Assignment
_HeartbeatPartitions = ShareGroupHeartbeatResponse.TopicPartitions
_DescribedGroup = ShareGroupDescribeResponse.DescribedGroup
_DescribedMember = _DescribedGroup.Member
_DescribedAssignment = _DescribedMember.Assignment
_DescribedPartitions = _DescribedAssignment.TopicPartitions


class ShareGroupsApi:
    """Handlers of share groups' members and of their description."""

    def __init__(
        self, admin: GroupAdmin, image: Callable[[], ClusterImage], membership: ShareMembership
    ) -> None:
        self._admin = admin
        self._image = image
        self._membership = membership

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.SHARE_GROUP_DESCRIBE: self.describe,
        }

    @property
    def _is_on(self) -> bool:
        return self._image().features.get(SHARE_FEATURE, 0) >= 1

    # ---- ShareGroupHeartbeat -----------------------------------------------------------------

    def heartbeat(
        self, context: RequestContext, request: ShareGroupHeartbeatRequest
    ) -> Deferred | ShareGroupHeartbeatResponse:
        """Answer a ShareGroupHeartbeat request."""
        return context.answer_with(self._heartbeat(context, request), lambda response: response)

    async def _heartbeat(
        self, context: RequestContext, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse:
        if not self._is_on:
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        names = request.subscribed_topic_names
        heartbeat = ShareHeartbeat(
            request.member_id,
            request.member_epoch,
            request.rack_id,
            None if names is None else tuple(names),
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",  # as Java prints an address
        )
        try:
            answer = await self._membership.heartbeat(request.group_id, heartbeat)
        except RefusedError as refusal:
            return ShareGroupHeartbeatResponse(
                error_code=refusal.code, error_message=refusal.message
            )
        assignment = None
        if answer.assigned is not None:
            assignment = _HeartbeatAssignment(
                topic_partitions=[
                    _HeartbeatPartitions(
                        topic_id=topic_id, partitions=sorted(answer.assigned[topic_id])
                    )
                    for topic_id in sorted(answer.assigned)
                ]
            )
        return ShareGroupHeartbeatResponse(
            member_id=answer.member_id,
            member_epoch=answer.epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
            assignment=assignment,
        )

    # ---- ShareGroupDescribe ------------------------------------------------------------------

    def describe(self, context: RequestContext, request: ShareGroupDescribeRequest) -> Any:
        """Answer a ShareGroupDescribe request."""
        return describe_modern(context, request, self._described, ShareGroupDescribeResponse)

    def _described(self, group_id: str) -> _DescribedGroup:
        if not self._is_on:
            return _DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        group = find_group(self._admin, group_id, ShareGroup)
        if isinstance(group, Missing):
            return _DescribedGroup(
                group_id=group_id, error_code=group.code, error_message=group.message
            )
        return _DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=NAME,
            members=[self._described_member(each) for _, each in sorted(group.members.items())],
        )

    def _described_member(self, member: ShareMember) -> _DescribedMember:
        """Describe a member; partitions of deleted topics have no name and are left out."""
        names = self._image().topic_names
        said = member.subscription
        return _DescribedMember(
            member_id=member.member_id,
            rack_id=said.rack_id,
            member_epoch=member.epoch,
            client_id=said.client_id,
            client_host=said.client_host,
            subscribed_topic_names=sorted(said.topic_names),
            assignment=_DescribedAssignment(
                topic_partitions=[
                    _DescribedPartitions(
                        topic_id=topic_id,
                        topic_name=names[topic_id],
                        partitions=sorted(member.assigned[topic_id]),
                    )
                    for topic_id in sorted(member.assigned)
                    if topic_id in names
                ]
            ),
        )
