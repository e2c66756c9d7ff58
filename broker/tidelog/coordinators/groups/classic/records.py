"""The record of a classic group in `__consumer_offsets`, from and to the group."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.classic.member import Member
from tidelog.coordinators.groups.classic.states import GroupState
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.coordinator_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.classic.states import GroupLimits
    from tidelog.coordinators.groups.now import Now

__all__ = ["GROUP_METADATA_TYPE", "group_record", "group_tombstone", "restored"]

GROUP_METADATA_TYPE = 2
GROUP_VERSION = 3

_VERSION = Struct(">h")


def group_record(group: Group, assignments: Mapping[str, bytes]) -> tuple[bytes, bytes]:
    """Return key and value of a group's current state, with these assignments by member id."""
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=assignments[member.member_id],
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.members.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    return _group_key(group.group_id), _VERSION.pack(GROUP_VERSION) + codec(
        GroupMetadataValue, GROUP_VERSION
    ).encode(value)


def group_tombstone(group_id: str) -> tuple[bytes, None]:
    """Return the tombstone of a group."""
    return _group_key(group_id), None


def _group_key(group_id: str) -> bytes:
    key = codec(GroupMetadataKey, 0).encode(GroupMetadataKey(group=group_id))
    return _VERSION.pack(GROUP_METADATA_TYPE) + key


def restored(group_id: str, value: GroupMetadataValue, now: Now, limits: GroupLimits) -> Group:
    """Restore a group from its record: stable with its members, or empty. ProtocolError if the
    record contradicts itself."""
    _check(value)
    group = Group(group_id, now, limits)
    for each in value.members:
        rebalance_timeout_ms = each.rebalance_timeout
        if rebalance_timeout_ms == -1:
            rebalance_timeout_ms = each.session_timeout
        member = Member(
            each.member_id,
            each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=each.session_timeout,
            protocols=((value.protocol or "", bytes(each.subscription)),),
            assignment=bytes(each.assignment),
        )
        group.insert(member, value.protocol_type)
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    group.state_timestamp_ms = value.current_state_timestamp
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    if value.leader in group.members:
        group.members.leader = value.leader
    return group


def _check(value: GroupMetadataValue) -> None:
    """Clients with the id of Kafka's admin client may write such a record."""
    member_ids = [each.member_id for each in value.members]
    instances = [each.group_instance_id for each in value.members]
    named = [each for each in instances if each is not None]
    if len(set(member_ids)) < len(member_ids) or len(set(named)) < len(named):
        raise ProtocolError("a group with two members of one id")
    if value.members and value.protocol is None:
        raise ProtocolError("a group with members and without a protocol")
