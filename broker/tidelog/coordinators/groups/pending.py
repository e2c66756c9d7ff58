"""Offsets of open transactions (KIP-98): written, and waiting for their marker. Pure.

Owned by a shard. Kafka's OffsetMetadataManager keeps the same by producer id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.coordinators.groups.offsets import OffsetChange

__all__ = ["PendingOffsets"]

_Key = tuple[str, str, int]  # group, topic, partition


class PendingOffsets:
    """Changes by producer id. A later commit outside of transactions supersedes a change: its
    marker then commits nothing, but the partition stays unstable until it arrives."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, dict[_Key, OffsetChange | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def add(self, producer_id: int, changes: Iterable[OffsetChange]) -> None:
        """Add changes that were appended."""
        changed = self._producers.setdefault(producer_id, {})
        for change in changes:
            changed[change[:3]] = change

    def supersede(self, changes: Iterable[OffsetChange]) -> None:
        """Mark changes as superseded by commits outside of transactions, or deleted."""
        for change in changes:
            for changed in self._producers.values():
                if change.offset is None:
                    changed.pop(change[:3], None)
                elif change[:3] in changed:
                    changed[change[:3]] = None

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetChange]:
        """Return the changes that an appended marker commits."""
        changed = self._producers.pop(producer_id, {})
        return [each for each in changed.values() if each is not None] if is_commit else []

    def of_group(self, group_id: str) -> set[tuple[str, int]]:
        """Return the topics and partitions that are not stable."""
        return {
            key[1:] for changed in self._producers.values() for key in changed if key[0] == group_id
        }

    def tombstones(self, is_wanted: Callable[[OffsetChange], bool]) -> list[OffsetChange]:
        """Return tombstones for matching changes, without superseded ones."""
        return [
            change._replace(offset=None)
            for changed in self._producers.values()
            for change in changed.values()
            if change is not None and is_wanted(change)
        ]
