"""One partition of `__share_group_state` in memory: Kafka's ShareCoordinatorShard.

A request changes nothing by itself. It returns an answer and perhaps a record, which `replay`
applies once it is appended, the same as at loading. Pure: no log, wire or timers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.coordinators.share.batches import merge
from tidelog.coordinators.share.records import ShareRecord, Snapshot, Update
from tidelog.coordinators.share.values import (
    UNINITIALIZED,
    Outcome,
    StateOutcome,
    SummaryOutcome,
)
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.coordinators.share.values import (
        Deletion,
        Initialization,
        Reading,
        SharePartition,
        StateBatch,
        Writing,
    )

__all__ = ["ShareShard"]

_DEFAULT_LEADER_EPOCH = 0

# Kafka's messages
_NEGATIVE = "The partition id cannot be a negative number."
_WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
_READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
_FENCED_LEADER = "The leader epoch in the request is older than the epoch on the broker."
_FENCED_STATE = (
    "The share coordinator rejected the request because the share-group state epoch did not match."
)
_UNKNOWN = "This server does not host this topic-partition."
_INVALID_BATCH = "A state batch ends before it begins."

_Refusal = tuple[ErrorCode, str]


@dataclass(slots=True)
class _Entry:
    """The state of a share partition. The epochs are the highest ones, below which requests are
    fenced; those of the state may be lower."""

    state: Snapshot
    leader_epoch: int
    state_epoch: int
    update_count: int = 0  # since its last snapshot
    offset: int = -1  # of its last snapshot in the log


class ShareShard:
    """States of the share partitions of one partition of the topic."""

    def __init__(self, index: int, leader_epoch: int, updates_per_snapshot: int) -> None:
        """`updates_per_snapshot`: after so many updates of a state comes a snapshot."""
        self.index = index
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.end_offset = 0  # after the last append
        self.deleted_topics: set[bytes] = set()  # ids, while loading
        self.pruned_offset = 0  # up to which the log was deleted by this coordinator
        self._updates_per_snapshot = updates_per_snapshot
        self._entries: dict[SharePartition, _Entry] = {}
        self._snapshot_offset = 0  # of the last snapshot or deletion of any state

    def __len__(self) -> int:
        """Return the number of states."""
        return len(self._entries)

    def state(self, key: SharePartition) -> Snapshot | None:
        """Return a state."""
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    # ---- records -------------------------------------------------------------------------------

    def replay(self, record: ShareRecord, offset: int) -> None:
        """Apply a record that has been appended or loaded."""
        self.end_offset = offset + 1
        key, value = record
        if isinstance(value, Update):
            self._replay_update(key, value)
            return
        self._snapshot_offset = offset
        if value is None:
            self._entries.pop(key, None)
            return
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(value, value.leader_epoch, value.state_epoch)
            self._entries[key] = entry
        entry.state = value
        entry.leader_epoch = max(entry.leader_epoch, value.leader_epoch)
        entry.state_epoch = max(entry.state_epoch, value.state_epoch)
        entry.offset = offset
        if entry.update_count >= self._updates_per_snapshot:
            entry.update_count = 0

    def _replay_update(self, key: SharePartition, update: Update) -> None:
        """An update without a state comes from before a later snapshot: the state was pruned."""
        entry = self._entries.get(key)
        if entry is None:
            state = Snapshot(
                update.snapshot_epoch,
                0,
                update.leader_epoch,
                update.start_offset,
                update.delivery_complete_count,
                0,
                0,
                update.batches,
            )
            self._entries[key] = _Entry(state, update.leader_epoch, 0, 1)
            return
        state = entry.state
        start_offset = _changed(update.start_offset, state.start_offset)
        entry.state = state._replace(
            leader_epoch=_changed(update.leader_epoch, state.leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            batches=merge(state.batches, update.batches, start_offset),
        )
        entry.leader_epoch = max(entry.leader_epoch, update.leader_epoch)
        entry.update_count += 1

    # ---- requests ------------------------------------------------------------------------------

    def initialize(
        self, key: SharePartition, item: Initialization, now_ms: int, *, is_known: bool
    ) -> tuple[Outcome, ShareRecord | None]:
        """Begin a state, in the place of one of the same or an earlier epoch. `is_known`: the
        cluster has the partition."""
        entry = self._entries.get(key)
        refusal = _negative(key)
        if refusal is None and entry is not None and -1 < item.state_epoch < entry.state_epoch:
            refusal = ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE
        refusal = refusal or _unknown(is_known=is_known)
        if refusal is not None:
            return Outcome(*refusal), None
        is_decided = item.start_offset != UNINITIALIZED
        snapshot = Snapshot(
            0 if entry is None else _after(entry.state.snapshot_epoch),
            item.state_epoch,
            _DEFAULT_LEADER_EPOCH,
            item.start_offset,
            0 if is_decided else UNINITIALIZED,
            now_ms,
            now_ms,
            (),
        )
        return Outcome(), ShareRecord(key, snapshot)

    def read(
        self, key: SharePartition, item: Reading, now_ms: int, *, is_known: bool
    ) -> tuple[StateOutcome, ShareRecord | None]:
        """Read a state. The record, if any, has the epoch of a new leader."""
        entry = self._entries.get(key)
        refusal = (
            _negative(key)
            or _uninitialized(entry, _READ_UNINITIALIZED)
            or _fenced(entry, item.leader_epoch)
            or _unknown(is_known=is_known)
        )
        if refusal is not None:
            return StateOutcome(*refusal), None
        assert entry is not None
        state = entry.state
        outcome = StateOutcome(
            state_epoch=state.state_epoch, start_offset=state.start_offset, batches=state.batches
        )
        if item.leader_epoch in (-1, entry.leader_epoch):
            return outcome, None
        update = Update(
            state.snapshot_epoch,
            item.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
            (),
        )
        return outcome, self._record(key, entry, update, now_ms)

    def write(
        self, key: SharePartition, item: Writing, now_ms: int, *, is_known: bool
    ) -> tuple[Outcome, ShareRecord | None]:
        """Change a state. The leader's epoch is compared, and only a read sets it."""
        entry = self._entries.get(key)
        refusal = (
            _negative(key)
            or _uninitialized(entry, _WRITE_UNINITIALIZED)
            or _fenced(entry, item.leader_epoch)
        )
        if refusal is None and entry is not None and -1 < item.state_epoch < entry.state_epoch:
            refusal = ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE
        refusal = refusal or _unknown(is_known=is_known) or _invalid(item.batches)
        if refusal is not None:
            return Outcome(*refusal), None
        assert entry is not None
        state = entry.state
        update = Update(
            state.snapshot_epoch,
            state.leader_epoch,
            item.start_offset,
            item.delivery_complete_count,
            merge((), item.batches, item.start_offset),
        )
        return Outcome(), self._record(key, entry, update, now_ms)

    def delete(
        self, key: SharePartition, item: Deletion, now_ms: int, *, is_known: bool
    ) -> tuple[Outcome, ShareRecord | None]:
        """Delete a state; without one it is no error."""
        del item, now_ms  # as the other requests
        refusal = _negative(key) or _unknown(is_known=is_known)
        if refusal is not None:
            return Outcome(*refusal), None
        return Outcome(), ShareRecord(key, None) if key in self._entries else None

    def read_summary(
        self, key: SharePartition, item: Reading, now_ms: int, *, is_known: bool
    ) -> tuple[SummaryOutcome, None]:
        """Read a state without its batches. No epoch is compared."""
        del item, now_ms
        refusal = _negative(key) or _unknown(is_known=is_known)
        if refusal is not None:
            return SummaryOutcome(*refusal), None
        entry = self._entries.get(key)
        if entry is None:
            return SummaryOutcome(start_offset=UNINITIALIZED), None
        state = entry.state
        return SummaryOutcome(
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        ), None

    def _record(
        self, key: SharePartition, entry: _Entry, update: Update, now_ms: int
    ) -> ShareRecord:
        """Return the update, or a snapshot with it if many updates have come since the last."""
        if entry.update_count < self._updates_per_snapshot:
            return ShareRecord(key, update)
        state = entry.state
        start_offset = _changed(update.start_offset, state.start_offset)
        snapshot = state._replace(
            snapshot_epoch=_after(state.snapshot_epoch),
            leader_epoch=update.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            create_ms=now_ms,
            write_ms=now_ms,
            batches=merge(state.batches, update.batches, start_offset),
        )
        return ShareRecord(key, snapshot)

    # ---- periodic work -------------------------------------------------------------------------

    def cold_snapshots(self, now_ms: int, interval_ms: int) -> list[ShareRecord]:
        """Return snapshots of states without one for an interval, so that the log before them may
        be pruned. While all states are cold there are none."""
        states = [(key, entry.state) for key, entry in self._entries.items()]
        if all(state.create_ms != state.write_ms for _, state in states):
            return []
        return [
            ShareRecord(
                key, state._replace(snapshot_epoch=_after(state.snapshot_epoch), write_ms=now_ms)
            )
            for key, state in states
            if now_ms - state.write_ms >= interval_ms
        ]

    def of_topics(self, topic_ids: Collection[bytes]) -> list[ShareRecord]:
        """Return deletions of the states of these topics."""
        return [ShareRecord(key, None) for key in self._entries if key.topic_id in topic_ids]

    @property
    def redundant_offset(self) -> int:
        """The offset up to which nothing in the log is needed. Kafka's
        ShareCoordinatorOffsetsManager."""
        if not self._entries:
            return self._snapshot_offset
        return max(0, min(entry.offset for entry in self._entries.values()))


def _changed(new: int, old: int) -> int:
    return old if new == -1 else new


def _after(snapshot_epoch: int) -> int:
    """Return the next epoch, in Java's int arithmetic as in Kafka: nothing compares it."""
    return (snapshot_epoch + 1 + (1 << 31)) % (1 << 32) - (1 << 31)


def _negative(key: SharePartition) -> _Refusal | None:
    return (ErrorCode.INVALID_REQUEST, _NEGATIVE) if key.partition < 0 else None


def _uninitialized(entry: _Entry | None, message: str) -> _Refusal | None:
    return (ErrorCode.INVALID_REQUEST, message) if entry is None else None


def _fenced(entry: _Entry | None, leader_epoch: int) -> _Refusal | None:
    if entry is not None and -1 < leader_epoch < entry.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER
    return None


def _unknown(*, is_known: bool) -> _Refusal | None:
    return None if is_known else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)


def _invalid(batches: tuple[StateBatch, ...]) -> _Refusal | None:
    """Kafka takes such batches; merging them may then never end."""
    if all(0 <= each.first_offset <= each.last_offset for each in batches):
        return None
    return ErrorCode.INVALID_REQUEST, _INVALID_BATCH
