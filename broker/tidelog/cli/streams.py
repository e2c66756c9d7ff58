"""Standard input, output and error of the commands that run or format brokers."""

# ruff: noqa: PLC0415 - start-up time: asyncio is only needed once a loop runs

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def refuse(reason: str) -> int:
    """Print the reason in one line and return the exit code."""
    print(f"tidelog: {reason}", file=sys.stderr)
    return 1


def read_stdin(at_end: Callable[[], None]) -> None:
    """Discard the input; call `at_end` at its end."""
    import asyncio

    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        at_end()


def say(line: str) -> None:
    """Print, unless the reader closed the pipe."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
