"""Offsets of open transactions (KIP-98): written, and waiting for their marker. Pure.

Owned by a shard. Kafka's OffsetMetadataManager keeps the same by producer id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.groups.offsets import OffsetChange

__all__ = ["PendingOffsets"]

_Key = tuple[str, str, int]  # group, topic, partition


class PendingOffsets:
    """Changes by producer id. An offset committed plainly after one of them is the newer one:
    then the marker brings nothing, but the partition is unstable until it comes all the same."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, dict[_Key, OffsetChange | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def add(self, producer_id: int, changes: Iterable[OffsetChange]) -> None:
        """They are in the log."""
        changed = self._producers.setdefault(producer_id, {})
        for change in changes:
            changed[change[:3]] = change

    def supersede(self, changes: Iterable[OffsetChange]) -> None:
        """These were committed outside of transactions, or deleted, and what waits with them."""
        for change in changes:
            for changed in self._producers.values():
                if change.offset is None:
                    changed.pop(change[:3], None)
                elif change[:3] in changed:
                    changed[change[:3]] = None

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetChange]:
        """A marker is in the log: what is committed with it."""
        changed = self._producers.pop(producer_id, {})
        return [each for each in changed.values() if each is not None] if is_commit else []

    def of_group(self, group_id: str) -> set[tuple[str, int]]:
        """Topics and partitions that are not stable."""
        return {
            key[1:] for changed in self._producers.values() for key in changed if key[0] == group_id
        }

    def tombstones(self, is_wanted: Callable[[OffsetChange], bool]) -> list[OffsetChange]:
        """For the wanted ones; not for those that a plain commit has overtaken."""
        return [
            change._replace(offset=None)
            for changed in self._producers.values()
            for change in changed.values()
            if change is not None and is_wanted(change)
        ]
