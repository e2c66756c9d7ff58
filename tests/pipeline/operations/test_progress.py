"""The progress bar of long work: on a terminal alone, and never backwards."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tidelog_pipeline.operations import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shares(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"(\d+)%", text)]


def test_a_bar_grows_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_SECONDS", 0.001)
    bar = progress.Progress("Exporting t", 200)
    seen = iter([10, 60, 20])  # between two stages no task runs
    done = 0

    def count() -> int:
        nonlocal done
        done = next(seen, 100)
        return done

    def job() -> str:
        while done != 100:
            pass
        return "result"

    assert bar.watch(job, count) == "result"
    bar.add(200)
    bar.end()
    text = terminal.getvalue()
    assert text.startswith("\rExporting t [")
    assert text.endswith("] 100%\n")
    assert shares(text) == sorted(shares(text))
    assert {5, 30, 50, 100} <= set(shares(text))


def test_no_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    bar = progress.Progress("Exporting t", 10)
    bar.add(10)
    bar.end()
    assert plain.getvalue() == ""


def test_an_interrupt_does_not_wait_for_the_job() -> None:
    goes_on = threading.Event()

    def interrupt() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        progress.Progress("x", 1).watch(goes_on.wait, interrupt)
    assert not goes_on.is_set()
    goes_on.set()
