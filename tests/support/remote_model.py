"""Replicas of one tiered partition in a few lines, and what their leader keeps remotely.

The parts under test decide: lineage, metadata cache, copier, expiry, and the epoch cache. Around
them is only bookkeeping: a log is a list of values, a remote segment the values that were copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from support.remote_vectors import NOW, PARTITION, update_of
from tidelog_storage.epochs import LeaderEpochCache
from tidelog_storage.remote import copier, expiry, lineage
from tidelog_storage.remote.api import RemoteSegment, SegmentState
from tidelog_storage.remote.metadata_cache import PartitionMetadata

Value = tuple[int, int]  # leader epoch, number


@dataclass
class Copy:
    """A try of a copy, and what lies in the store afterwards."""

    segment: RemoteSegment
    values: dict[int, Value]
    copier_values: dict[int, Value]  # all of the log that it came from, up to the segment's end
    checkpoint: list[tuple[int, int]]
    by: Replica
    term: int


@dataclass(eq=False)
class Replica:
    """A log. `values` has all from the log start on, wherever they lie; `bases` are those of the
    local segments, the last one active."""

    name: str
    values: dict[int, Value] = field(default_factory=dict)
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    bases: list[int] = field(default_factory=lambda: [0])
    log_start: int = 0
    log_end: int = 0
    highest_remote: int = -1
    copied: int | None = None  # as a leader knows it
    running: Copy | None = None

    @property
    def local_start(self) -> int:
        return max(self.log_start, self.bases[0])

    @property
    def lineage(self) -> list[tuple[int, int]]:
        return [tuple(entry) for entry in self.epochs.entries]

    def epoch_at(self, offset: int) -> int:
        epoch = self.epochs.epoch_for_offset(offset)
        assert epoch is not None
        return epoch

    def append(self, value: Value) -> None:
        self.epochs.assign(value[0], self.log_end)
        self.values[self.log_end] = value
        self.log_end += 1

    def roll(self) -> None:
        if self.bases[-1] < self.log_end:
            self.bases.append(self.log_end)

    def truncate(self, offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        if offset < self.log_end:
            self.values = {at: value for at, value in self.values.items() if at < offset}
            self.bases = [base for base in self.bases if base <= offset] or [offset]
            self.log_end = offset
            self.highest_remote = min(self.highest_remote, offset - 1)

    def start_at(self, log_start: int) -> None:
        if log_start > self.log_start:
            self.log_start = log_start
            self.values = {at: value for at, value in self.values.items() if at >= log_start}
            self.epochs.truncate_from_start(log_start)

    def segments(self) -> list[copier.LocalSegment]:
        ends = [*self.bases[1:], self.log_end]
        return [
            copier.LocalSegment(base, end, end - base, NOW)
            for base, end in zip(self.bases, ends, strict=True)
        ]


class Tier:
    """The remote tier, the replicas, and who leads."""

    def __init__(self, names: str) -> None:
        self.replicas = [Replica(name) for name in names]
        self.metadata = PartitionMetadata(PARTITION)
        self.copies: dict[UUID, Copy] = {}
        self.epoch = -1
        self.number = 0
        self.elect(self.replicas[0])

    # -- replication -------------------------------------------------------------------------------

    def elect(self, replica: Replica) -> None:
        self.epoch += 1
        self.leader = replica
        replica.epochs.assign(self.epoch, replica.log_end)
        replica.start_at(
            lineage.find_log_start(replica.lineage, replica.local_start, self.metadata.segments)
        )
        replica.copied = replica.highest_remote = self.copied_up_to(replica)

    def copied_up_to(self, replica: Replica) -> int:
        copied = lineage.copied_up_to(
            replica.lineage, replica.log_end, self.metadata.highest_offset
        )
        return lineage.kept_up_to(
            copied.offset,
            replica.lineage,
            replica.local_start,
            replica.log_end,
            self.metadata.segment_for,
        )

    def produce(self) -> None:
        self.number += 1
        self.leader.append((self.epoch, self.number))

    def follow(self, replica: Replica, most: int) -> None:
        """Truncate to where the logs part, then fetch up to `most` records (KIP-279, KIP-405)."""
        leader = self.leader
        if replica is leader:
            return
        replica.epochs.truncate_from_end(replica.log_end)  # an epoch that it led without records
        while replica.log_end > replica.log_start and replica.epochs.latest_epoch >= 0:
            last = replica.epoch_at(replica.log_end - 1)
            answer = leader.epochs.end_offset_for(last, leader.log_end)
            if answer.leader_epoch == last and answer.offset >= replica.log_end:
                break
            own = replica.epochs.end_offset_for(answer.leader_epoch, replica.log_end)
            replica.truncate(max(min(answer.offset, own.offset), replica.log_start))
        if replica.log_end < leader.local_start and not self.build_aux_state(replica):
            return
        for offset in range(replica.log_end, min(replica.log_end + most, leader.log_end)):
            replica.append(leader.values[offset])
        if replica.log_end >= leader.log_start:
            replica.start_at(leader.log_start)
        replica.highest_remote = self.copied_up_to(replica)

    def build_aux_state(self, replica: Replica) -> bool:
        """Go on at the leader's local log start; whether the remote tier had what it takes."""
        leader, start = self.leader, self.leader.local_start
        epoch = leader.epoch_at(start)
        answer = None
        if epoch:
            end = leader.epochs.end_offset_for(epoch - 1, leader.log_end)
            answer = (end.leader_epoch, end.offset)
        target = lineage.target_epoch(start, epoch, answer)
        assert start == leader.log_start or target == leader.epoch_at(start - 1)
        found = lineage.aux_segment(self.metadata.segments(target), target, start - 1)
        if found is None:
            return False
        copy = self.copies[found.segment_id]
        # What is behind the leader's start may be of another branch: the next fetch tells.
        beyond = {at: value for at, value in copy.copier_values.items() if at >= start}
        replica.values = {at: leader.values[at] for at in range(leader.log_start, start)} | beyond
        replica.log_start = leader.log_start
        replica.log_end = found.end_offset + 1
        replica.bases = [replica.log_end]
        replica.epochs = LeaderEpochCache(None, copy.checkpoint)
        replica.epochs.truncate_from_start(leader.log_start)
        replica.highest_remote = found.end_offset
        assert all(
            leader.values[at] == value
            for at, value in copy.values.items()
            if leader.log_start <= at < start
        )
        return True

    # -- the leader's tasks ------------------------------------------------------------------------

    def begin_copy(self) -> None:
        leader = self.leader
        if leader.running is not None or leader.copied is None:
            return
        chosen = copier.eligible(
            leader.segments(),
            max(leader.copied + 1, leader.log_start),
            leader.log_end,
            copier.CopyLag(),
            NOW,
        )
        if not chosen:
            return
        base, end = chosen[0][:2]
        self.number += 1
        segment = RemoteSegment(
            topic_id_partition=PARTITION,
            segment_id=UUID(int=self.number),
            start_offset=base,
            end_offset=end - 1,
            broker_id=0,
            max_timestamp=NOW + end - 1,  # one record a millisecond
            event_timestamp=NOW,
            epochs=lineage.clipped(leader.lineage, base, end),
            size=end - base,
            state=SegmentState.COPY_SEGMENT_STARTED,
        )
        values = {at: value for at, value in leader.values.items() if at < end}
        leader.running = self.copies[segment.segment_id] = Copy(
            segment,
            {at: value for at, value in values.items() if at >= base},
            values,
            [tuple(entry) for entry in leader.epochs.entries_in_range(-1, end)],
            leader,
            self.epoch,
        )
        assert self.metadata.apply(segment)

    def end_copy(self, replica: Replica, state: SegmentState | None) -> None:
        """It is finished, is to be deleted, or (None) given up as it is."""
        copy, replica.running = replica.running, None
        if copy is None or state is None:
            return
        known = self.metadata.segment(copy.segment.segment_id)
        if known is None or not self.metadata.apply(update_of(known, state)):
            return  # expired meanwhile
        if state is SegmentState.COPY_SEGMENT_FINISHED and copy.term == self.epoch:
            assert replica is self.leader
            replica.copied = copy.segment.end_offset
            replica.highest_remote = max(replica.highest_remote, copy.segment.end_offset)

    def delete_local(self, replica: Replica) -> None:
        """As much as local retention may."""
        may_go = max(replica.highest_remote + 1, replica.log_start)
        while len(replica.bases) > 1 and replica.bases[1] <= may_go:
            del replica.bases[0]

    def expire(self, retention: expiry.RemoteRetention, fails: Any) -> expiry.ExpiryPlan:
        """One pass of the leader; `fails()` says whether a deletion does."""
        leader = self.leader
        found = self.plan(retention)
        leader.start_at(found.new_log_start)
        for segment in found.deletions:
            assert self.metadata.apply(update_of(segment, SegmentState.DELETE_SEGMENT_STARTED))
            if not fails():
                self.metadata.apply(update_of(segment, SegmentState.DELETE_SEGMENT_FINISHED))
        return found

    def plan(self, retention: expiry.RemoteRetention) -> expiry.ExpiryPlan:
        leader = self.leader
        return expiry.plan(
            self.metadata.segments(),
            expiry.LogExtent(
                leader.lineage, leader.log_start, leader.log_end, self.local_only_bytes
            ),
            retention,
            now_ms=self.now_ms,
            copying=self.copying,
        )

    @property
    def now_ms(self) -> int:
        return NOW + self.leader.log_end

    @property
    def local_only_bytes(self) -> int:
        highest = self.leader.highest_remote
        return sum(one.size for one in self.leader.segments() if one.base_offset > highest)

    @property
    def copying(self) -> set[UUID]:
        running = self.leader.running
        return {running.segment.segment_id} if running else set()
