"""A helper program spoken to in JSON lines: the drivers of every client and of the JVM."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ANSWER_TIMEOUT_S = 150.0


class WorkerError(Exception):
    """An op failed in the program: the client's own exception name and message."""


class LineProcess:
    """One child process; `call` writes one request line and waits, bounded, for one answer line.

    Threads may share it: one call at a time.
    """

    def __init__(
        self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(env or {})},
                cwd=log.parent,  # Kafka's test jar makes log4j write into the current folder
            )
        self._unread = b""
        self._one_at_a_time = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, op: str, *, answer_timeout_s: float = ANSWER_TIMEOUT_S, **fields: Any) -> Any:
        """The answer; TimeoutError, and the end of the process, if there is none in time.

        Its next answer would be taken for that of the next call.
        """
        stdin = self._process.stdin
        assert stdin is not None
        with self._one_at_a_time:
            stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
            stdin.flush()
            try:
                answer = json.loads(self._read_line(op, answer_timeout_s))
            except TimeoutError:
                self._process.kill()
                self._process.wait()
                raise
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _read_line(self, op: str, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        parts = [self._unread]
        while b"\n" not in parts[-1]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise TimeoutError(f"no answer to {op} within {timeout_s:.0f} s\n{self._tail()}")
            data = os.read(descriptor, 1 << 20)
            if not data:
                code = self._process.wait()
                raise WorkerError(f"the program ended ({code}) during {op}\n{self._tail()}")
            parts.append(data)
        line, _, self._unread = b"".join(parts).partition(b"\n")
        return line

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: the program gets no chance to say good-bye to its broker."""
        if self.running():
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        with self._one_at_a_time:  # a thread that waits for an answer sees the end of the output
            self._close_pipes()

    def close(self) -> None:
        """End of input asks the program to leave; after five seconds it is killed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
