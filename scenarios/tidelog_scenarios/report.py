"""A play as text: what each step changed, under one rule or under two side by side."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from tidelog_scenarios.marks import DIVERGED
from tidelog_scenarios.older import OLDER, WITHOUT
from tidelog_scenarios.rules import LEADER_EPOCHS
from tidelog_scenarios.table import WIDTH, paragraph, state_lines, value_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidelog_scenarios.player import Played
    from tidelog_scenarios.plays import Pair
    from tidelog_scenarios.values import Side

__all__ = ["Report"]

_BETWEEN = " | "
_COLUMN = (WIDTH - len(_BETWEEN)) // 2
_LEGEND = (
    "legend    epochs 1@3: leader epoch 1 begins at offset 3. Records [1] 3 x, 4 y: offsets and"
    " values of leader epoch 1. Ends are exclusive."
)


class Report:
    """The report of one play; `say` takes each line. `whole`: with the state after each step."""

    def __init__(
        self, name: str, document: Mapping[str, Any], say: Callable[[str], None], *, whole: bool
    ) -> None:
        self._name = name
        self._document = document
        self._say = say
        self._whole = whole
        self._marks: dict[bool, list[str]] = {}  # of the last step, of the old rule and the new

    def begin(self, *, with_old: bool) -> None:
        """Say what the play is about."""
        document, name = self._document, self._name
        lines = paragraph(document["title"])
        for key, word in (("sources", "source"), ("notes", "note"), ("deviations", "deviates")):
            for text in document.get(key, ()):
                lines += _said(word, text)
        lines += _said("", f"{_LEGEND}{' * marks what the step changed.' if self._whole else ''}")
        if with_old and name in OLDER:
            for rule in (LEADER_EPOCHS, OLDER[name].rule):
                lines += _said("rule", f"{rule.title}. {rule.text}")
        elif with_old:
            lines += _said("rule", WITHOUT[name])
        for line in lines:
            self._say(line)

    def step(self, pair: Pair) -> None:
        """Say what a step did and changed."""
        new, old, value = pair
        self._say("")
        if not new.number or old is None or value.old is None:
            for line in self._lines(new, value.new, WIDTH, is_old=False):
                self._say(line)
        else:
            left = self._lines(new, value.new, _COLUMN, is_old=False)
            right = self._lines(old, value.old, _COLUMN, is_old=True)
            for one, other in zip_longest(left, right, fillvalue=""):
                self._say(f"{one:<{_COLUMN}}{_BETWEEN}{other}".rstrip())
        if new.state and (self._whole or not new.number):
            for line in state_lines(new.state, new.before):
                self._say(line)
        if not new.number and old is not None:
            self._say("")
            title = OLDER[self._name].rule.title
            self._say(f"{LEADER_EPOCHS.title:<{_COLUMN}}{_BETWEEN}{title}")

    def _lines(self, played: Played, side: Side, width: int, *, is_old: bool) -> list[str]:
        lines = paragraph(f"{played.number}. {played.title}", "", "   ", width)
        for word, text in played.said:
            lines += _said(word, text, width)
        for place, text in side.changes:
            lines += _said(place, text, width)
        if played.number and not side.changes and not side.differences:
            lines += _said("", "nothing changed", width)
        marks = list(_marks(side))
        for text in marks:
            if text not in self._marks.get(is_old, []):
                lines += _said("!", text, width)
        self._marks[is_old] = marks
        for row in side.misread:
            lines += _said("!", f"the leader's log does not have {_row(row)}", width)
        if played.note:
            lines += _said("note", played.note, width)
        for difference in played.differences:
            lines += _said("DIFFERS", difference, width)
        return lines


def _said(word: str, text: str, width: int = WIDTH) -> list[str]:
    return paragraph(f"{word:<9} {text}" if word else text, "   ", " " * 13, width)


def _marks(side: Side) -> Iterator[str]:
    for row in side.lost:
        yield f"LOST {_row(row)}: it was acknowledged, and the leader does not have it"
    for broker in side.brokers:
        rows = [row for row in broker["records"] if row["mark"] == DIVERGED]
        for row in rows:
            yield f"DIVERGED {broker['name']} has {_row(row)}, its leader another record there"


def _row(row: Mapping[str, Any]) -> str:
    return value_words("first_record", [row["offset"], row["value"], row["epoch"]])
