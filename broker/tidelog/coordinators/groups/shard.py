"""One partition of `__consumer_offsets` in memory: its groups and their offsets.

`coordinator.py` owns it. It follows the log: `replay` while loading, `appended` for the broker's
own writes. Pure: no log, wire or timers; the coordinator keeps a timer handle per group here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.classic.records import restored
from tidelog.coordinators.groups.limits import DEFAULTS
from tidelog.coordinators.groups.offsets import OffsetChange, OffsetStore
from tidelog.coordinators.groups.pending import PendingOffsets
from tidelog.coordinators.groups.records import GroupChange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import TypeAlias

    from tidelog.coordinators.groups.kinds import AnyGroup, MemberGroup
    from tidelog.coordinators.groups.limits import LimitsOf
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.now import Now
    from tidelog.seams import TimerHandle

    Change: TypeAlias = OffsetChange | GroupChange | Record


class Watch(NamedTuple):
    """A timer of a group and when it fires."""

    handle: TimerHandle
    at_ms: int


class GroupShard:
    """Groups and offsets of one partition.

    Invariant: `committed` is `latest` without the changes in the appends that `_uncommitted` holds;
    readers see `committed`, so that a change of leader never takes back what they have read.
    """

    def __init__(
        self,
        index: int,
        leader_epoch: int,
        limits_of: LimitsOf = lambda group_type, _group_id: DEFAULTS[group_type],
    ) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.limits_of = limits_of
        self.is_loading = True
        self.groups: dict[str, AnyGroup] = {}
        self.latest = OffsetStore()
        self.committed = OffsetStore()
        self.pending = PendingOffsets()
        self.watches: dict[str, Watch] = {}
        self.end_offset = 0  # after the last append
        self.settled_end = -1  # an end offset found to be committed
        self.loaded_end = 0  # after the last record when this broker began to lead
        self.deleted_topics: list[tuple[str, bytes]] = []  # name and id, while loading
        self._uncommitted: deque[tuple[int, Sequence[OffsetChange]]] = deque()

    def _simple_group(self, group_id: str, now: Now) -> None:
        """Create a group for offsets without a group, as Kafka does."""
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, now, self.limits_of("classic", group_id))

    def replay(
        self, change: Change, end_offset: int, now: Now, producer_id: int | None = None
    ) -> None:
        """Apply one record while loading, with the producer id of its transaction."""
        if isinstance(change, OffsetChange):
            if producer_id is None:
                self.appended([change], end_offset, now)
            else:
                self.appended_in_transaction([change], end_offset, producer_id, now)
            return
        self.end_offset = end_offset
        if not isinstance(change, GroupChange):
            self.replay_consumer(change)
        elif change.value is not None:
            limits = self.limits_of("classic", change.group_id)
            self.groups[change.group_id] = restored(change.group_id, change.value, now, limits)
        elif isinstance(self.groups.get(change.group_id), Group):
            del self.groups[change.group_id]

    def replay_consumer(self, record: Record) -> None:
        """Apply a record of a consumer, share or streams group that has been appended or loaded.

        A value makes the group: compaction may have left any of its records first. It replaces a
        simple group, which offsets alone have made.
        """
        from tidelog.coordinators.groups.modern.records import (  # noqa: PLC0415 - late
            group_type,
            removes_group,
        )

        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if group is None or group.type != group_type(record):
            if record.value is None:
                return
            group = self.groups[group_id] = self._new_group(group_id, group_type(record))
        assert not isinstance(group, Group)
        if removes_group(record):
            del self.groups[group_id]
        else:
            group.replay(record)

    def _new_group(self, group_id: str, group_type: str) -> MemberGroup:
        limits = self.limits_of(group_type, group_id)
        if group_type == "share":
            from tidelog.coordinators.groups.share.group import ShareGroup  # noqa: PLC0415 - late

            return ShareGroup(group_id, limits)
        if group_type == "streams":
            from tidelog.coordinators.groups.streams.group import (  # noqa: PLC0415 - late
                StreamsGroup,
            )

            return StreamsGroup(group_id, limits)
        from tidelog.coordinators.groups.consumer.group import ConsumerGroup  # noqa: PLC0415 - late

        return ConsumerGroup(group_id, limits)

    def appended(self, changes: Sequence[OffsetChange], end_offset: int, now: Now) -> None:
        """Apply appended offsets; `advance` commits them later."""
        if self.pending:
            self.pending.supersede(changes)
        self._apply(changes, end_offset, now)

    def _apply(self, changes: Sequence[OffsetChange], end_offset: int, now: Now) -> None:
        self.end_offset = end_offset
        for change in changes:
            self.latest.apply(change)
            if change.offset is not None:
                self._simple_group(change.group_id, now)
        if changes:
            self._uncommitted.append((end_offset, changes))

    def appended_in_transaction(
        self, changes: Sequence[OffsetChange], end_offset: int, producer_id: int, now: Now
    ) -> None:
        """Apply appended offsets that wait for the end of their transaction."""
        self.end_offset = end_offset
        self.pending.add(producer_id, changes)
        for change in changes:
            self._simple_group(change.group_id, now)

    def ended(self, producer_id: int, end_offset: int, now: Now, *, is_commit: bool) -> None:
        """Apply the marker that ends a transaction."""
        changes = self.pending.end(producer_id, is_commit=is_commit)
        self._apply(changes, end_offset, now)

    def forget_group(self, group_id: str) -> list[OffsetChange]:
        """Return tombstones for all of a group's offsets, including those of open transactions."""
        tombstones = self.latest.forget_group(group_id)
        return [*tombstones, *self.pending.forget_group(group_id)]

    def forget_topics(self, topics: Mapping[str, Collection[bytes]]) -> list[OffsetChange]:
        """Return tombstones for every group's offsets of deleted topics, by name and ids."""
        return [*self.latest.forget_topics(topics), *self.pending.forget_topics(topics)]

    def advance(self, high_watermark: int) -> None:
        """Commit everything below the high watermark."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            for change in uncommitted.popleft()[1]:
                self.committed.apply(change)

    @property
    def has_uncommitted(self) -> bool:
        """Return whether offsets were appended that `advance` has not committed yet."""
        return bool(self._uncommitted)

    @property
    def knows_committed(self) -> bool:
        """Return whether everything loaded is committed. Until then `committed` may be older than
        what the previous coordinator returned."""
        return not self._uncommitted or self._uncommitted[0][0] > self.loaded_end

    def stop_timers(self) -> None:
        """Cancel every group's timer."""
        for watch in self.watches.values():
            watch.handle.cancel()
        self.watches.clear()
