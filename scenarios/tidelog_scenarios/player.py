"""Plays a vector on a live stage, step by step, and reports what happens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.network.peers import PeerError
from tidelog_scenarios.actions import Actions
from tidelog_scenarios.compare import reply_differs, state_differs, unsound
from tidelog_scenarios.initial_state import InitialState
from tidelog_scenarios.observer import Observer
from tidelog_scenarios.table import asked, paragraph, sentence, state_lines
from tidelog_scenarios.vocabulary import PlayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_scenarios.actions import Reply
    from tidelog_scenarios.stage import Stage

__all__ = ["Player", "play"]

SETTLES_S_MAX = 60.0
LOOK_AGAIN_S = 0.05
STEP_S_MAX = 240.0
_UNSAID = ("error_code", "first_record")


async def play(stage: Stage, document: dict[str, Any], say: Callable[[str], None]) -> str:
    """Play a vector up to the first step that differs. Return that step and its differences, or "".

    `say` takes each line of the report.
    """
    for line in _title_lines(document):
        say(line)
    async with stage:
        return await Player(stage, document, say).play()


def _title_lines(document: dict[str, Any]) -> list[str]:
    lines = paragraph(document["title"])
    for key, word in (("sources", "source"), ("notes", "note"), ("deviations", "deviates")):
        for text in document.get(key, ()):
            lines += paragraph(f"{word:<9} {text}", "  ", " " * 12)
    lines += paragraph(
        "legend    epochs 1@3: leader epoch 1 begins at offset 3. Records [1] 3 x, 4 y: offsets and"
        " values of leader epoch 1. Ends are exclusive. * marks what the step changed.",
        "  ",
        " " * 12,
    )
    return lines


class Player:
    """Runs the steps of one vector by `actions` and compares their results."""

    def __init__(
        self,
        stage: Stage,
        document: dict[str, Any],
        say: Callable[[str], None],
        new_actions: type[Actions] = Actions,
    ) -> None:
        self.stage, self.say = stage, say
        self.given, self.steps = document["given"], document["steps"]
        self.actions = new_actions(stage, document, self._tell)
        self.observer = Observer(stage, self.actions.names)
        self.shown: dict[str, Any] | None = None

    async def play(self) -> str:
        """Play up to the first step that differs; return it with its differences, or ""."""
        self.say("")
        self.say(f"0. The state at the beginning, of brokers {' and '.join(self.given['brokers'])}")
        keys = ("brokers", "isr", "remote", "rlmm")
        expected = {key: self.given[key] for key in keys if key in self.given}
        if not await self._step(self._set_up(), {}, expected):
            return self._differing("at the beginning")
        for number, step in enumerate(self.steps, 1):
            name = step.get("name", "")
            self.say("")
            for line in paragraph(f"{number}. {name}", "", "   "):
                self.say(line)
            said = dict(step["do"])
            action = said.pop("action")
            self._tell("asked", asked(action, said))
            work = getattr(self.actions, f"do_{action}")(**self.actions.arguments(step))
            if not await self._step(work, step.get("reply", {}), step.get("expect", {})):
                return self._differing(f"in step {number}, {name}")
            if "note" in step:
                self._tell("note", step["note"])
        return ""

    def _differing(self, where: str) -> str:
        return f"{where}: {'; '.join(self.actions.differences)}"

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

    async def _step(self, work: Any, reply: Reply, expected: dict[str, Any]) -> bool:
        """Await a step; return whether its results match."""
        differences = self.actions.differences
        try:
            async with asyncio.timeout(STEP_S_MAX):
                answer: Reply = await work or {}
                if answer:
                    shown = {key: value for key, value in answer.items() if key not in _UNSAID}
                    self._tell("answered", sentence(shown))
                differences += reply_differs(answer, reply)
                state = await self._settled(expected)
        except TimeoutError:
            differences.append(f"the step did not end within {STEP_S_MAX:g} s")
        except (PlayError, PeerError) as error:
            differences.append(str(error))
        else:
            for line in state_lines(state, self.shown):
                self.say(line)
            self.shown = state
            differences += self.differs(state, expected)
        for difference in differences:
            self._tell("DIFFERS", difference)
        return not differences

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
        for line in paragraph(f"{word:<9} {text}", "   ", " " * 13):
            self.say(line)
