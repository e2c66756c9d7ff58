"""A group changes its protocol while members use it (KIP-848). Pure.

`group.consumer.migration.policy` says which way is allowed. A classic group becomes a consumer
group with the first heartbeat of the consumer protocol, and a classic one again when the last
member of that protocol leaves. Offsets stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer.classic_members import classic_metadata
from tidelog.coordinators.groups.consumer.embedded import (
    assignment_bytes,
    assignment_of,
    ids_of,
    subscription_of,
)
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.member import ConsumerMember, Subscription
from tidelog.coordinators.groups.consumer.records import (
    assignment_record,
    epoch_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from tidelog.coordinators.groups.consumer.requests import RefusedError
from tidelog.coordinators.groups.group import Group
from tidelog.coordinators.groups.member import CONSUMER_PROTOCOL_TYPE, Member
from tidelog.coordinators.groups.records import group_record, tombstones
from tidelog.coordinators.groups.states import GroupState
from tidelog_protocol.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tidelog.coordinators.groups.consumer.views import ConsumerLimits, Topics
    from tidelog.coordinators.groups.member import JoinRequest, Now
    from tidelog.coordinators.groups.member_records import Record
    from tidelog.coordinators.groups.states import GroupLimits
    from tidelog.replication.internal_topics import KeyValue

__all__ = [
    "allows_downgrade",
    "allows_mixed",
    "allows_upgrade",
    "downgraded",
    "is_current",
    "is_left_to_classic",
    "member_of",
    "rest_of",
    "upgraded",
]


def allows_upgrade(policy: str) -> bool:
    """Return whether a classic group may become a consumer group."""
    return policy.lower() in {"bidirectional", "upgrade"}


def allows_downgrade(policy: str) -> bool:
    """Return whether a consumer group may become a classic group."""
    return policy.lower() in {"bidirectional", "downgrade"}


def allows_mixed(policy: str) -> bool:
    """Return whether classic members may join a consumer group."""
    return policy.lower() != "disabled"


# ---- classic to consumer -------------------------------------------------------------------------


def upgraded(
    classic: Group, limits: ConsumerLimits, topics: Topics, policy: str
) -> tuple[ConsumerGroup, list[Record]]:
    """Return a classic group as a consumer group, and its records.

    Every member keeps what it has, in the epoch of its generation. RefusedError if it may not be.
    """
    group_id = classic.group_id
    why = _refusal(classic, limits, policy)
    if why is None:
        try:
            members = _consumer_members(classic, topics)
        except ProtocolError:
            why = "the embedded consumer protocol is malformed"
        except _CustomAssignorError:
            why = (
                "an unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade"
            )
    if why is not None:
        raise RefusedError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because {why}.",
        )
    names = {name for each in members for name in each.subscription.topic_names}
    epoch = classic.generation
    records = [subscription_record(group_id, each) for each in members]
    records.append(epoch_record(group_id, epoch, topics.hash_of(names)))
    for each in members:
        target = {topic: frozenset(has) for topic, has in each.assigned.items()}
        records.append(target_record(group_id, each.member_id, target))
    records.append(target_epoch_record(group_id, epoch, 0))  # the next heartbeat may assign at once
    records += [assignment_record(group_id, each) for each in members]
    group = ConsumerGroup(group_id, limits)
    for record in records:
        group.replay(record)
    return group, records


class _CustomAssignorError(Exception):
    """An assignor sends data of its own, which would be lost."""


def _refusal(classic: Group, limits: ConsumerLimits, policy: str) -> str | None:
    if not allows_upgrade(policy):
        return "online upgrade is disabled"
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "the group does not use the consumer embedded protocol"
    if len(classic.members) > limits.size_max:
        return "the group size exceeds the consumer group maximum size"
    return None


def _consumer_members(classic: Group, topics: Topics) -> list[ConsumerMember]:
    """Return the members with what they have; none has what another one has."""
    taken: set[tuple[bytes, int]] = set()
    assigned_first = sorted(classic.members.values(), key=lambda each: not each.assignment)
    return [_consumer_member(classic, each, topics, taken) for each in assigned_first]


def _consumer_member(
    classic: Group, member: Member, topics: Topics, taken: set[tuple[bytes, int]]
) -> ConsumerMember:
    assignment = assignment_of(member.assignment)
    if assignment.user_data:
        raise _CustomAssignorError
    # All protocols of a member have the same subscription. (Before the first generation of a group,
    # which has chosen none, Kafka answers UNKNOWN_SERVER_ERROR.)
    said = subscription_of(member.protocols[0][1])
    epoch = classic.generation
    # A rebalance that ended early has taken the assignment from the group. A cooperative member may
    # still have what it said when it joined. (Kafka takes it as having nothing.)
    listed = assignment.assigned_partitions if member.assignment else said.owned_partitions
    assigned: dict[bytes, dict[int, int]] = {}
    for topic, numbers in ids_of(listed, topics).items():
        for partition in sorted(numbers):
            if (topic, partition) not in taken:
                taken.add((topic, partition))
                assigned.setdefault(topic, {})[partition] = epoch
    return ConsumerMember(
        member.member_id,
        Subscription(
            instance_id=member.group_instance_id,
            rack_id=said.rack_id or None,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(said.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=classic_metadata(member.session_timeout_ms, member.protocols),
        ),
        epoch=epoch,
        previous_epoch=epoch,
        assigned=assigned,
    )


# ---- consumer to classic -------------------------------------------------------------------------


def is_left_to_classic(group: ConsumerGroup, leaving: Collection[str]) -> bool:
    """Return whether all members but these use the classic protocol."""
    rest = [each for name, each in group.members.items() if name not in leaving]
    return all(each.subscription.classic is not None for each in rest)


def is_current(group: ConsumerGroup) -> bool:
    """Return whether every member has its part of the group's latest assignment."""
    epoch = group.assignment_epoch
    return group.epoch == epoch and all(
        each.is_reconciled(epoch) for each in group.members.values()
    )


