"""Groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and their administration.

Behaviour. FindCoordinator creates `__consumer_offsets` or `__transaction_state` if it is missing
and answers once it exists (Kafka answers COORDINATOR_NOT_AVAILABLE and creates it meanwhile: the
client's retry costs more than the creation); so with `__share_group_state`, whose coordinators are
found by keys of share partitions. The coordinator parks joins and syncs until their group decides.
If the connection of a parked join closes, its member stays until its session ends, as in Kafka.
There is no authorizer, so the authorized operations of DescribeGroups are all of them.

Version notes. FindCoordinator 4 (KIP-699): several keys; 6 (KIP-932): share keys. JoinGroup 1: a
rebalance timeout separate from the session timeout; 4 (KIP-394): MEMBER_ID_REQUIRED; 5 (KIP-345):
static members; 7 (KIP-559): protocol type, null protocol; 8 (KIP-800): reason; 9 (KIP-814): skip
the assignment. SyncGroup 5 (KIP-559): protocol type and name are mandatory. LeaveGroup 3 (KIP-345):
several members; before, the one member's error is the request's. DescribeGroups 6 (KIP-1043):
GROUP_ID_NOT_FOUND instead of a dead group. ListGroups 4 (KIP-518) and 5 (KIP-848): filters by state
and by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from tidelog.coordinators.groups.classic.member import JoinRequest, LeavingMember, SyncRequest
from tidelog.coordinators.share.values import SharePartition
from tidelog.network.wide_requests import PART_MAX
from tidelog.replication.internal_topics import ensure, partition_for
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.groups import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.classic.member import JoinResult, LeaveResult, SyncResult
    from tidelog.coordinators.groups.classic.membership import ClassicMembership
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.replication.internal_topics import Topics
    from tidelog.security.authorizer import Authorizer
    from tidelog_protocol.messages.groups import (
        FindCoordinatorRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
    )

__all__ = ["GroupsApi"]

_SHARE_KEY_TYPE = 2
_TOPICS = {
    0: GROUP_METADATA_TOPIC,
    1: TRANSACTION_STATE_TOPIC,
    _SHARE_KEY_TYPE: SHARE_GROUP_STATE_TOPIC,
}
"""The topic in which the coordinators of a key type keep their state."""

_Coordinator = FindCoordinatorResponse.Coordinator

_INVALID_REQUEST = (  # Kafka's message for a type of coordinator that it does not run
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
# Kafka leaves the message empty from v4 on, except for types that it does not know at all.
_MESSAGES_BEFORE_V4 = {
    ErrorCode.NONE: ErrorCode.NONE.name,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: _INVALID_REQUEST,
}


class GroupsApi:
    """Handlers of membership."""

    def __init__(
        self,
        members: ClassicMembership,
        image: Callable[[], ClusterImage],
        topics: Topics,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`image` returns the current image; `topics` creates internal topics (the controller)."""
        self._authorizer = authorizer
        self._members = members
        self._image = image
        self._topics = topics

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.JOIN_GROUP: self.join,
            ApiKey.SYNC_GROUP: self.sync,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave,
        }

    # ---- FindCoordinator ---------------------------------------------------------------------

    def find_coordinator(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
        """Answer a FindCoordinator request, at once if the topic exists."""
        topic = _TOPICS.get(request.key_type)
        if topic == SHARE_GROUP_STATE_TOPIC and not any(
            _is_of_share(key, context) for key in request.coordinator_keys
        ):
            topic = None  # nothing is found
        if topic is not None and topic not in self._image().topics:
            return self._create_and_find(topic, context, request)
        return self._found(context, request)

    async def _create_and_find(
        self, topic: str, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        await ensure(self._topics, self._image, topic)
        return self._found(context, request)

    def _found(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        if context.api_version >= 4:
            return FindCoordinatorResponse(
                coordinators=[
                    self._coordinator_of(key, request.key_type, context)
                    for key in request.coordinator_keys
                ]
            )
        found = self._coordinator_of(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or _MESSAGES_BEFORE_V4[ErrorCode(found.error_code)],
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _coordinator_of(self, key: str, key_type: int, context: RequestContext) -> _Coordinator:
        name = _TOPICS.get(key_type)
        if name == SHARE_GROUP_STATE_TOPIC and not _is_of_share(key, context):
            name = None
        if name is None:
            message = "" if key_type == _SHARE_KEY_TYPE else _INVALID_REQUEST
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, message)
        image = self._image()
        topic = image.topics.get(name)
        partition = None
        if topic is not None:
            hashed = key.rstrip(":") if name == SHARE_GROUP_STATE_TOPIC else key
            partition = topic.partitions[partition_for(hashed, len(topic.partitions))]
        if partition is None or not image.is_alive(partition.leader):
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        address = image.brokers[partition.leader].address(context.listener)
        if address is None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        host, port = address
        return _Coordinator(
            key=key, node_id=partition.leader, host=host, port=port, error_message=""
        )

    # ---- JoinGroup, SyncGroup ----------------------------------------------------------------

    def join(
        self, context: RequestContext, request: JoinGroupRequest
    ) -> Deferred | JoinGroupResponse:
        """Answer a JoinGroup request."""
        version = context.api_version
        rebalance_timeout_ms = request.rebalance_timeout_ms
        if version == 0:
            rebalance_timeout_ms = request.session_timeout_ms
        join = JoinRequest(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",  # as Java prints an address
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
            requires_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
            reason=request.reason,
        )
        if self._authorizer is not None:  # other members of the group may have patterns
            caller = self._authorizer.caller(context.peer.principal, context.client_host)
            join = join._replace(may_describe=caller.may_describe_topic)

        def respond(result: JoinResult) -> JoinGroupResponse:
            context.took_turns = len(result.members) > PART_MAX  # the leader's answer
            return _join_response(version, result)

        return context.answer_with(self._members.join(request.group_id, join), respond)

    def sync(
        self, context: RequestContext, request: SyncGroupRequest
    ) -> Deferred | SyncGroupResponse:
        """Answer a SyncGroup request."""
        if context.api_version >= 5 and None in {request.protocol_type, request.protocol_name}:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        sync = SyncRequest(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
        )
        return context.answer_with(self._members.sync(request.group_id, sync), _sync_response)

    # ---- Heartbeat, LeaveGroup ---------------------------------------------------------------

    def heartbeat(self, _context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer a Heartbeat request."""
        error = self._members.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        return HeartbeatResponse(error_code=error)

    def leave(
        self, context: RequestContext, request: LeaveGroupRequest
    ) -> Deferred | LeaveGroupResponse:
        """Answer a LeaveGroup request."""
        version = context.api_version
        leaving = (
            [
                LeavingMember(each.member_id, each.group_instance_id, each.reason)
                for each in request.members
            ]
            if version >= 3
            else [LeavingMember(request.member_id, None)]
        )

        def respond(left: tuple[ErrorCode, list[LeaveResult]]) -> LeaveGroupResponse:
            return _leave_response(version, *left)

        return context.answer_with(self._members.leave(request.group_id, leaving), respond)


def _leave_response(
    version: int, error: ErrorCode, results: Sequence[LeaveResult]
) -> LeaveGroupResponse:
    if version < 3:
        if error is ErrorCode.NONE:
            error = results[0].error
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        error_code=error,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=result.member_id,
                group_instance_id=result.group_instance_id,
                error_code=result.error,
            )
            for result in results
        ],
    )


def _is_of_share(key: str, context: RequestContext) -> bool:
    """Return whether a key names a share partition, which it may from version 6 on."""
    return context.api_version >= 6 and SharePartition.of_coordinator_key(key) is not None


def _no_coordinator(key: str, error: ErrorCode, message: str) -> _Coordinator:
    return _Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
    )


def _join_response(version: int, result: JoinResult) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < 7:
        protocol_name = ""  # the field was not nullable
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader or "",
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )


def _sync_response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
