"""The interface to the state of share groups: Kafka's Persister.

The group coordinator and the leaders of share partitions use it. It sends each share partition to
its share coordinator, here or on another broker, and tries again while that one loads or moves.

Each method returns one outcome for each item, in their order, and raises nothing. After an error
other than a fenced epoch it is unknown whether a change took effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.coordinators.share.values import (
        Deletion,
        Initialization,
        Outcome,
        Reading,
        StateOutcome,
        SummaryOutcome,
        Writing,
    )

__all__ = ["Persister"]


class Persister(Protocol):
    """Reads and writes the state of a group's share partitions. Await it in a task."""

    async def initialize(self, group_id: str, items: Sequence[Initialization]) -> list[Outcome]:
        """Begin states: FENCED_STATE_EPOCH if there is one of a later epoch."""
        ...

    async def read(self, group_id: str, items: Sequence[Reading]) -> list[StateOutcome]:
        """Read states as a leader: FENCED_LEADER_EPOCH if a later one has read or written,
        INVALID_REQUEST if the state is not initialized. Start offset -1: not decided yet."""
        ...

    async def write(self, group_id: str, items: Sequence[Writing]) -> list[Outcome]:
        """Change states: FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH for an earlier leader or an
        earlier state, INVALID_REQUEST if the state is not initialized."""
        ...

    async def delete(self, group_id: str, items: Sequence[Deletion]) -> list[Outcome]:
        """Delete states."""
        ...

    async def read_summary(self, group_id: str, items: Sequence[Reading]) -> list[SummaryOutcome]:
        """Read summaries, which fences no leader. Start offset -1: there is no state."""
        ...
