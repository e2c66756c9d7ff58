"""Offsets of open transactions (KIP-98): written, and waiting for their marker. Pure.

Owned by a shard. Kafka's OffsetMetadataManager keeps the same by producer id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidelog.coordinators.groups.offsets import OffsetChange

__all__ = ["PendingOffsets"]

_Place = tuple[str, int]  # topic, partition
_Key = tuple[str, str, int]  # group, topic, partition


class PendingOffsets:
    """Changes by producer id. A later commit, or a later change that is committed first, supersedes
    a change: its marker then commits nothing, but the partition stays unstable until it arrives.

    Invariant: `_holders` has the producers of each partition, by group, in the order of their last
    changes: thousands of transactions are not searched for one group.
    """

    __slots__ = ("_holders", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, dict[_Key, OffsetChange | None]] = {}
        self._holders: dict[str, dict[_Place, dict[int, None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def add(self, producer_id: int, changes: Iterable[OffsetChange]) -> None:
        """Add changes that were appended."""
        changed = self._producers.setdefault(producer_id, {})
        for change in changes:
            changed[change[:3]] = change
            places = self._holders.setdefault(change.group_id, {})
            holders = places.setdefault(change[1:3], {})
            holders.pop(producer_id, None)
            holders[producer_id] = None

    def supersede(self, changes: Iterable[OffsetChange]) -> None:
        """Mark changes as superseded by commits outside of transactions, or deleted."""
        for key, change in {change[:3]: change for change in changes}.items():
            holders = self._holders.get(key[0], {}).get(key[1:], {})
            for producer_id in list(holders):
                if change.offset is None:
                    del self._producers[producer_id][key]
                    self._release(producer_id, key)
                else:
                    self._producers[producer_id][key] = None

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetChange]:
        """Return the changes that an appended marker commits."""
        changed = self._producers.pop(producer_id, {})
        for key, change in changed.items():
            if is_commit and change is not None:
                self._supersede_earlier(producer_id, key)
            self._release(producer_id, key)
        return [each for each in changed.values() if each is not None] if is_commit else []

    def _supersede_earlier(self, producer_id: int, key: _Key) -> None:
        for holder in self._holders[key[0]][key[1:]]:
            if holder == producer_id:
                return
            self._producers[holder][key] = None

    def _release(self, producer_id: int, key: _Key) -> None:
        places = self._holders[key[0]]
        holders = places[key[1:]]
        del holders[producer_id]
        if not holders:
            del places[key[1:]]
        if not places:
            del self._holders[key[0]]

    def of_group(self, group_id: str) -> set[_Place]:
        """Return the topics and partitions that are not stable."""
        return set(self._holders.get(group_id, ()))

    def forget_group(self, group_id: str) -> list[OffsetChange]:
        """Return tombstones for a group's changes, without superseded ones."""
        return [
            change._replace(offset=None)
            for place, holders in self._holders.get(group_id, {}).items()
            if (change := self._change((group_id, *place), holders)) is not None
        ]

    def forget_topics(self, topics: Mapping[str, Collection[bytes]]) -> list[OffsetChange]:
        """Return tombstones for the changes of these topics, by name and ids, without superseded
        ones."""
        return [
            change._replace(offset=None)
            for group_id, places in self._holders.items()
            for place, holders in places.items()
            if place[0] in topics
            and (change := self._change((group_id, *place), holders)) is not None
            and change.offset is not None
            and change.offset.topic_id in topics[place[0]]
        ]

    def _change(self, key: _Key, holders: Iterable[int]) -> OffsetChange | None:
        """Return a change that is not superseded."""
        changes = (self._producers[producer_id][key] for producer_id in holders)
        return next((change for change in changes if change is not None), None)
