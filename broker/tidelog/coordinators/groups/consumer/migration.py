"""A group changes its protocol while members use it (KIP-848). Pure.

`group.consumer.migration.policy` says which way is allowed. A classic group becomes a consumer
group with the first heartbeat of the consumer protocol, and a classic one again when the last
member of that protocol leaves. Offsets stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.classic.member import CONSUMER_PROTOCOL_TYPE, Member
from tidelog.coordinators.groups.classic.records import group_record
from tidelog.coordinators.groups.classic.states import GroupState
from tidelog.coordinators.groups.consumer.classic_members import classic_metadata
from tidelog.coordinators.groups.consumer.embedded import (
    assignment_bytes,
    assignment_of,
    ids_of,
    subscription_of,
)
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.member import ConsumerMember
from tidelog.coordinators.groups.consumer.records import RECORDS
from tidelog.coordinators.groups.modern.member import Subscription
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.records import tombstones
from tidelog_protocol.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tidelog.coordinators.groups.classic.member import JoinRequest
    from tidelog.coordinators.groups.classic.states import GroupLimits
    from tidelog.coordinators.groups.consumer.views import ConsumerLimits
    from tidelog.coordinators.groups.modern.member import Partitions
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now
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
    records = [RECORDS.subscription_record(group_id, each) for each in members]
    records.append(RECORDS.epoch_record(group_id, epoch, topics.hash_of(names)))
    for each in members:
        target = {topic: frozenset(has) for topic, has in each.assigned.items()}
        records.append(RECORDS.target_record(group_id, each.member_id, target))
    records.append(
        RECORDS.target_epoch_record(group_id, epoch, 0)
    )  # the next heartbeat may assign at once
    records += [RECORDS.assignment_record(group_id, each) for each in members]
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
    """Return the members with all that they may have; none has what another one has.

    A cooperative member has what it said when it joined until it fetches its assignment, which a
    rebalance may prevent. (Kafka takes it as having its assignment alone.)
    """
    # All protocols of a member have the same subscription. (Before the first generation of a group,
    # which has chosen none, Kafka answers UNKNOWN_SERVER_ERROR.)
    members = [(each, subscription_of(each.protocols[0][1])) for each in classic.members.values()]
    assignments = [assignment_of(each.assignment) for each, _ in members]
    if any(each.user_data for each in assignments):
        raise _CustomAssignorError
    owners: dict[tuple[bytes, int], str] = {}
    for (each, _), assignment in zip(members, assignments, strict=True):
        _own(owners, each.member_id, ids_of(assignment.assigned_partitions, topics))
    for each, said in members:
        _own(owners, each.member_id, ids_of(said.owned_partitions, topics))
    assigned: dict[str, dict[bytes, dict[int, int]]] = {each.member_id: {} for each, _ in members}
    for (topic, partition), member_id in sorted(owners.items()):
        assigned[member_id].setdefault(topic, {})[partition] = classic.generation
    return [
        ConsumerMember(
            each.member_id,
            Subscription(
                instance_id=each.group_instance_id,
                rack_id=said.rack_id or None,
                client_id=each.client_id,
                client_host=each.client_host,
                topic_names=frozenset(said.topics),
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                classic=classic_metadata(each.session_timeout_ms, each.protocols),
            ),
            epoch=classic.generation,
            previous_epoch=classic.generation,
            assigned=assigned[each.member_id],
        )
        for each, said in members
    ]


def _own(owners: dict[tuple[bytes, int], str], member_id: str, partitions: Partitions) -> None:
    for topic, numbers in partitions.items():
        for partition in numbers:
            owners.setdefault((topic, partition), member_id)


# ---- consumer to classic -------------------------------------------------------------------------


def is_left_to_classic(group: ConsumerGroup, leaving: Collection[str]) -> bool:
    """Return whether all members but these use the classic protocol."""
    rest = [each for name, each in group.members.items() if name not in leaving]
    return all(each.subscription.classic is not None for each in rest)


def is_current(group: ConsumerGroup) -> bool:
    """Return whether every member has its part of the group's latest assignment."""
    return group.epoch == group.assignment_epoch and group.is_reconciled


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
