"""Tables of classic group membership: FindCoordinator, Join, Sync, Heartbeat, Leave."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    string,
)

__all__ = [
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
]


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    """Ask which broker coordinates a group or a transactional id.

    v1: key type: 0 group, 1 transaction
    v3: flexible
    v4: several keys at once (KIP-699)
    v5: TRANSACTION_ABORTABLE understood (KIP-890)
    v6: key type 2, share groups: group:topic id:partition (KIP-932)
    """

    key: str = string("0-3")
    key_type: int = int8("1+")  # 0 group, 1 transaction, 2 share
    coordinator_keys: list[str] = array(string, "4+")


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    """Coordinators by key.

    v1: throttle time, error message
    v3: flexible
    v4: several keys at once (KIP-699)
    """

    class Coordinator(Struct):
        key: str = string()
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    """Join or re-join a classic group.

    v1: a rebalance timeout separate from the session timeout (KIP-62)
    v4: a member without an id receives one and joins again (KIP-394)
    v5: static members (KIP-345)
    v6: flexible
    v8: reason (KIP-800)
    v9: the response may tell the leader to skip the assignment (KIP-814)
    """

    class JoinGroupRequestProtocol(Struct):
        name: str = string()
        metadata: bytes = bytes_()

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)  # -1: the session's
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)  # preferred first
    reason: str | None = string("8+", nullable="8+", default=None)


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    """The generation joined; the leader gets all members' metadata.

    v2: throttle time
    v4: MEMBER_ID_REQUIRED may come (KIP-394)
    v5: static members (KIP-345)
    v6: flexible
    v7: protocol type; the protocol's name may be null (KIP-559)
    v9: skip the assignment (KIP-814)
    """

    class JoinGroupResponseMember(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("5+", nullable="5+", default=None)
        metadata: bytes = bytes_()

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)  # for the leader


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    """The leader's assignments; other members send an empty list.

    v3: static members (KIP-345)
    v4: flexible
    v5: protocol type and name, to be checked (KIP-559)
    """

    class SyncGroupRequestAssignment(Struct):
        member_id: str = string()
        assignment: bytes = bytes_()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    """The member's own assignment.

    v1: throttle time
    v4: flexible
    v5: protocol type and name (KIP-559)
    """

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = bytes_()


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    """A member is alive.

    v3: static members (KIP-345)
    v4: flexible
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    """Whether the member may continue, or must rejoin.

    v1: throttle time
    v4: flexible
    """

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    """Members leave a group.

    v3: several members, static ones by instance (KIP-345)
    v4: flexible
    v5: reason (KIP-800)
    """

    class MemberIdentity(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="0+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None)

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    """A result for each leaving member.

    v1: throttle time
    v3: one result a member (KIP-345)
    v4: flexible
    """

    class MemberResponse(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="0+")
        error_code: int = int16()

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
