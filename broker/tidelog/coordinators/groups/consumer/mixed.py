"""Classic members of consumer groups, and groups that change their protocol.

It passes requests to the pure functions of `classic_members.py` and `migration.py`, has the
coordinator append and apply the records, and answers once they are committed. The coordinator sends
here what classic members ask of a consumer group; it does not know the wire.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic.member import (
    CONSUMER_PROTOCOL_TYPE,
    JoinResult,
    LeaveResult,
    SyncResult,
)
from tidelog.coordinators.groups.consumer.classic_members import (
    as_heartbeat,
    check_heartbeat,
    check_join,
    check_sync,
    leaving_id,
)
from tidelog.coordinators.groups.consumer.embedded import assignment_bytes
from tidelog.coordinators.groups.consumer.migration import (
    allows_downgrade,
    allows_mixed,
    downgraded,
    is_current,
    is_left_to_classic,
    member_of,
    rest_of,
)
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.consumer_records import ConsumerGroupMemberMetadataKey
from tidelog_protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.groups.classic.group import Group
    from tidelog.coordinators.groups.classic.member import (
        Effect,
        JoinRequest,
        LeavingMember,
        Member,
        SyncRequest,
    )
    from tidelog.coordinators.groups.consumer.group import ConsumerGroup
    from tidelog.coordinators.groups.kinds import AnyGroup
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.topics import ImageTopics
    from tidelog.coordinators.groups.now import Now
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.replication.internal_topics import KeyValue

    class Coordinator(Protocol):
        """The `GroupCoordinator`, as far as this needs it."""

        config: BrokerConfig

        @property
        def topics(self) -> ImageTopics:
            """The cluster's topics."""

        def now(self) -> Now:
            """Return the current time."""

        def append_consumer(
            self, shard: GroupShard, group: ConsumerGroup, records: Sequence[Record]
        ) -> ErrorCode:
            """Append and apply records of a group."""

        def append_swap(
            self, shard: GroupShard, group: Group, records: Sequence[KeyValue]
        ) -> ErrorCode:
            """Append records by which a classic group takes a group's place."""

        async def settled(self, shard: GroupShard) -> ErrorCode:
            """Return when everything written so far is committed."""

        def perform(self, shard: GroupShard, group: Group, effects: Sequence[Effect]) -> None:
            """Perform the effects of a classic group."""

        def watch(self, shard: GroupShard, group: AnyGroup) -> None:
            """Set the timer of a group."""


__all__ = ["MixedGroups"]

logger = logging.getLogger(__name__)


