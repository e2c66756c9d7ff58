"""Scenarios for pages: played by another process, kept, refused in one sentence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.control import scenarios
from tidelog.control.errors import ControlError
from tidelog.control.scenarios import Scenarios

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def with_plays(use: Callable[[Scenarios], Awaitable[None]]) -> None:
    async def test() -> None:
        await use(Scenarios())

    asyncio.run(test())


def test_the_steps_show_the_record_that_the_old_rule_loses() -> None:
    async def use(plays: Scenarios) -> None:
        shown = await plays.play("kip101-s1")
        assert (shown["name"], shown["no_old_rule"]) == ("kip101-s1", None)
        assert [step["number"] for step in shown["steps"]] == list(range(8))
        last = shown["steps"][-1]
        m2 = {"offset": 1, "value": "m2", "epoch": 0}
        assert (last["new"]["lost"], last["old"]["lost"]) == ([], [m2])
        assert values(last["new"]) == [["m1", "m2"]] * 2
        assert values(last["old"]) == [["m1"]] * 2
        assert await plays.play("kip101-s1") is shown

    with_plays(use)


def values(side: dict[str, Any]) -> list[list[str]]:
    return [[row["value"] for row in each["records"]] for each in side["brokers"]]


def test_an_unknown_scenario_is_refused() -> None:
    async def use(plays: Scenarios) -> None:
        known = await plays.all()
        assert known[0]["name"] == "kip101-s1"
        with pytest.raises(
            ControlError, match=r"no scenario 'kip101'; there are kip101-s1, kip101-s2"
        ):
            await plays.play("kip101")

    with_plays(use)


def test_a_play_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "PLAY_S_MAX", 0)

    async def use(plays: Scenarios) -> None:
        with pytest.raises(ControlError, match="the scenario did not end within 0 s"):
            await plays.all()

    with_plays(use)


def test_a_play_ends_with_its_door() -> None:
    async def use(plays: Scenarios) -> None:
        play = asyncio.ensure_future(plays.all())
        while plays._process is None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        plays.end()
        with pytest.raises(ControlError, match="tidelog scenario failed"):
            await play
        plays.end()
        assert plays._process is None

    with_plays(use)


def test_a_process_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios.sys, "executable", "/bin/false")

    async def use(plays: Scenarios) -> None:
        with pytest.raises(ControlError, match="tidelog scenario failed"):
            await plays.all()

    with_plays(use)
