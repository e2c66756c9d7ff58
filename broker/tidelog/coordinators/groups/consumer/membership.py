"""Heartbeats of the members of KIP-848 groups, some of which make one of a classic group."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.migration import upgraded
from tidelog.coordinators.groups.consumer.records import encoded_assignment
from tidelog.coordinators.groups.consumer.requests import check
from tidelog.coordinators.groups.limits import assignor_names
from tidelog.coordinators.groups.modern.membership import ModernMembership, group_of
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from tidelog.coordinators.groups.consumer.requests import Heartbeat
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.modern.membership import Settling
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.requests import Answer
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.seams import Rng

__all__ = ["ConsumerMembership"]


class ConsumerMembership(ModernMembership):
    """Members of the KIP-848 groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, rng: Rng) -> None:
        super().__init__(coordinator)
        self._rng = rng

    def renewed(
        self, group_id: str, member_id: str, epoch: int, client: tuple[str, str]
    ) -> int | None:
        """Begin the session of a member that says only its epoch, if there is nothing to tell it;
        return the interval of its heartbeats in milliseconds, None if `heartbeat` must look.
        `client` is its client id and host."""
        coordinator = self._coordinator
        shard = coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return None
        group = shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or group.epoch != epoch:
            return None
        if not coordinator.is_committed(shard):
            return None
        ticks_ms = coordinator.ticks_ms()
        if not group.renewed(member_id, epoch, client, ticks_ms):
            return None
        coordinator.watch_session(shard, group, ticks_ms)
        return group.limits.heartbeat_interval_ms

    def heartbeat(
        self, group_id: str, request: Heartbeat, *, needs_member_id: bool
    ) -> tuple[Answer, Settling | None]:
        """Handle ConsumerGroupHeartbeat; return the answer, and what it must wait for, mostly
        nothing. RefusedError if it is refused, or if the write has failed."""
        coordinator = self._coordinator
        assignors = () if request.server_assignor is None else assignor_names(coordinator.config)
        check(group_id, request, needs_member_id=needs_member_id, assignors=assignors)
        shard = self._shard_of(group_id)
        if not request.member_id and request.epoch >= 0:  # before v1 the coordinator makes the id
            request = request._replace(member_id=uuid_to_str(self._rng.uuid()))
        now = coordinator.now()
        before = shard.groups.get(group_id)
        group, records = self._group(shard, group_id, request.epoch)
        if records:
            group.resume(now)
        step = group.heartbeat(request, coordinator.topics.seen_by(request.may_describe), now)
        records += step.records
        last = None
        if step.moved is not None:
            last = encoded_assignment(group_id, step.moved), partial(group.moved_to, step.moved)
        wrote, error = bool(records) or last is not None, ErrorCode.NONE
        if request.epoch < 0:
            error = coordinator.mixed.remove(shard, group, records)
        elif wrote:
            error = coordinator.append_consumer(shard, group, records, now, last)
        else:
            coordinator.watch_session(shard, group, now.ticks_ms)
        if error is not ErrorCode.NONE:
            raise RefusedError(error)
        if isinstance(before, Group) and before.members:
            coordinator.upgraded(shard, before)
        return step.answer, self._settling(shard, wrote=wrote)

    def _group(
        self, shard: GroupShard, group_id: str, epoch: int
    ) -> tuple[ConsumerGroup, list[Record]]:
        """Return the group of a heartbeat, a new one if it may begin one. A classic group becomes
        one of KIP-848 with these records."""
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if epoch == 0 and isinstance(group, Group) and not group.is_empty:
            limits = shard.limits_of("consumer", group_id)
            policy = self._coordinator.config.group_consumer_migration_policy
            return upgraded(group, limits, self._coordinator.topics, policy)
        return group_of(shard, group_id, epoch, ConsumerGroup, may_replace=True), []
