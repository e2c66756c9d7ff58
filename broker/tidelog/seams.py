"""The broker's doors to time, network, threads and chance (files: `tidelog_storage.seams`).

Every object takes what it needs of these through its constructor, never from a global, so that a
whole cluster can run inside one seeded simulation. `runtime.py` holds the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    import builtins
    from collections.abc import Callable

    from tidelog_storage.seams import FileSystem

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Two clocks: one that never goes back, in seconds, and the wall's, in milliseconds."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps count them."""
        ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port that is bound, chosen by the system if 0 was asked."""
        ...

    def close(self) -> None:
        """Stop listening; connections that are open stay open."""
        ...


class Network(Protocol):
    """asyncio's transport/protocol pair, because the data path is a `BufferedProtocol`."""

    async def listen(
        self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Listen; OSError when the address is taken."""
        ...

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection; OSError without an answer."""
        ...


class Executor(Protocol):
    """Where blocking work goes: fsync, remote I/O, compaction. It sees frozen values only."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function off the loop and return what it returns or raises."""
        ...

    def close(self) -> None:
        """Take no more, and drop what has not begun."""
        ...

    async def wait_closed(self) -> None:
        """Return when what ran at `close` has ended, at once if it may hang."""
        ...


class AsyncFiles(Protocol):
    """Small files that the loop awaits; paths and errors as those of `FileSystem`."""

    async def read(self, path: str) -> bytes:
        """The whole content; FileNotFoundError."""
        ...

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace `path` whole and durably; its folder is made if it is not there."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file; no error if it is not there."""
        ...

    async def list(self, path: str) -> builtins.list[str]:
        """Sorted names in a folder, none if there is no such folder."""
        ...


class Rng(Protocol):
    """One stream of chance per use."""

    def bytes(self, length: int) -> bytes:
        """Random bytes."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        ...

    def uuid(self) -> builtins.bytes:
        """16 bytes of a random (version 4) UUID."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """All seams of one broker. The loop is asyncio's running one.

    `new_executor(name, threads_max)` gives an executor for calls that may hang, as those to a
    remote store: with threads of its own, and whose `close` waits for nobody.
    """

    clock: Clock
    network: Network
    files: FileSystem
    async_files: AsyncFiles
    executor: Executor
    new_executor: Callable[[str, int], Executor]
    rng: Rng
