"""Offsets and administration of groups: commit, fetch, list, describe, delete, expire.

The half of the group coordinator without membership: it finds the group, asks the pure machine
whether the request is allowed, and writes records. The group APIs call it; it does not know the
wire. What waits for a write is work for `awaiting.drive`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.awaiting import all_of, drive
from tidelog.turns import Turns
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.kinds import AnyGroup, MemberGroup
    from tidelog.coordinators.groups.offsets import OffsetAndMetadata, OffsetChange
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.coordinators.groups.share.state_changes import StateChanges
    from tidelog.seams import TimerHandle, Timers

    Offsets = Mapping[str, Mapping[int, OffsetAndMetadata]]

__all__ = ["Committer", "FetchedOffsets", "GroupAdmin"]

logger = logging.getLogger(__name__)


EXPIRED_AT_ONCE = 5000  # groups and offsets of a turn of the loop: about 5 ms
_NOT_FOUND_VERSION = 9  # of OffsetCommit
NO_MEMBER = (None, -1)  # of a fetch outside of groups, or of a classic member

_NONE: Offsets = {}


class Committer(NamedTuple):
    """The member that commits offsets; generation -1 outside of group management. `version` is that
    of OffsetCommit, None in a transaction."""

    member_id: str
    group_instance_id: str | None
    generation: int
    version: int | None = None


class FetchedOffsets(NamedTuple):
    """Offsets by topic and partition, and the partitions that an open transaction may change."""

    error: ErrorCode
    offsets: Offsets = _NONE
    unstable: AbstractSet[tuple[str, int]] = frozenset()


class GroupAdmin:
    """Offsets and administration over the shards of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, timers: Timers) -> None:
        """`timers` is the time of periodic work."""
        self._coordinator = coordinator
        self._timers = timers
        self.share_states: Callable[[], StateChanges] | None = None  # where they are served
        self._timer: TimerHandle | None = None

    # ---- offsets -----------------------------------------------------------------------------

    async def commit(
        self, group_id: str, committer: Committer, changes: Sequence[OffsetChange]
    ) -> ErrorCode:
        """Commit offsets; return when they are committed.

        For an unknown group with a generation: GROUP_ID_NOT_FOUND, or ILLEGAL_GENERATION before v9,
        whose clients do not know the other.
        """
        from tidelog.coordinators.groups.classic.group import Group  # noqa: PLC0415 - late

        coordinator = self._coordinator
        records = await coordinator.encoded(changes)
        shard = coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        now = coordinator.now()
        group = shard.groups.get(group_id)
        if isinstance(group, Group):
            error = group.validate_commit(*committer[:3], now)
        elif group is not None:
            error = _fencing(group, committer, changes)
        elif committer.generation < 0:  # anyone may commit outside of groups: a simple group
            error = ErrorCode.NONE
        else:
            is_old = committer.version is not None and committer.version < _NOT_FOUND_VERSION
            error = ErrorCode.ILLEGAL_GENERATION if is_old else ErrorCode.GROUP_ID_NOT_FOUND
        if error is not ErrorCode.NONE:
            return error
        return await coordinator.write_offsets(shard, changes, records)

    async def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: tuple[int, int],
        changes: Sequence[OffsetChange],
    ) -> ErrorCode:
        """Commit offsets in the transaction of a producer id and epoch; otherwise like `commit`."""
        from tidelog.coordinators.groups.classic.group import Group  # noqa: PLC0415 - late

        coordinator = self._coordinator
        records = await coordinator.encoded(changes)
        shard = coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.get(group_id)
        if isinstance(group, Group):
            error = group.validate_transactional_commit(*committer[:3])
        elif group is not None:
            error = _fencing(group, committer, changes)
            if error is ErrorCode.STALE_MEMBER_EPOCH:  # producers do not know it
                error = ErrorCode.ILLEGAL_GENERATION
        else:
            error = ErrorCode.ILLEGAL_GENERATION if committer.generation >= 0 else ErrorCode.NONE
        if error is not ErrorCode.NONE or not changes:
            return error
        return await coordinator.write_transactional_offsets(shard, changes, producer, records)

    async def fetch(
        self, group_id: str, member: tuple[str | None, int] = NO_MEMBER, *, require_stable: bool
    ) -> FetchedOffsets:
        """Fetch the committed offsets of a group; none for an unknown one. `member` is the id and
        the epoch of a member of KIP-848.

        With `require_stable` (KIP-447) this waits until all earlier writes are committed, and also
        returns the partitions with an open transaction. Later writes do not count; otherwise
        offsets whose marker arrives meanwhile would be neither open nor committed. Without
        `require_stable` this waits for what the log held when this coordinator took over: its high
        watermark starts below that of its predecessor, and offsets that the predecessor returned
        must not go back. (Apache Kafka 4 does not wait.)
        """
        coordinator = self._coordinator
        shard = coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return FetchedOffsets(shard)

        group = shard.groups.get(group_id)
        error = ErrorCode.NONE if group is None else _fetch_error(group, member)
        if error is not ErrorCode.NONE:
            return FetchedOffsets(error)
        unstable: AbstractSet[tuple[str, int]] = frozenset()
        latest: Offsets = {}
        if require_stable:
            unstable = shard.pending.of_group(group_id)
            latest = {name: dict(each) for name, each in shard.latest.of_group(group_id).items()}
        else:
            coordinator.advance(shard)
            if shard.knows_committed:
                return FetchedOffsets(ErrorCode.NONE, shard.committed.of_group(group_id))
        error = await coordinator.settled(shard)
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR  # consumers before 3.9 do not retry the other
        if error is not ErrorCode.NONE:
            return FetchedOffsets(error)
        offsets = latest if require_stable else shard.committed.of_group(group_id)
        return FetchedOffsets(error, offsets, unstable)

    async def delete_offsets(
        self, group_id: str, topics: Mapping[str, Sequence[int]]
    ) -> ErrorCode | Mapping[str, ErrorCode]:
        """Delete offsets (KIP-496); return an error for all, or one per topic."""
        found = self._coordinator.find(group_id)
        if isinstance(found, ErrorCode):
            return found
        from tidelog.coordinators.groups.classic.member import CONSUMER_PROTOCOL_TYPE  # noqa: PLC0415 - late

        shard, group = found
        if group.type == "share":
            return ErrorCode.GROUP_ID_NOT_FOUND
        is_of_consumers = group.type == "streams" or group.protocol_type == CONSUMER_PROTOCOL_TYPE
        if not group.is_empty and not is_of_consumers:
            return ErrorCode.NON_EMPTY_GROUP
        results = {
            topic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.is_subscribed(topic)
            else ErrorCode.NONE
            for topic in topics
        }
        named = {topic: frozenset(partitions) for topic, partitions in topics.items()}
        changes = [
            change
            for change in shard.forget_group(group_id)
            if results.get(change.topic) is ErrorCode.NONE
            and change.partition in named[change.topic]
        ]
        error = await self._coordinator.write_offsets(shard, changes)
        return results if error is ErrorCode.NONE else error

    # ---- groups ------------------------------------------------------------------------------

    def find(self, group_id: str) -> AnyGroup | ErrorCode:
        """Return a group, or the error."""
        found = self._coordinator.find(group_id)
        return found if isinstance(found, ErrorCode) else found[1]

    def list_groups(self) -> list[AnyGroup] | ErrorCode:
        """Return all groups of this broker, or COORDINATOR_LOAD_IN_PROGRESS."""
        coordinator = self._coordinator
        if coordinator.led.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if coordinator.led.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [group for shard in coordinator.led.active() for group in shard.groups.values()]

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete one empty group and its offsets."""
        found = self._coordinator.find(group_id)
        if isinstance(found, ErrorCode):
            return found
        shard, group = found
        self._coordinator.expire_due(shard, group)
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        if group.type == "share" and self.share_states is not None:
            error = await self.share_states().delete(shard, group)
            if error is not ErrorCode.NONE:
                return error
            if self._coordinator.find(group_id) != found or not group.is_empty:
                return ErrorCode.NON_EMPTY_GROUP  # a member has joined meanwhile
        changes = shard.forget_group(group_id)
        return await self._coordinator.remove(shard, group, changes)

    async def delete_all(self) -> list[ErrorCode]:
        """Delete all groups here, with members or not."""
        found = [
            (shard, group)
            for shard in self._coordinator.led.active()
            for group in shard.groups.values()
        ]
        remove = self._coordinator.remove
        return await all_of(
            remove(shard, one, shard.forget_group(one.group_id)) for shard, one in found
        )

    # ---- expiry ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to check for expired offsets every offsets.retention.check.interval.ms."""
        interval_s = self._coordinator.config.offsets_retention_check_interval_ms / 1000
        self._timer = self._timers.call_at(self._timers.time() + interval_s, self._tick)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = turns = Turns(self._timers, self._expiring(), self.start)
        turns.begin()

    def expire_offsets(self) -> None:
        """Write tombstones for expired offsets, and for empty groups that have none left."""
        for _ in self._expiring():
            pass

    def _expiring(self) -> Iterator[None]:
        room = EXPIRED_AT_ONCE
        for shard in self._coordinator.led.active():
            for group in list(shard.groups.values()):
                if room <= 0:
                    yield
                    room = EXPIRED_AT_ONCE
                if self._coordinator.led.holds(shard) and group is shard.groups.get(group.group_id):
                    room -= 1 + sum(map(len, shard.latest.of_group(group.group_id).values()))
                    self._expire_group(shard, group)

    def _expire_group(self, shard: GroupShard, group: AnyGroup) -> None:
        if group.type == "share":
            return  # it has no offsets here, and stays for its state as in Kafka
        from tidelog.coordinators.groups.offsets import expired_offsets  # noqa: PLC0415 - late

        coordinator = self._coordinator
        retention_ms = coordinator.config.offsets_retention_minutes * 60_000
        now_ms = coordinator.now().wall_ms
        unstable = shard.pending.of_group(group.group_id)
        tombstones, is_all = expired_offsets(
            group, shard.latest, now_ms, retention_ms, unstable=unstable
        )
        coordinator.write_tombstones(shard, tombstones)
        # If these cannot be written, the group stays until the next check.
        is_gone = is_all and not shard.latest.of_group(group.group_id)
        if is_gone and group.is_empty and not unstable:
            drive(coordinator.remove(shard, group, []), _log_failure)


