"""Blocking control calls to the process of a `RunningCluster`, through its standard input."""

from __future__ import annotations

import os
import select
from threading import Condition
from typing import TYPE_CHECKING, Any

from tidelog.control.errors import REFUSED, UNANSWERED, ControlError
from tidelog.control.wire import ANSWER_S_MAX, answer_of, call_line

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

__all__ = ["Pipe"]

READ_BYTES = 64 << 10


class Pipe:
    """The lines of a process: the ready line, then answers to calls.

    Threads may call at the same time: one of those that wait reads for all. Invariant:
    `_is_reading` is True while a thread is in `read_line`; only that thread changes `_rest`.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._rest = b""
        self._changed = Condition()
        self._number = 0
        self._waiting: set[int] = set()
        self._answers: dict[int, tuple[Any, ControlError | None]] = {}
        self._is_reading = False

    def read_line(self, seconds: float) -> str | None:
        """Return the next line of the process, None at its end; TimeoutError if none comes."""
        stdout = self._process.stdout
        assert stdout is not None
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            if not poll.poll(seconds * 1000):
                self._rest = b"".join(parts)
                raise TimeoutError
            chunk = os.read(stdout.fileno(), READ_BYTES)
            if not chunk:
                return None
            parts.append(chunk)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line.decode().strip()

    def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Make a call and return its result in its JSON form; ControlError if there is none."""
        stdin = self._process.stdin
        assert stdin is not None
        with self._changed:
            self._number += 1
            number = self._number
            self._waiting.add(number)
            try:
                line = memoryview(call_line(number, call, args))
                while line:  # not by the buffer of `stdin`, which would keep what cannot be sent
                    line = line[os.write(stdin.fileno(), line) :]
            except OSError:
                self._waiting.discard(number)
                raise _ended(call) from None
        result, error = self._answer(number, call)
        if error is not None:
            raise error
        return result

    def _answer(self, number: int, call: str) -> tuple[Any, ControlError | None]:
        """Wait for an answer, and read while no other thread does."""
        with self._changed:
            try:
                while number not in self._answers:
                    if self._is_reading:
                        self._changed.wait()
                    else:
                        self._read(call)
                return self._answers.pop(number)
            finally:
                self._waiting.discard(number)

    def _read(self, call: str) -> None:
        """Read one line, without the lock, and keep the answer for the thread that waits."""
        self._is_reading = True
        self._changed.release()
        try:
            line = self.read_line(ANSWER_S_MAX)
        except TimeoutError:
            text = f"no answer to {call} within {ANSWER_S_MAX:g} s"
            raise ControlError(text, status=UNANSWERED) from None
        finally:
            self._changed.acquire()
            self._is_reading = False
            self._changed.notify_all()
        if line is None:
            raise _ended(call)
        answer = answer_of(line)
        if answer is not None and answer[0] in self._waiting:
            self._answers[answer[0]] = answer[1:]
            self._changed.notify_all()


def _ended(call: str) -> ControlError:
    return ControlError(f"the process of the brokers ended during {call}", status=REFUSED)
