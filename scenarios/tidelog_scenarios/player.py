"""Plays a vector on a live stage, step by step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.network.peers import PeerError
from tidelog_scenarios.actions import Actions
from tidelog_scenarios.compare import reply_differs, state_differs, unsound
from tidelog_scenarios.initial_state import InitialState
from tidelog_scenarios.observer import Observer
from tidelog_scenarios.table import asked, sentence
from tidelog_scenarios.vocabulary import PlayError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidelog_scenarios.actions import Reply
    from tidelog_scenarios.stage import Stage

__all__ = ["Played", "Player", "differing"]

SETTLES_S_MAX = 60.0
LOOK_AGAIN_S = 0.05
STEP_S_MAX = 240.0
_UNSAID = ("error_code", "first_record")


class Played(NamedTuple):
    """A step that was played."""

    number: int
    """0 is the beginning."""
    title: str
    note: str
    said: list[tuple[str, str]]
    """Words and texts: what was asked, forced and answered."""
    reply: Reply
    state: dict[str, Any]
    """Empty if the step failed."""
    before: dict[str, Any] | None
    """The state before the step."""
    differences: list[str]
    """From the vector. After a step that has some the play ends."""


class Player:
    """Runs the steps of one vector by `actions` and compares their results."""

    def __init__(
        self, stage: Stage, document: dict[str, Any], new_actions: type[Actions] = Actions
    ) -> None:
        self.stage = stage
        self.given, self.steps = document["given"], document["steps"]
        self.said: list[tuple[str, str]] = []
        self.actions = new_actions(stage, document, self._tell)
        self.observer = Observer(stage, self.actions.names)

    async def play(self) -> str:
        """Play up to the first step that differs; return it with its differences, or ""."""
        difference = ""
        async for played in self.played():
            difference = differing(played)
        return difference

    async def played(self) -> AsyncIterator[Played]:
        """Play; yield each step up to the first that differs."""
        keys = ("brokers", "isr", "remote", "rlmm")
        expected = {key: self.given[key] for key in keys if key in self.given}
        brokers = " and ".join(self.given["brokers"])
        title = f"The state at the beginning, of brokers {brokers}"
        played = await self._step(self._set_up(), {"name": title, "expect": expected}, 0, None)
        yield played
        for number, step in enumerate(self.steps, 1):
            if played.differences:
                return
            said = dict(step["do"])
            action = said.pop("action")
            self._tell("asked", asked(action, said))
            work = getattr(self.actions, f"do_{action}")(**self.actions.arguments(step))
            played = await self._step(work, step, number, played.state)
            yield played

    async def _set_up(self) -> None:
        copied = "; the leader copied the remote segments" if self.stage.is_tiered else ""
        self._tell(
            "made",
            f"leader epochs and ISR in the metadata log, records appended as by followers{copied}",
        )
        actions = self.actions
        given = InitialState(
            self.stage, actions.interventions, actions.names, self.given, actions.now_ms
        )
        await given.set_up()

    async def _step(
        self, work: Any, step: dict[str, Any], number: int, before: dict[str, Any] | None
    ) -> Played:
        """Await the work of a step and compare its results."""
        differences = self.actions.differences
        answer: Reply = {}
        state: dict[str, Any] = {}
        expected = step.get("expect", {})
        try:
            async with asyncio.timeout(STEP_S_MAX):
                answer = await work or {}
                if answer:
                    shown = {key: value for key, value in answer.items() if key not in _UNSAID}
                    self._tell("answered", sentence(shown))
                differences += reply_differs(answer, step.get("reply", {}))
                state = await self._settled(expected)
        except TimeoutError:
            differences.append(f"the step did not end within {STEP_S_MAX:g} s")
        except (PlayError, PeerError) as error:
            differences.append(str(error))
        else:
            differences += self.differs(state, expected)
        said, self.said = self.said, []
        name, note = step.get("name", ""), step.get("note", "")
        return Played(number, name, note, said, answer, state, before, list(differences))

    async def _settled(self, expected: dict[str, Any]) -> dict[str, Any]:
        """Return the state once it is as expected, or after a minute."""
        if self.stage.is_tiered:
            await self.actions.interventions.until_agreed(self.given["brokers"])
        loop = asyncio.get_running_loop()
        until = loop.time() + SETTLES_S_MAX
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            state = await self.observer.state()
            if loop.time() > until or not self.differs(state, expected):
                return state

    def differs(self, state: dict[str, Any], expected: dict[str, Any]) -> list[str]:
        """Return a sentence for each difference and for each broken rule."""
        return [*state_differs(state, expected), *unsound(state)]

    def _tell(self, word: str, text: str) -> None:
        self.said.append((word, text))


def differing(played: Played) -> str:
    """Return where a step differs from its vector and how; "" if it does not."""
    where = f"in step {played.number}, {played.title}" if played.number else "at the beginning"
    return f"{where}: {'; '.join(played.differences)}" if played.differences else ""