def _fencing(
    group: MemberGroup, committer: Committer, changes: Sequence[OffsetChange]
) -> ErrorCode:
    """Return the error of a commit by the epoch of its member. A share group has no offsets."""
    if group.type == "share":
        return ErrorCode.GROUP_ID_NOT_FOUND
    from tidelog.coordinators.groups.consumer.commits import Commit, commit_error  # noqa: PLC0415
    from tidelog.coordinators.groups.streams import commits as of_streams  # noqa: PLC0415

    commit = Commit(committer.member_id, committer.generation, committer.group_instance_id)
    if committer.version is None:
        commit = commit._replace(is_transactional=True)
    else:
        commit = commit._replace(version=committer.version)
    if group.type == "streams":
        names = [(each.topic, each.partition) for each in changes]
        return of_streams.commit_error(group, commit, names)
    partitions = [(each.offset.topic_id, each.partition) for each in changes if each.offset]
    return commit_error(group.members, commit, partitions)


def _fetch_error(group: AnyGroup, member: tuple[str | None, int]) -> ErrorCode:
    """Return the error of a fetch by the epoch of its member."""
    if group.type == "consumer":
        from tidelog.coordinators.groups.consumer.commits import fetch_error  # noqa: PLC0415

        return fetch_error(group.members, *member)
    if group.type == "streams":
        from tidelog.coordinators.groups.streams import commits  # noqa: PLC0415

        return commits.fetch_error(group, *member)
    return ErrorCode.NONE


def _log_failure(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        logger.warning("Could not delete an expired group: %s", error.name)