class MixedGroups:
    """Classic members of the consumer groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._policy = coordinator.config.group_consumer_migration_policy

    async def join(
        self, shard: GroupShard, group: ConsumerGroup, request: JoinRequest, new_id: bytes
    ) -> JoinResult:
        """Handle JoinGroup; return once its records are committed. `new_id` is for a new member."""
        try:
            result = self._join(shard, group, request._replace(new_member_id=uuid_to_str(new_id)))
        except RefusedError as refusal:
            return JoinResult(refusal.code, "")
        if result.error is ErrorCode.NONE:
            error = await self._coordinator.settled(shard)
            if error is not ErrorCode.NONE:
                return JoinResult(error, "")
        return result

    def _join(self, shard: GroupShard, group: ConsumerGroup, request: JoinRequest) -> JoinResult:
        coordinator = self._coordinator
        if not allows_mixed(self._policy):
            raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        check_join(group, request)
        is_new = not request.member_id and request.group_instance_id is None
        if is_new and request.requires_known_member_id:  # KIP-394
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
        now = coordinator.now()
        heartbeat = as_heartbeat(request, coordinator.topics)
        generation = self._downgrade_by_join(shard, group, request)
        if generation is not None:
            return _joined(request, heartbeat.member_id, generation)
        topics = coordinator.topics.seen_by(request.may_describe)
        step = group.heartbeat(heartbeat, topics, now)
        answer, records = step.answer, step.all_records(group.group_id)
        group.deadlines.must_sync(answer.member_id, request.rebalance_timeout_ms, now)
        if records:
            error = coordinator.append_consumer(shard, group, records)
            if error is not ErrorCode.NONE:
                raise RefusedError(error)
        coordinator.watch(shard, group)
        return _joined(request, answer.member_id, answer.epoch)

    async def sync(
        self, shard: GroupShard, group: ConsumerGroup, request: SyncRequest
    ) -> SyncResult:
        """Handle SyncGroup; return once what it gives is committed."""
        coordinator = self._coordinator
        now = coordinator.now()
        try:
            member, metadata = check_sync(group, request, now)
        except RefusedError as refusal:
            coordinator.watch(shard, group)
            return SyncResult(refusal.code)
        group.deadlines.synced(member.member_id)
        group.alive(member, now)
        assigned = {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}
        assignment = assignment_bytes(assigned, coordinator.topics, metadata)
        error = await coordinator.settled(shard)
        if error is not ErrorCode.NONE:
            return SyncResult(error)
        return SyncResult(error, request.protocol_type, request.protocol_name, assignment)

    def heartbeat(
        self, shard: GroupShard, group: ConsumerGroup, member: tuple[str, str | None, int]
    ) -> ErrorCode:
        """Handle Heartbeat of a member id, an instance id and a generation."""
        try:
            check_heartbeat(group, *member, self._coordinator.now())
        except RefusedError as refusal:
            self._coordinator.watch(shard, group)
            return refusal.code
        return ErrorCode.NONE

    async def leave(
        self, shard: GroupShard, group: ConsumerGroup, leaving: Sequence[LeavingMember]
    ) -> tuple[ErrorCode, list[LeaveResult]]:
        """Handle LeaveGroup; return an error for all, or a result per member, once the members'
        removal is committed."""
        results, gone = [], {}
        for each in leaving:
            error = ErrorCode.NONE
            try:
                gone[leaving_id(group, each)] = each
            except RefusedError as refusal:
                error = refusal.code
            results.append(LeaveResult(each.member_id, each.group_instance_id, error))
        if not gone:
            return ErrorCode.NONE, results
        for member_id, each in gone.items():
            logger.info(
                "Member %s (instance %s) left group %s; client reason: %s",
                member_id,
                each.group_instance_id,
                group.group_id,
                each.reason or "not provided",
            )
        error = self.remove(shard, group, group.fence(gone, self._coordinator.topics))
        if error is ErrorCode.NONE:
            error = await self._coordinator.settled(shard)
        return (ErrorCode.NONE, results) if error is ErrorCode.NONE else (error, [])

    # ---- downgrade ---------------------------------------------------------------------------

    def remove(
        self, shard: GroupShard, group: ConsumerGroup, records: Sequence[Record]
    ) -> ErrorCode:
        """Append and apply records that remove members. A group whose other members all use the
        classic protocol becomes a classic group instead."""
        gone = {
            each.key.member_id
            for each in records
            if each.value is None and isinstance(each.key, ConsumerGroupMemberMetadataKey)
        }
        size = len(group.members) - len(gone)
        if gone and size and self._may_downgrade(group, gone, size):
            error = self._downgrade(shard, group, rest_of(group, gone), is_stable=False)
            if error is not None:
                return error
        return self._coordinator.append_consumer(shard, group, records)

    def _may_downgrade(self, group: ConsumerGroup, gone: set[str], size: int) -> bool:
        return (
            allows_downgrade(self._policy)
            and is_left_to_classic(group, gone)
            and size <= self._coordinator.config.group_max_size
        )

    def _downgrade_by_join(
        self, shard: GroupShard, group: ConsumerGroup, request: JoinRequest
    ) -> int | None:
        """Make a classic group of one whose last member of the consumer protocol, a static one,
        comes back with the classic protocol; return its generation, None if it stays as it is."""
        instance_id = request.group_instance_id
        if instance_id is None or not group.has_static(instance_id):
            return None
        replaced = (
            group.known(request.member_id, instance_id)
            if request.member_id
            else group.static_member(instance_id)
        )
        gone = {replaced.member_id}
        is_last = replaced.subscription.classic is None
        if not is_last or not self._may_downgrade(group, gone, len(group.members)):
            return None
        rest = rest_of(group, gone)
        rest[replaced.member_id] = member_of(request)
        said = as_heartbeat(request, self._coordinator.topics)
        names = frozenset(said.topic_names or ())
        is_same = names == replaced.subscription.topic_names
        is_same &= not replaced.subscription.topic_regex
        is_stable = is_same and is_current(group)
        error = self._downgrade(shard, group, rest, is_stable=is_stable)
        if error is None:
            return None
        if error is not ErrorCode.NONE:
            raise RefusedError(error)
        return group.epoch

    def _downgrade(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        rest: Mapping[str, Member],
        *,
        is_stable: bool,
    ) -> ErrorCode | None:
        """Append and apply the records of a downgrade; None if the group cannot be converted.

        If it is not stable, all members must join again.
        """
        coordinator = self._coordinator
        now = coordinator.now()
        limits = shard.limits_of("classic", group.group_id)
        try:
            classic, records = downgraded(
                group, rest, limits, coordinator.topics, now, is_stable=is_stable
            )
        except ProtocolError as error:
            logger.warning("Cannot downgrade consumer group %s: %s", group.group_id, error)
            return None
        code = coordinator.append_swap(shard, classic, records)
        if code is ErrorCode.NONE:
            logger.info("Consumer group %s has become a classic group", group.group_id)
            why = "the last member of the consumer protocol has left"
            effects = [] if is_stable else classic.begin_rebalance(why, now)
            coordinator.perform(shard, classic, effects)
        return code


def _joined(request: JoinRequest, member_id: str, generation: int) -> JoinResult:
    """Return the answer to a member that joined; none of a consumer group leads."""
    name = request.protocols[0][0]
    return JoinResult(ErrorCode.NONE, member_id, generation, CONSUMER_PROTOCOL_TYPE, name)
