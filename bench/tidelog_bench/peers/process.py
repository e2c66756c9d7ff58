"""A child process: its log, its end with ours, and what it cost (/proc and its CPU clock)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Child", "Memory", "apart", "cpu_seconds"]

_PR_SET_PDEATHSIG = 1
_CPUCLOCK_SCHED = 2
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_STOP_SECONDS_MAX = 20
_libc = ctypes.CDLL(None)


class Memory:
    """Resident bytes of a process: all of them, and those of its own (no files mapped)."""

    __slots__ = ("anonymous_bytes", "resident_bytes")

    def __init__(self, resident_bytes: int, anonymous_bytes: int) -> None:
        self.resident_bytes = resident_bytes
        self.anonymous_bytes = anonymous_bytes


def _die_with_parent() -> None:
    """No broker outlives the harness, however that ends. Kept by exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_seconds(pid: int) -> float:
    """CPU time of all a process's threads, ended ones as well, to the nanosecond.

    Its POSIX CPU clock (what clock_getcpuclockid gives); the same time as utime + stime of
    /proc/<pid>/stat, without its steps of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


@contextlib.contextmanager
def apart(pid: int) -> Iterator[None]:
    """Have a process on the first core and the harness on the others, if there are some: neither
    takes the other's time, or its caches."""
    cores = os.sched_getaffinity(0)
    first, *others = sorted(cores)

    def place(broker: set[int], harness: set[int]) -> None:
        os.sched_setaffinity(0, harness)
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(int(thread), broker)

    if others:
        place({first}, set(others))
    try:
        yield
    finally:
        place(cores, cores)


class Child:
    """One started program; standard output and error go to `log`."""

    def __init__(
        self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        # With PYTHONDONTWRITEBYTECODE each start would compile 350 modules: a user's does not.
        env = {key: value for key, value in (env or os.environ).items() if key != _NO_BYTECODE}
        with log.open("ab") as output:
            self.started = time.perf_counter()  # before the fork: exec is in every figure
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=log.parent,  # Kafka's test jar makes log4j write into the current folder
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - the harness has no threads here
            )
        self.log = log

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """CPU time of the process."""
        return cpu_seconds(self.pid)

    def children(self) -> list[int]:
        """Ids of the processes it has started and that still run."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children") as children:
            return [int(pid) for pid in children.read().split()]

    def memory(self) -> Memory:
        """Its memory now."""
        values = {}
        with open(f"/proc/{self.pid}/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in ("VmRSS", "RssAnon"):
                    values[name] = int(value.split()[0]) << 10
        return Memory(values["VmRSS"], values["RssAnon"])

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def check(self) -> None:
        """RuntimeError with the end of its log if it is no longer running."""
        if self._process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self._process.args!r} ended: {self._process.returncode}\n{tail}")

    def age(self) -> float:
        """Seconds since just before its exec."""
        return time.perf_counter() - self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal if it still runs, and wait for nothing."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; its exit code. Killed after 20 s."""
        if self._process.poll() is None:
            self._process.send_signal(how)
        assert self._process.stdin is not None
        try:
            return self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:  # not before: a broker that gets both ends as if its whole cluster stopped
            self._process.stdin.close()
