"""Which leader epochs and remote segments of a cluster are which of the vector.

They differ: a time without a leader begins an epoch as well, and segment ids are chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["Names"]


class Names:
    """Of one play."""

    def __init__(self) -> None:
        self._to_cluster = {-1: -1}
        self._to_vector = {-1: -1}
        self._symbols: dict[UUID, str] = {}
        self.segments: dict[UUID, RemoteSegment] = {}
        """All that have a name, whether they are still there or not."""

    def add_epoch(self, of_vector: int, of_cluster: int) -> None:
        """An epoch of the vector has begun."""
        self._to_cluster[of_vector] = of_cluster
        self._to_vector[of_cluster] = of_vector

    def cluster_epoch(self, epoch: int) -> int:
        """An epoch of the vector in the cluster; one that has not begun is above all."""
        newest = max(self._to_cluster)
        known = self._to_cluster.get(epoch)
        return self._to_cluster[newest] + epoch - newest if known is None else known

    def epoch(self, epoch: int) -> int | str:
        """An epoch of the cluster in the vector; one that the vector leaves out in brackets."""
        return self._to_vector.get(epoch, f"({epoch})")

    def epochs(self, entries: Iterable[Iterable[int]]) -> list[list[Any]]:
        """(leader epoch, start offset) of each."""
        return [[self.epoch(epoch), start] for epoch, start in entries]

    def rows(self, rows: Iterable[list[Any]]) -> list[list[Any]]:
        """[offset, value, leader epoch] of each."""
        return [[offset, value, self.epoch(epoch)] for offset, value, epoch in rows]

    def told(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Facts of the cluster in the vector's words."""
        return {key: self._told(key, value) for key, value in facts.items()}

    def _told(self, key: str, value: Any) -> Any:
        match key:
            case "leader_epoch" | "last_fetched_epoch" | "current_leader_epoch" | "epoch":
                return self.epoch(value)
            case "epochs" | "checkpoint":
                return self.epochs(value)
            case "records":
                return self.rows(value)
            case "diverging":
                return self.told(value)
        return value

    def add_segment(self, symbol: str, segment: RemoteSegment) -> None:
        """A segment of the vector was copied."""
        self._symbols[segment.segment_id] = symbol
        self.segments[segment.segment_id] = segment

    def symbol(self, segment_id: UUID) -> str:
        """The vector's name of a segment, or its id if the vector does not know it."""
        return self._symbols.get(segment_id) or uuid_to_str(segment_id.bytes)
