"""Map leader epochs and remote segments between the cluster and the vector.

They differ: a time without a leader begins an epoch too, and segment ids are random.
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
    """The names of one play."""

    def __init__(self) -> None:
        self._to_cluster = {-1: -1}
        self._to_vector = {-1: -1}
        self._symbols: dict[UUID, str] = {}
        self.segments: dict[UUID, RemoteSegment] = {}
        """All named segments, deleted ones included."""

    def add_epoch(self, of_vector: int, of_cluster: int) -> None:
        """Record that an epoch of the vector began."""
        self._to_cluster[of_vector] = of_cluster
        self._to_vector[of_cluster] = of_vector

    def cluster_epoch(self, epoch: int) -> int:
        """Return the cluster's epoch for one of the vector; one that has not begun is above all."""
        newest = max(self._to_cluster)
        known = self._to_cluster.get(epoch)
        return self._to_cluster[newest] + epoch - newest if known is None else known

    def epoch(self, epoch: int) -> int | str:
        """Return the vector's epoch for one of the cluster, in brackets if the vector has none."""
        return self._to_vector.get(epoch, f"({epoch})")

    def epochs(self, entries: Iterable[Iterable[int]]) -> list[list[Any]]:
        """Translate entries of (leader epoch, start offset)."""
        return [[self.epoch(epoch), start] for epoch, start in entries]

    def rows(self, rows: Iterable[list[Any]]) -> list[list[Any]]:
        """Translate rows of [offset, value, leader epoch]."""
        return [[offset, value, self.epoch(epoch)] for offset, value, epoch in rows]

    def translated(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Translate facts of the cluster into the vector's terms."""
        return {key: self._translated(key, value) for key, value in facts.items()}

    def _translated(self, key: str, value: Any) -> Any:
        match key:
            case "leader_epoch" | "last_fetched_epoch" | "current_leader_epoch" | "epoch":
                return self.epoch(value)
            case "epochs" | "checkpoint":
                return self.epochs(value)
            case "records":
                return self.rows(value)
            case "diverging":
                return self.translated(value)
        return value

    def add_segment(self, symbol: str, segment: RemoteSegment) -> None:
        """Record that a segment of the vector was copied."""
        self._symbols[segment.segment_id] = symbol
        self.segments[segment.segment_id] = segment

    def symbol(self, segment_id: UUID) -> str:
        """Return the vector's name of a segment, or its id if it has none."""
        return self._symbols.get(segment_id) or uuid_to_str(segment_id.bytes)
