"""Processes that a test starts: they end with the test, whether it passes or fails.

A process that outlives a failed test keeps its pipes open, and a later test is blamed for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

READY = "tidelog ready bootstrap.servers="
COMMAND = (sys.executable, "-m", "tidelog")
END_S_MAX = 120.0  # for the machine; a broker says so itself when its end takes 4.5 s


class Start(Protocol):
    """The `start` fixture: run a command with pipes, and further environment variables."""

    def __call__(
        self, *words: str, stdin: int | IO[bytes] = subprocess.PIPE, **environment: str
    ) -> subprocess.Popen[str]: ...


class Serve(Protocol):
    """The `serve` fixture: run `tidelog serve` with these options, and wait until it is ready."""

    def __call__(self, *words: str, **environment: str) -> Served: ...


class Served:
    """A `tidelog serve` process that is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.line = process.stdout.readline()
        assert self.line.startswith(READY), (self.line, process.communicate(timeout=END_S_MAX))
        self.bootstrap = self.line.strip().removeprefix(READY)

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal; exit code and what else was printed."""
        self.process.send_signal(number)
        return ended(self.process)


def ended(process: subprocess.Popen[str], text: str | None = None) -> tuple[int, str, str]:
    """Write to its input, close that, wait for its end; exit code and what it printed."""
    out, err = process.communicate(text, timeout=END_S_MAX)
    return process.returncode, out, err


def under_another_hash_seed(program: str) -> str:
    """Run it with tests/ on the path and sets in another order than here; what it prints."""
    here = os.environ.get("PYTHONHASHSEED")
    environment = {
        "PYTHONHASHSEED": "77" if here != "77" else "0",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as running:

        def run(
            *words: str, stdin: int | IO[bytes] = subprocess.PIPE, **environment: str
        ) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
            )
            running.callback(_end, process)
            return process

        yield run


@pytest.fixture
def serve(start: Start) -> Serve:
    return lambda *words, **environment: Served(start(*COMMAND, "serve", *words, **environment))


def _end(process: subprocess.Popen[str]) -> None:
    """Kill it. What it started itself ends too, when its input does."""
    process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):  # what was written and never read
                pipe.close()
    process.wait()
