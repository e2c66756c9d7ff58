"""A play as values: for each step what was done, the state under each rule and what changed.

`tidelog scenario --json` prints them, and the page of the control door shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog_scenarios.changes import changes
from tidelog_scenarios.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog_scenarios.player import Played

__all__ = ["Side", "Sides", "Step"]

_ROWS = ("offset", "value", "epoch")
_NAMES = {"hw": "high_watermark", "leo": "log_end", "lso": "last_stable", "remote_leo": "followers"}


@dataclass(frozen=True, slots=True)
class Side:
    """One step under one rule."""

    said: list[tuple[str, str]]
    """Words and texts, in order: what was `asked`, `forced`, `answered`."""
    brokers: list[dict[str, Any]]
    """Each replica: its role, offsets, `epochs` and `records`; a record has a `mark`, "lost" or
    "diverged", or None."""
    remote: list[dict[str, Any]] | None
    """Segments of the remote tier; None without one."""
    in_sync: list[str]
    lost: list[dict[str, Any]]
    """Acknowledged records that the leader does not have any more."""
    misread: list[dict[str, Any]]
    """Records that a consumer was given and the leader's log does not have."""
    changes: list[tuple[str, str]]
    """Places and what the step changed there."""
    differences: list[str]
    """From the expected results; empty in a play that ends well."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step under today's rule, and under the older one if the scenario has one."""

    number: int
    title: str
    note: str
    new: Side
    old: Side | None


class Sides:
    """Makes the values of one play: call `of` with each step in order."""

    def __init__(self) -> None:
        self._marks = Marks()

    def of(self, played: Played) -> Side:
        """Return the next step as a value."""
        state, marks = played.state, self._marks
        marks.see(state)
        answered = played.reply.get("records", []) if "from" in played.reply else []
        return Side(
            said=played.said,
            brokers=[self._broker(name, f) for name, f in state.get("brokers", {}).items()],
            remote=self._remote(state),
            in_sync=list(state.get("isr", ())),
            lost=_rows(marks.lost),
            misread=_rows(row for row in answered if marks.mark(row)),
            changes=changes(played.before, state),
            differences=played.differences,
        )

    def _broker(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        rest = {_NAMES.get(key, key): value for key, value in facts.items()}
        return {"name": name, **rest, "records": self._marked(facts["records"])}

    def _remote(self, state: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        if "remote" not in state:
            return None
        found: dict[str, dict[str, Any]] = {}
        for key in ("rlmm", "remote"):
            for each in state[key]:
                seen = found.setdefault(each["id"], {"in_store": False})
                seen |= each | {"in_store": key == "remote"}
        return [
            facts | {"records": self._marked(facts.get("records", ()))}
            for _, facts in sorted(found.items())
        ]

    def _marked(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        rows = list(rows)
        marks = [self._marks.mark(row) for row in rows]
        return [row | {"mark": mark} for row, mark in zip(_rows(rows), marks, strict=True)]


def _rows(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [dict(zip(_ROWS, row, strict=True)) for row in rows]
