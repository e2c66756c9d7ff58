"""Names that all parts of a play share."""

from __future__ import annotations

__all__ = ["TOPIC", "VOTERS", "PlayError"]

TOPIC = "play"
VOTERS = {"X": 8, "Y": 9}


class PlayError(Exception):
    """The cluster does not do what the scenario says; the text describes it."""
