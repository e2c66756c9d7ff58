"""Committed offsets of groups: values, store and expiry. Pure.

Used by the shards of the group coordinator. A store is the state at one offset of the log. A shard
has two: one with everything appended, one with everything committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.now import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from collections.abc import Set as AbstractSet

    from tidelog.coordinators.groups.kinds import AnyGroup
ZERO_UUID = bytes(16)


class OffsetAndMetadata(NamedTuple):
    """One committed offset. `expire_timestamp` only from OffsetCommit v2-v4, else -1."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID

    def is_of(self, topic_id: bytes) -> bool:
        """Return False only if both ids are known and differ: the topic was created again since."""
        return topic_id in {self.topic_id, ZERO_UUID} or self.topic_id == ZERO_UUID


class OffsetChange(NamedTuple):
    """One record about an offset; None removes it."""

    group_id: str
    topic: str
    partition: int
    offset: OffsetAndMetadata | None


PartitionOffsets = dict[int, OffsetAndMetadata]
_NO_OFFSETS: dict[str, PartitionOffsets] = {}


class OffsetStore:
    """Offsets by group, topic and partition. Invariant: no empty mapping is kept."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, PartitionOffsets]] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def apply(self, change: OffsetChange) -> None:
        """Apply a record."""
        group_id, topic, partition, offset = change
        if offset is not None:
            topics = self._groups.setdefault(group_id, {})
            topics.setdefault(topic, {})[partition] = offset
            return
        topics = self._groups.get(group_id, _NO_OFFSETS)
        offsets = topics.get(topic)
        if offsets is None or offsets.pop(partition, None) is None:
            return
        if not offsets:
            del topics[topic]
        if not topics:
            del self._groups[group_id]

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetAndMetadata]]:
        """Return a group's offsets by topic and partition; empty if it has none."""
        return self._groups.get(group_id, _NO_OFFSETS)

    def forget_group(self, group_id: str) -> list[OffsetChange]:
        """Return tombstones for all of a group's offsets."""
        return [
            OffsetChange(group_id, topic, partition, None)
            for topic, offsets in self.of_group(group_id).items()
            for partition in offsets
        ]

    def forget_topics(self, topics: Mapping[str, Collection[bytes]]) -> list[OffsetChange]:
        """Return tombstones for every group's offsets of deleted topics, by name and ids."""
        return [
            OffsetChange(group_id, topic, partition, None)
            for group_id, known in self._groups.items()
            for topic in _common(known, topics)
            for partition, offset in known[topic].items()
            if offset.topic_id in topics[topic]
        ]


def _common(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """Return the keys of both, by a look at the fewer ones."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    return [key for key in few if key in many]


class Expiry(NamedTuple):
    """The result of a check for expired offsets: tombstones, and whether no offset is left."""

    tombstones: list[OffsetChange]
    is_all: bool


def expired_offsets(
    group: AnyGroup,
    store: OffsetStore,
    now_ms: int,
    retention_ms: int,
    *,
    unstable: AbstractSet[tuple[str, int]] = frozenset(),
) -> Expiry:
    """Find offsets past their retention (offsets.retention.minutes, KIP-186 and KIP-211).

    Retention starts when a group loses its last member. It starts at the commit for topics that a
    stable consumer group no longer subscribes to, and for consumers outside groups. `unstable`
    offsets, which an open transaction may change, are kept.
    """
    topics = store.of_group(group.group_id)
    if not topics:
        return Expiry([], True)
    base = group.retention_start_ms
    if base is None:
        return Expiry([], False)
    tombstones, is_all = [], True
    for topic, offsets in topics.items():
        for partition, offset in offsets.items():
            since = offset.commit_timestamp if base == NO_TIMESTAMP else base
            is_expired = (
                now_ms - since >= retention_ms
                if offset.expire_timestamp == NO_TIMESTAMP
                else now_ms >= offset.expire_timestamp
            )
            is_kept = group.is_subscribed(topic) or (topic, partition) in unstable
            if is_expired and not is_kept:
                tombstones.append(OffsetChange(group.group_id, topic, partition, None))
            else:
                is_all = False
    return Expiry(tombstones, is_all)
