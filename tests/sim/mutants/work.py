"""Planted bugs in what a part of the seeds does: sessions of consumers, append times, retention.

Each is looked for in the seeds that have its kind of work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.mutants import shares
from tidelog.api import produce
from tidelog.cluster.controller.changes import Election, PartitionDraft
from tidelog.coordinators.groups.classic import records
from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.share.shard import ShareShard
from tidelog.replication.fetch_sessions import FetchedPartition, FetchSession
from tidelog.replication.partition import Partition
from tidelog_storage import retention, validator
from tidelog_storage.compaction import offset_map, rewriting
from tidelog_storage.retention import Retention

Patch = Callable[..., None]


def sessions_forget_nothing(patch: Patch) -> None:
    """Partitions that a consumer took out of its session are answered on and on."""
    patch(FetchSession, "forget", lambda *_: None)


def sessions_stay_where_they_began(patch: Patch) -> None:
    """An incremental request does not move the fetch offset of a partition in the session."""
    patch(FetchedPartition, "update_request", lambda *_: None)


def append_time_of_the_producer(patch: Patch) -> None:
    """Records are marked as stamped by the leader, with the producer's time."""
    original = validator.set_timestamp

    def set_timestamp(records: Any, at: int, header: Any, kind: int, _ms: int) -> Any:
        return original(records, at, header, kind, header.max_timestamp)

    patch(validator, "set_timestamp", set_timestamp)


def another_append_time_is_answered(patch: Patch) -> None:
    """The producer is answered the time after the append, and not the record's."""
    original = produce.produced

    def produced(index: int, offset: int, append_time: int, log_start: int) -> Any:
        return original(index, offset, append_time + (append_time >= 0), log_start)

    patch(produce, "produced", produced)


def one_segment_too_many(patch: Patch) -> None:
    """Retention by size goes on until less than the limit is left."""
    original = retention._too_large

    def too_large(listed: Any, count: int, limit: int) -> Any:
        return original(listed, count, limit - 1000)

    patch(retention, "_too_large", too_large)


def retention_ahead_of_time(patch: Patch) -> None:
    """Records go a second before their time."""
    original = Retention.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, log: Any, now_ms: int) -> Any:
        return original(cls, log, now_ms + 1000)

    patch(Retention, "of", classmethod(of))


def elect_past_the_in_sync(patch: Patch) -> None:
    """Where unclean elections are allowed, the first replica that lives leads, in sync or not."""
    original = PartitionDraft._new_leader

    def new_leader(self: PartitionDraft) -> int:
        first = self.replicas[0]
        if self._rules.election is not Election.UNCLEAN or first == self.partition.leader:
            return original(self)
        if not self._rules.may_lead(self.partition, first):
            return original(self)
        self._unclean = first not in self.isr
        return first

    patch(PartitionDraft, "_new_leader", new_leader)


