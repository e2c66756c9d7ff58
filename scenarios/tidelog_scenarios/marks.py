"""Which records of a play are lost, and which differ from the leader's.

Of the states alone: a record is a row [offset, value, leader epoch]. It is acknowledged once it was
below the high watermark of a leader. It is lost while the leader's log, with what the remote tier
keeps of it, does not have it.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["DIVERGED", "LOST", "Marks", "leader_rows"]

DIVERGED = "diverged"
LOST = "lost"

Row = tuple[int, str, Any]


def leader_rows(state: Mapping[str, Any]) -> dict[int, Row] | None:
    """Return the records of the leader's log by offset, local and remote; None without a leader."""
    for facts in state.get("brokers", {}).values():
        if facts["role"] == "leader":
            remote = [row for each in state.get("remote", ()) for row in each.get("records", ())]
            ours = [row for row in remote if _is_of(facts, row)]
            return {row[0]: tuple(row) for row in (*ours, *facts["records"])}
    return None


def _is_of(facts: Mapping[str, Any], row: Any) -> bool:
    """Return whether a remote record is of the leader's lineage."""
    if not facts["log_start"] <= row[0] < facts["local_start"]:
        return False
    begun = [epoch for epoch, start in facts["epochs"] if start <= row[0]]
    return bool(begun) and begun[-1] == row[2]


class Marks:
    """The marks of one play: call `see` with the state of each step in order."""

    def __init__(self) -> None:
        self.lost: list[Row] = []
        """Acknowledged records that the leader does not have, by offset; without a leader those
        that the last one lacked."""
        self._acknowledged: set[Row] = set()
        self._ours: dict[int, Row] = {}

    def see(self, state: Mapping[str, Any]) -> None:
        """Take the state of the next step."""
        ours = leader_rows(state)
        if ours is None:
            return
        self._ours = ours
        (leader,) = (f for f in state["brokers"].values() if f["role"] == "leader")
        self._acknowledged |= {row for row in ours.values() if row[0] < leader["hw"]}
        kept = (row for row in self._acknowledged if row[0] >= leader["log_start"])
        self.lost = sorted((row for row in kept if ours.get(row[0]) != row), key=itemgetter(0, 1))

    def mark(self, row: Iterable[Any]) -> str | None:
        """Return the mark of a record in a replica's log or in an answer; None for most."""
        one: Row = tuple(row)
        ours = self._ours.get(one[0])
        if ours is not None and ours != one:
            return DIVERGED
        return LOST if one in self.lost else None
