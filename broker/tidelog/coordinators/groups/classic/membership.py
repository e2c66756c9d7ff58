"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, of classic groups and of classic members.

It passes requests and the time to the pure group (`group.py`) and has the coordinator perform its
effects; what classic members ask of a consumer group goes to `consumer/mixed.py`. It does not know
the wire. What waits for a write or for other members is work for `awaiting.drive`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import answer_of, drive
from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.classic.member import JoinResult, LeaveResult, SyncResult
from tidelog.coordinators.groups.classic.records import group_record
from tidelog.coordinators.groups.coordinator import log_failure
from tidelog.coordinators.groups.records import tombstones
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.coordinators.groups.classic.member import (
        JoinRequest,
        JoinWaiter,
        LeavingMember,
        SyncRequest,
        SyncWaiter,
    )
    from tidelog.coordinators.groups.consumer.group import ConsumerGroup
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.kinds import MemberGroup
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.seams import Rng

__all__ = ["ClassicMembership"]

_MEMBER_ID_PREFIX_MAX = 8000  # characters: a string has at most 32767 bytes, and a UUID follows


class ClassicMembership:
    """Classic members of the groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, rng: Rng) -> None:
        self._coordinator = coordinator
        self._rng = rng

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Handle JoinGroup; return when the group has decided."""
        error = self._check_join(group_id, request)
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        shard = self._coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return JoinResult(shard, "")
        group = shard.groups.get(group_id)
        if not isinstance(group, Group):
            if group is not None and (group.type == "share" or not group.is_empty):
                return await self._join_other(shard, group, request)
            if request.member_id:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            created = self._create(shard, group_id)
            if isinstance(created, ErrorCode):
                return JoinResult(created, "")
            group = created
        if not request.member_id:
            prefix = (request.group_instance_id or request.client_id)[:_MEMBER_ID_PREFIX_MAX]
            request = request._replace(new_member_id=f"{prefix}-{self._new_uuid()}")
        return await answer_of(partial(self._begin_join, shard, group, request))

    async def _join_other(
        self, shard: GroupShard, group: MemberGroup, request: JoinRequest
    ) -> JoinResult:
        """Have a classic member join a consumer group with members, or refuse it."""
        if group.type != "consumer":
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        return await self._coordinator.mixed.join(shard, group, request, self._rng.uuid())

    def _begin_join(
        self, shard: GroupShard, group: Group, request: JoinRequest, waiter: JoinWaiter
    ) -> None:
        self._coordinator.perform(
            shard, group, group.join(request, waiter, self._coordinator.now())
        )

    def _check_join(self, group_id: str, request: JoinRequest) -> ErrorCode:
        if self._coordinator.led.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        low_ms = self._coordinator.config.group_min_session_timeout_ms
        high_ms = self._coordinator.config.group_max_session_timeout_ms
        if not low_ms <= request.session_timeout_ms <= high_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _create(self, shard: GroupShard, group_id: str) -> Group | ErrorCode:
        """Write a new group's record before its first rebalance, as Kafka does. The group takes the
        place of an empty consumer or streams group."""
        coordinator = self._coordinator
        before = shard.groups.get(group_id)
        records = [] if before is None else tombstones(before)
        group = Group(group_id, coordinator.now(), shard.limits_of("classic", group_id))
        records.append(group_record(group, {}))
        error = coordinator.append_swap(shard, group, records)
        if error is not ErrorCode.NONE:
            return error
        drive(coordinator.settled(shard), log_failure)
        return group

    def _new_uuid(self) -> str:
        text = self._rng.uuid().hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        """Handle SyncGroup; return when the leader has assigned."""
        found = self._find(group_id)
        if isinstance(found, ErrorCode):
            return SyncResult(found)
        shard, group = found
        if not isinstance(group, Group):
            return await self._coordinator.mixed.sync(shard, group, request)
        return await answer_of(partial(self._begin_sync, shard, group, request))

    def _begin_sync(
        self, shard: GroupShard, group: Group, request: SyncRequest, waiter: SyncWaiter
    ) -> None:
        self._coordinator.perform(
            shard, group, group.sync(request, waiter, self._coordinator.now())
        )

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Handle Heartbeat. While a group loads, its members get no error."""
        found = self._find(group_id)
        if found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if isinstance(found, ErrorCode):
            return found

        shard, group = found
        if not isinstance(group, Group):
            return self._coordinator.mixed.heartbeat(
                shard, group, (member_id, instance_id, generation)
            )
        return group.heartbeat(member_id, instance_id, generation, self._coordinator.now())

    async def leave(
        self, group_id: str, leaving: Sequence[LeavingMember]
    ) -> tuple[ErrorCode, list[LeaveResult]]:
        """Handle LeaveGroup; return an error for all, or a result per member, once what a consumer
        group writes about it is committed."""
        found = self._find(group_id)
        if found is ErrorCode.UNKNOWN_MEMBER_ID:
            return ErrorCode.NONE, [
                LeaveResult(each.member_id, each.group_instance_id, found) for each in leaving
            ]
        if isinstance(found, ErrorCode):
            return found, []

        shard, group = found
        if not isinstance(group, Group):
            return await self._coordinator.mixed.leave(shard, group, leaving)
        results, effects = group.leave(leaving, self._coordinator.now())
        self._coordinator.perform(shard, group, effects)
        return ErrorCode.NONE, results

    def _find(self, group_id: str) -> tuple[GroupShard, Group | ConsumerGroup] | ErrorCode:
        """Find a group for a request of a classic member, which unknown, share and streams groups
        do not have."""
        if not group_id and not self._coordinator.led.is_closed:
            return ErrorCode.INVALID_GROUP_ID
        found = self._coordinator.find(group_id)
        if found is ErrorCode.GROUP_ID_NOT_FOUND:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(found, ErrorCode):
            return found
        shard, group = found
        if group.type == "share" or group.type == "streams":  # noqa: PLR1714 - mypy knows this one
            return ErrorCode.UNKNOWN_MEMBER_ID
        return shard, group
