"""Callbacks that hold an event loop, in all tests: the end of a run lists those that took most CPU
time, with what they did.

CPU time of the loop's thread, so that a busy machine adds nothing to the list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tidelog.watchdog import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.watchdog import SlowCallback

LIMIT_MS = 50
LISTED_MAX = 20
STACK_SHOWN = 4


class Held(NamedTuple):
    """The longest of the callbacks that were in the same place."""

    cpu_ms: int
    where: str
    test: str


class Longest:
    """The longest callback of each place."""

    def __init__(self) -> None:
        self._found: dict[str, Held] = {}

    def add(self, held: Held) -> None:
        known = self._found.get(held.where)
        if known is None or known.cpu_ms < held.cpu_ms:
            self._found[held.where] = held

    def sorted(self) -> list[Held]:
        return sorted(self._found.values(), reverse=True)[:LISTED_MAX]


class LoopWatch:
    """The plugin of a process that runs tests."""

    def __init__(self, limit_ms: int = LIMIT_MS) -> None:
        self.longest = Longest()
        self._test = ""
        self._limit_ms = limit_ms
        self._end: Callable[[], None] = watch(limit_ms, self._slow)

    def _slow(self, callback: SlowCallback) -> None:
        if callback.cpu_ms >= self._limit_ms:
            where = " < ".join((callback.name, *callback.stack[:STACK_SHOWN]))
            self.longest.add(Held(round(callback.cpu_ms), where, self._test))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._end()
        output = getattr(session.config, "workeroutput", None)  # of a worker of xdist
        if output is not None:
            output[LoopWatch.__name__] = [list(held) for held in self.longest.sorted()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take what a worker of xdist has found."""
        output: dict[str, list[tuple[int, str, str]]] = getattr(node, "workeroutput", {})
        for held in output.get(LoopWatch.__name__, ()):
            self.longest.add(Held(*held))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in summary(self.longest.sorted()):
            terminalreporter.write_line(line)


def summary(found: Iterable[Held]) -> list[str]:
    """The lines of a list, none if it is empty."""
    lines = [f"{each.cpu_ms:6} ms  {each.where}  ({each.test})" for each in found]
    head = f"event loops were held for {LIMIT_MS} ms of CPU time or more:"
    return [head, *lines] if lines else []


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LoopWatch(), LoopWatch.__name__)