def recover_by_half(patch: Patch) -> None:
    """A leader that was elected uncleanly begins with half of what it has."""
    original = Partition.update

    def update(self: Partition, image: Any) -> None:
        is_new = image.leader_epoch > self.leader_epoch
        original(self, image)
        if is_new and self.is_leader and image.leader_recovery_state:
            self.log.truncate_to(self.log.log_end_offset // 2, 0)

    patch(Partition, "update", update)


def keys_that_begin_alike_are_one(patch: Patch) -> None:
    """Compaction compares keys by their first bytes."""
    patch(offset_map, "_short", lambda key: key[:4])


def tombstones_delete_nothing(patch: Patch) -> None:
    """Compaction keeps what a record without a value deletes, and later drops that record."""
    original = rewriting.record_spans

    def record_spans(*args: Any) -> Any:
        return [span._replace(key=span.key if span.has_value else None) for span in original(*args)]

    patch(rewriting, "record_spans", record_spans)


def twins_go_on(patch: Patch) -> None:
    """A process that another one has replaced stays in the group (KIP-345 fences it)."""
    heartbeat, validate_commit = Group.heartbeat, Group.validate_commit

    def beat(self: Group, member_id: str, instance_id: str | None, *rest: Any) -> Any:
        known = self.members.static.get(instance_id or "", member_id)
        return heartbeat(self, known, instance_id, *rest)

    def commit(self: Group, member_id: str, instance_id: str | None, *rest: Any) -> Any:
        known = self.members.static.get(instance_id or "", member_id)
        return validate_commit(self, known, instance_id, *rest)

    patch(Group, "heartbeat", beat)
    patch(Group, "validate_commit", commit)


def instances_are_not_loaded(patch: Patch) -> None:
    """A coordinator that loads a group takes all members for dynamic ones."""
    original = records.Member

    def member(member_id: str, _instance_id: str | None, **rest: Any) -> Any:
        return original(member_id, None, **rest)

    patch(records, "Member", member)


def returns_lose_their_assignment(patch: Patch) -> None:
    """A static member that comes back to a stable group is there without what it had."""
    original = Group._rename_static_member

    def rename(self: Group, *names: str) -> Any:
        member = original(self, *names)
        member.assignment = b""
        return member

    patch(Group, "_rename_static_member", rename)


def states_are_pruned_ahead(patch: Patch) -> None:
    """The log of share groups' states is deleted up to its end, with snapshots that are needed."""
    patch(ShareShard, "redundant_offset", property(lambda self: self.end_offset))


def updates_of_states_are_not_loaded(patch: Patch) -> None:
    """A share coordinator that takes over has each state as its last snapshot had it."""
    original = ShareShard._replay_update

    def replay(self: ShareShard, *record: Any) -> None:
        if not self.is_loading:
            original(self, *record)

    patch(ShareShard, "_replay_update", replay)


Plantings = dict[str, Callable[[Callable[..., None]], None]]


def moves_end_before_their_replicas_are_in_sync(patch: Patch) -> None:
    """A reassignment ends at once, and the new replicas count as in sync."""

    def complete(self: PartitionDraft) -> None:
        if self.adding or self.removing:
            replicas = [replica for replica in self.replicas if replica not in self.removing]
            self.isr, self.replicas = list(replicas), replicas
            self.adding, self.removing = [], []

    patch(PartitionDraft, "_complete_reassignment", complete)


BY_KIND: dict[str, Plantings] = {
    "append time": {
        "another-append-time-is-answered": another_append_time_is_answered,
        "append-time-of-the-producer": append_time_of_the_producer,
    },
    "compacted topic": {
        "keys-that-begin-alike-are-one": keys_that_begin_alike_are_one,
        "tombstones-delete-nothing": tombstones_delete_nothing,
    },
    "fetch sessions": {
        "sessions-forget-nothing": sessions_forget_nothing,
        "sessions-stay-where-they-began": sessions_stay_where_they_began,
    },
    "new topics that move": {
        "moves-end-before-their-replicas-are-in-sync": moves_end_before_their_replicas_are_in_sync,
    },
    "retention": {
        "one-segment-too-many": one_segment_too_many,
        "retention-ahead-of-time": retention_ahead_of_time,
    },
    "share groups": {
        "leaders-load-no-share-states": shares.stored_states_are_not_loaded,
        "share-groups-acknowledge-in-memory": shares.acknowledgements_in_memory,
        "states-are-pruned-ahead": states_are_pruned_ahead,
        "updates-of-states-are-not-loaded": updates_of_states_are_not_loaded,
    },
    "static members": {
        "instances-are-not-loaded": instances_are_not_loaded,
        "returns-lose-their-assignment": returns_lose_their_assignment,
        "twins-go-on": twins_go_on,
    },
    "unclean elections": {
        "elect-past-the-in-sync": elect_past_the_in_sync,
        "recover-by-half": recover_by_half,
    },
}
MUTANTS: Plantings = {name: plant for some in BY_KIND.values() for name, plant in some.items()}
