"""The time of a step of a group."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NO_TIMESTAMP", "Now"]

NO_TIMESTAMP = -1


class Now(NamedTuple):
    """The time of a step: one clock for deadlines, one for records."""

    ticks_ms: int  # monotonic
    wall_ms: int
