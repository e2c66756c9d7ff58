"""The broker's interfaces to time, network, threads and randomness (files:
`tidelog_storage.seams`).

Every object takes them through its constructor, never from a global, so that a whole cluster can
run inside one seeded simulation. `runtime.py` holds the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    import builtins
    from collections.abc import Callable
    from ssl import SSLContext

    from tidelog_storage.seams import FileSystem

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Two clocks: a monotonic one in seconds, and the wall clock in milliseconds."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, like record timestamps."""
        ...


class TimerHandle(Protocol):
    """A timer that has not run yet (`asyncio.TimerHandle`)."""

    def cancel(self) -> None:
        """Cancel the timer."""
        ...


class Timers(Protocol):
    """The timers of an event loop; `asyncio`'s loops have them."""

    def time(self) -> float:
        """Seconds on the clock that `call_at` uses."""
        ...

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        """Call back at `when`."""
        ...


class Timeline(Protocol):
    """A line of time on which a broker's work falls due; a tester may move it (`timeline.py`).

    What waits for other nodes, for files or for sockets uses the loop's own timers instead.
    """

    def time(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        """Call back at `when`."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...

    async def wait_until(self, event: asyncio.Event, when: float) -> bool:
        """Wait for an event, but not after `when`; return whether it was set."""
        ...

    def elapsed_ms(self, since_ms: int, now_ms: int) -> int:
        """Return how much of this time passed between two moments of the wall clock."""
        ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The bound port, chosen by the system for port 0."""
        ...

    def close(self) -> None:
        """Stop listening; open connections stay open."""
        ...


class Network(Protocol):
    """asyncio's transport/protocol pair, because the data path is a `BufferedProtocol`."""

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None = None,
    ) -> Listener:
        """Listen, with TLS by this context if there is one; OSError when the address is taken."""
        ...

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection, with TLS by this context if there is one; OSError without an answer,
        or if TLS fails."""
        ...


class Executor(Protocol):
    """Runs blocking work: fsync, remote I/O, compaction. The work sees only frozen values."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function off the loop and return what it returns or raises."""
        ...

    def close(self) -> None:
        """Accept no more calls, and drop those that have not begun."""
        ...

    async def wait_closed(self) -> None:
        """Return when calls running at `close` have ended; at once if they may hang."""
        ...


class AsyncFiles(Protocol):
    """Small files that the loop awaits; paths and errors as those of `FileSystem`."""

    async def read(self, path: str) -> bytes:
        """Return the whole content; FileNotFoundError."""
        ...

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace `path` atomically and durably; create its folder if needed."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file; no error if it is not there."""
        ...

    async def list(self, path: str) -> builtins.list[str]:
        """Return the sorted names in a folder; empty if it does not exist."""
        ...


class Rng(Protocol):
    """One stream of randomness per use."""

    def bytes(self, length: int) -> bytes:
        """Random bytes."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        ...

    def uuid(self) -> builtins.bytes:
        """16 bytes of a random (version 4) UUID."""
        ...


def unwatched(_limit_ms: float, _report: Callable[[object], None]) -> Callable[[], None]:
    """Watch nothing: where time is simulated, no callback takes any."""
    return lambda: None


def unknown_volume(_directory: str) -> tuple[int, int]:
    """Return total and usable bytes of a volume of unknown size."""
    return (-1, -1)


class Runtime(NamedTuple):
    """All seams of one broker. The loop is asyncio's running one.

    `work` is the time of periodic work, such as retention and compaction; `sessions` that of what
    clients keep alive: group members and transactions. `new_executor(name, threads_max)` returns an
    executor for calls that may hang, such as those to a remote store: it has its own threads, and
    its `close` does not wait. `watch_loop(limit_ms, report)` reports what holds the loop for longer
    and returns what ends it (`watchdog.py`).
    """

    clock: Clock
    work: Timeline
    sessions: Timeline
    network: Network
    files: FileSystem
    async_files: AsyncFiles
    executor: Executor
    new_executor: Callable[[str, int], Executor]
    rng: Rng
    watch_loop: Callable[[float, Callable[[object], None]], Callable[[], None]] = unwatched
