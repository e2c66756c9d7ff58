"""Streams groups (KIP-1071): StreamsGroupHeartbeat, StreamsGroupDescribe.

Behaviour. Both are refused with UNSUPPORTED_VERSION while the cluster's `streams.version` is 0, or
if `group.coordinator.rebalance.protocols` has no `streams`. A heartbeat is answered once its
records are committed. The internal topics of the topology are created meanwhile; the answers say
which are missing, and why they could not be created: the member needs CREATE on the cluster or on
each of them. The authorized operations are all of them; an authorizer's guard corrects them.

Version notes. Version 0 is the only one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.group_admin import Missing, describe_modern, find_group
from tidelog.cluster.metadata.features import STREAMS_FEATURE
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.streams.group import StreamsGroup
from tidelog.coordinators.groups.streams.wire import described, heartbeat_of, response_of
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_groups import (
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.coordinators.groups.streams.membership import StreamsMembership
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.security.authorizer import Authorizer
    from tidelog_protocol.messages.streams_groups import (
        StreamsGroupDescribeRequest,
        StreamsGroupHeartbeatRequest,
    )

__all__ = ["StreamsGroupsApi"]

_DescribedGroup = StreamsGroupDescribeResponse.DescribedGroup


class StreamsGroupsApi:
    """Handlers of streams groups' members and of their description."""

    def __init__(
        self,
        admin: GroupAdmin,
        image: Callable[[], ClusterImage],
        membership: StreamsMembership,
        authorizer: Authorizer | None = None,
        *,
        is_allowed: bool = True,
    ) -> None:
        """`is_allowed`: the broker's settings have the protocol."""
        self._authorizer = authorizer
        self._admin = admin
        self._image = image
        self._membership = membership
        self._is_allowed = is_allowed

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.STREAMS_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.STREAMS_GROUP_DESCRIBE: self.describe,
        }

    def _is_on(self) -> bool:
        return self._is_allowed and self._image().features.get(STREAMS_FEATURE, 0) >= 1

    # ---- StreamsGroupHeartbeat ---------------------------------------------------------------

    def heartbeat(
        self, context: RequestContext, request: StreamsGroupHeartbeatRequest
    ) -> Deferred | StreamsGroupHeartbeatResponse:
        """Answer a StreamsGroupHeartbeat request."""
        if not self._is_on():
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        work = self._heartbeat(context, request)
        return context.answer_with(work, lambda response: response)

    async def _heartbeat(
        self, context: RequestContext, request: StreamsGroupHeartbeatRequest
    ) -> StreamsGroupHeartbeatResponse:
        host = f"/{context.client_host}"  # as Java prints an address
        heartbeat = heartbeat_of(request, context.client_id or "", host)
        may_create = None
        if self._authorizer is not None:
            caller = self._authorizer.caller(context.peer.principal, context.client_host)
            may_create = caller.may_create_topic
        try:
            answer = await self._membership.heartbeat(request.group_id, heartbeat, may_create)
        except RefusedError as refusal:
            return StreamsGroupHeartbeatResponse(
                error_code=refusal.code, error_message=refusal.message
            )
        return response_of(answer)

    # ---- StreamsGroupDescribe ----------------------------------------------------------------

    def describe(self, context: RequestContext, request: StreamsGroupDescribeRequest) -> Any:
        """Answer a StreamsGroupDescribe request."""
        return describe_modern(context, request, self._described, StreamsGroupDescribeResponse)

    def _described(self, group_id: str) -> _DescribedGroup:
        if not self._is_on():
            return _DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        group = find_group(self._admin, group_id, StreamsGroup)
        if isinstance(group, Missing):
            return _DescribedGroup(
                group_id=group_id, error_code=group.code, error_message=group.message
            )
        return described(group)
