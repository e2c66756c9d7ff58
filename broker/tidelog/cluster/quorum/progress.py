"""The leader's state of the other replicas of the metadata log; `core.py` keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.quorum_state import NO_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["OBSERVERS_MAX", "Progress", "progress_of"]

OBSERVERS_MAX = 1000  # whose progress is kept: any id may fetch


class Progress:
    """A leader's state of a replica. `end_offset` -1: it has not fetched in this epoch."""

    __slots__ = ("caught_up_at", "directory_id", "end_offset", "fetched_at", "leader_end_offset")

    def __init__(self) -> None:
        self.directory_id = NO_DIRECTORY
        self.end_offset = -1
        self.fetched_at = float("-inf")
        self.caught_up_at = float("-inf")
        self.leader_end_offset = -1  # at the previous fetch


def progress_of(known: dict[int, Progress], voters: Collection[int], node_id: int) -> Progress:
    """Return the progress of a replica that fetches. A new observer above the limit replaces the
    one that was silent for longest."""
    progress = known.get(node_id)
    if progress is None:
        observers = [other for other in known if other not in voters]
        if len(observers) >= OBSERVERS_MAX:
            del known[min(observers, key=lambda other: known[other].fetched_at)]
        progress = known[node_id] = Progress()
    return progress
