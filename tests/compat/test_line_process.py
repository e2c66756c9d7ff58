"""Programs behind JSON lines: whose answer is whose, and how they end."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from compat.line_process import LineProcess, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# It answers with what it was asked, a little later; it keeps silent when the op says so.
ECHO = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "silence":
        continue
    time.sleep(0.01)
    print(json.dumps(asked), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[LineProcess]:
    process = LineProcess([sys.executable, "-S", "-c", ECHO], tmp_path / "log")
    yield process
    process.kill()


def test_each_of_several_threads_gets_its_own_answer(program: LineProcess) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda number: program.call("echo", number=number), range(20)))
    assert [answer["number"] for answer in answers] == list(range(20))


def test_one_that_does_not_answer_in_time_is_ended(program: LineProcess) -> None:
    """Its late answer would be taken for that of the next call."""
    with pytest.raises(TimeoutError, match="no answer to silence"):
        program.call("silence", answer_timeout_s=0.05)
    assert not program.running()


def test_a_call_ends_when_its_program_is_killed(program: LineProcess) -> None:
    with ThreadPoolExecutor(1) as threads:
        assert program.call("echo", number=1)["number"] == 1
        waiting = threads.submit(program.call, "silence")
        program.kill()
        with pytest.raises((WorkerError, OSError, ValueError)):
            waiting.result(30)
