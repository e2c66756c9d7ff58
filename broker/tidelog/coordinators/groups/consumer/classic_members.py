"""Members of a consumer group that use the classic protocol, while the group changes. Pure.

A JoinGroup is answered at once, as a heartbeat that may take the member to the next epoch, which is
its generation; SyncGroup gives it what it has. A Heartbeat tells it by REBALANCE_IN_PROGRESS that
there is a further step, for which it must join again. Each function raises RefusedError with the
error of Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic.member import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinators.groups.consumer.embedded import ids_of, subscription_of
from tidelog.coordinators.groups.consumer.requests import Heartbeat
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.states import MemberState
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.consumer_records import ConsumerGroupMemberMetadataValue

if TYPE_CHECKING:
    from tidelog.coordinators.groups.classic.member import (
        JoinRequest,
        LeavingMember,
        Protocols,
        SyncRequest,
    )
    from tidelog.coordinators.groups.consumer.group import ConsumerGroup
    from tidelog.coordinators.groups.consumer.member import ConsumerMember
    from tidelog.coordinators.groups.modern.member import ClassicMetadata
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now

__all__ = [
    "as_heartbeat",
    "check_heartbeat",
    "check_join",
    "check_sync",
    "classic_metadata",
    "leaving_id",
]

_REJOINS = 1  # the epoch of a static member that is known: any but 0, which is not looked at


def check_join(group: ConsumerGroup, request: JoinRequest) -> None:
    """Check that a classic member may join."""
    group.check_room(request.member_id)
    names = {name for name, _ in request.protocols}
    for member in group.members.values():
        classic = member.subscription.classic
        if classic is not None:
            names &= {each.name for each in classic.supported_protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id and request.group_instance_id is not None:
        group.known(request.member_id, request.group_instance_id)


def as_heartbeat(request: JoinRequest, topics: Topics) -> Heartbeat:
    """Return what a JoinGroup says, as a heartbeat. A new member has its id already."""
    try:
        said = subscription_of(request.protocols[0][1])  # all protocols have the same one
    except ProtocolError as error:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    is_known = request.member_id and request.group_instance_id is not None
    return Heartbeat(
        member_id=request.member_id or request.new_member_id,
        epoch=_REJOINS if is_known else 0,
        instance_id=request.group_instance_id,
        rack_id=said.rack_id or None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=tuple(said.topics),
        topic_regex="",
        owned=ids_of(said.owned_partitions, topics),
        client_id=request.client_id,
        client_host=request.client_host,
        classic=classic_metadata(request.session_timeout_ms, request.protocols),
    )


def classic_metadata(session_timeout_ms: int, protocols: Protocols) -> ClassicMetadata:
    """Return what the record of a member says if it uses the classic protocol."""
    return ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[
            ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in protocols
        ],
    )


def check_sync(
    group: ConsumerGroup, request: SyncRequest, now: Now
) -> tuple[ConsumerMember, bytes]:
    """Return the member of a SyncGroup and its subscription, in whose version it is answered."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    if request.generation != member.epoch:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
    chosen = classic.supported_protocols[0]
    if request.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE} or (
        request.protocol_name not in {None, chosen.name}
    ):
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that must revoke has joined already; it is asked to join again when it has synced.
    is_revoking = member.state is MemberState.UNREVOKED
    if _is_behind(group, member) and not is_revoking:
        group.deadlines.must_join(member, now)
        raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member, bytes(chosen.metadata)


def check_heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: Now
) -> None:
    """Extend a member's session; REBALANCE_IN_PROGRESS if it must join again."""
    member, _ = _classic_member(group, member_id, instance_id)
    if generation != member.epoch:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
    group.alive(member, now)
    if (
        _is_behind(group, member)
        or member.state is MemberState.UNREVOKED
        or (member.state is MemberState.UNRELEASED and not group.waits_for_others(member))
    ):
        group.deadlines.must_join(member, now)
        raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)


def leaving_id(group: ConsumerGroup, leaving: LeavingMember) -> str:
    """Return the id of a member that LeaveGroup removes, of any protocol."""
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if instance_id is None or member_id:
        return group.known(member_id, instance_id).member_id
    return group.static_member(instance_id).member_id


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.known(member_id, instance_id)
    classic = member.subscription.classic
    if classic is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, classic


def _is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether there is a later target assignment than the member's.

    While a member of the consumer protocol is there, its heartbeats compute the target. Without
    any, a classic member must join for that. (Kafka 4.3 leaves the group as it is until one does.)
    """
    if member.epoch < group.assignment_epoch:
        return True
    return member.epoch < group.epoch and group.is_all_classic