def member_of(request: JoinRequest) -> Member:
    """Return a classic member with what its JoinGroup says."""
    return Member(
        request.member_id or request.new_member_id,
        request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
    )


def downgraded(
    group: ConsumerGroup,
    rest: Mapping[str, Member],
    limits: GroupLimits,
    topics: Topics,
    now: Now,
    *,
    is_stable: bool,
) -> tuple[Group, list[KeyValue]]:
    """Return a consumer group as a classic one in the generation of its epoch, and its records.

    `rest` has its members by the ids under which they have partitions, see `rest_of`. Unless it is
    stable, they must join again. ProtocolError if a member's bytes have no version.
    """
    classic = Group(group.group_id, now, limits)
    for member in rest.values():
        classic.insert(member, CONSUMER_PROTOCOL_TYPE)
    name = classic.protocol_name = classic.members.select_protocol()
    for member_id, member in rest.items():
        # What it still has, also if it must give that up: the next change of protocol would take
        # the rest for free. (Kafka stores the target assignment.)
        has = group.members[member_id].held
        member.assignment = assignment_bytes(has, topics, member.metadata(name))
    classic.state = GroupState.STABLE
    classic.resume(now)
    # A record does not say that members must join again. Another coordinator, which may load it
    # before they have, refuses their generation, and they do.
    classic.generation = group.epoch if is_stable else group.epoch + 1
    assignments = {each.member_id: each.assignment for each in rest.values()}
    records = [*tombstones(group), group_record(classic, assignments)]
    classic.generation = group.epoch
    return classic, records


def rest_of(group: ConsumerGroup, leaving: Collection[str]) -> dict[str, Member]:
    """Return the members but these, which all use the classic protocol."""
    rest = {}
    for member_id, member in group.members.items():
        said = member.subscription
        if member_id in leaving:
            continue
        assert said.classic is not None, "is_left_to_classic"
        rest[member_id] = Member(
            member_id,
            said.instance_id,
            client_id=said.client_id,
            client_host=said.client_host,
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            session_timeout_ms=said.classic.session_timeout_ms,
            protocols=tuple(
                (each.name, bytes(each.metadata)) for each in said.classic.supported_protocols
            ),
        )
    return rest
