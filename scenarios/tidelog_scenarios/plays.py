"""Plays a scenario, under today's rule alone or with the older one beside it, step by step."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_scenarios import load, older
from tidelog_scenarios.host_stage import HostStage
from tidelog_scenarios.older import OLDER, WITHOUT
from tidelog_scenarios.player import Player
from tidelog_scenarios.rules import LEADER_EPOCHS
from tidelog_scenarios.values import Sides, Step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidelog_scenarios.player import Played
    from tidelog_scenarios.rules import Rule

__all__ = ["Pair", "described", "play"]


class Pair(NamedTuple):
    """A step as it was played, and as a value."""

    new: Played
    old: Played | None
    value: Step


async def play(
    name: str, document: dict[str, Any], *, isolated: bool, with_old: bool
) -> AsyncIterator[Pair]:
    """Play the vector of a scenario; yield its steps up to the first that differs from it.

    With `with_old` a second cluster plays the older rule at the same time, if there is one.
    """
    plays = [(document, LEADER_EPOCHS)]
    if with_old and name in OLDER:
        plays.append((older.document(document, OLDER[name]), OLDER[name].rule))
    async with AsyncExitStack() as stack:
        players = []
        for vector, rule in plays:
            stage = HostStage(vector, isolated=isolated, rule=rule)
            players.append(Player(await stack.enter_async_context(stage), vector).played())
        sides = [Sides() for _ in players]
        for _ in range(len(document["steps"]) + 1):
            played = await asyncio.gather(*(anext(player) for player in players))
            yield _pair(played, sides)
            if any(each.differences for each in played):
                return


def _pair(played: list[Played], sides: list[Sides]) -> Pair:
    new, *rest = played
    values = [side.of(each) for side, each in zip(sides, played, strict=True)]
    old = values[1] if rest else None
    return Pair(
        new, rest[0] if rest else None, Step(new.number, new.title, new.note, values[0], old)
    )


def described(name: str) -> dict[str, Any]:
    """Return what a scenario is about: title, sources, notes, and its rules."""
    document = load(name)
    found = OLDER.get(name)
    return {
        "name": name,
        "title": document["title"],
        **{key: document.get(key, []) for key in ("sources", "notes", "deviations")},
        "rules": {
            "new": _rule(LEADER_EPOCHS),
            "old": None if found is None else _rule(found.rule),
        },
        "no_old_rule": WITHOUT.get(name),
    }


def _rule(rule: Rule) -> dict[str, str]:
    return {"title": rule.title, "text": rule.text}
