"""What shared parts, and the draft of a heartbeat, see of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GroupView", "Limits"]

M_co = TypeVar("M_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Limits(Protocol):
    """The settings that all types of groups have."""

    @property
    def session_timeout_ms(self) -> int:
        """How long a member stays without heartbeats."""

    @property
    def size_max(self) -> int:
        """Members of a group."""

    @property
    def assignment_interval_ms(self) -> int:
        """Shortest time between two target assignments."""


class GroupView(Protocol[M_co, T_co]):
    """A group of members M_co with targets T_co."""

    group_id: str
    epoch: int
    metadata_hash: int
    assignment_epoch: int
    assignment_ms: int  # wall time of the target assignment
    is_stale: bool  # topics may have changed since the last look

    @property
    def limits(self) -> Limits:
        """The settings that count for it."""

    @property
    def members(self) -> Mapping[str, M_co]:
        """The members by id."""

    @property
    def targets(self) -> Mapping[str, T_co]:
        """The target assignment by member id."""
