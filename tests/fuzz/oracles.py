"""Runs one input: only declared errors, a budget of CPU time, a budget of memory."""

from __future__ import annotations

import signal
import traceback
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

CPU_S_MAX = 8.0
"""Of this process, for one input of at most `INPUT_BYTES_MAX`; most take a millisecond. A busy
machine is no fault: this is CPU time."""

INPUT_BYTES_MAX = 64 << 10
MEMORY_BYTES = 48 << 20  # whatever the input: tables that are compiled, a decompressed batch
MEMORY_PER_BYTE = 1000  # an empty element of an array is one byte on the wire

SEEN_FRAMES = 6  # of a traceback


class Target(NamedTuple):
    """What is fuzzed. `run` takes any bytes and raises `declared` errors alone. `seeds` are inputs
    that reach far; `mutate` changes one, as `mutation.mutated` does if it is None."""

    name: str
    run: Callable[[bytes], None]
    declared: tuple[type[Exception], ...]
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, int], bytes] | None = None


class TooSlowError(BaseException):
    """The budget of CPU time is spent. No `except Exception` keeps it."""


class Fault(NamedTuple):
    """What is wrong with an input. `kind` tells bugs apart: where it was raised."""

    target: str
    data: bytes
    kind: str
    text: str


def find_fault(target: Target, data: bytes, *, with_memory: bool = False) -> Fault | None:
    """Run an input; None if all is as it should be."""
    try:
        with _cpu_budget(), _memory_budget(len(data)) if with_memory else _nothing():
            target.run(data)
    except target.declared:
        return None
    except (Exception, TooSlowError) as error:  # noqa: BLE001 - each is a finding
        return Fault(target.name, data, _kind(error), traceback.format_exc())
    return None


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _cpu_budget() -> Iterator[None]:
    def too_slow(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {CPU_S_MAX} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _memory_budget(size: int) -> Iterator[None]:
    """Outside of it memory is not traced: that takes half of the time."""
    tracemalloc.start()
    try:
        yield
    except Exception:
        _check_memory(size)
        raise
    else:
        _check_memory(size)
    finally:
        tracemalloc.stop()


def _check_memory(size: int) -> None:
    _, peak = tracemalloc.get_traced_memory()
    limit = MEMORY_BYTES + MEMORY_PER_BYTE * size
    assert peak <= limit, f"{peak} bytes of memory for {size} bytes of input"


def _kind(error: BaseException) -> str:
    """The exception and the functions that raised it, without lines: they change."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/tidelog" in frame.filename]
    if isinstance(error, TooSlowError):  # where the alarm rang is chance
        return " < ".join(("TooSlowError", *(frame.name for frame in own[:2])))
    names = [f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in own[-SEEN_FRAMES:]]
    return " < ".join((type(error).__name__, *reversed(names)))
