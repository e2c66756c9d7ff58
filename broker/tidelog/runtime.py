"""The real clock, network, threads and chance; imported by those who start brokers alone."""

# ruff: noqa: PLC0415 - the thread pool waits for its first use

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tidelog.seams import Runtime

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from tidelog_storage.seams import FileSystem

P = ParamSpec("P")
T = TypeVar("T")

EXECUTOR_THREADS_MAX = 4


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


class SystemListener:
    """A listening socket of the loop."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening; open connections are closed by who owns them.

        Those accepted in this turn of the loop still get their protocols: asyncio would leave their
        sockets open if the server closed before that.
        """
        loop = self._server.get_loop()
        for socket in self._server.sockets:
            loop.remove_reader(socket.fileno())
        loop.call_soon(self._server.close)


class SystemNetwork:
    """TCP by the running loop, which sets TCP_NODELAY on every connection."""

    def __init__(self, backlog: int = 1024) -> None:
        self._backlog = backlog

    async def listen(
        self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> SystemListener:
        """Listen; OSError when the address is taken. An empty host stands for all interfaces."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            protocol_factory, host or None, port, backlog=self._backlog
        )
        return SystemListener(server)

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection; OSError when nobody answers."""
        loop = asyncio.get_running_loop()
        return await loop.create_connection(protocol_factory, host, port)


class ThreadExecutor:
    """A small pool of threads, made at its first use: importing and starting it costs start-up
    time.

    Meant for long calls outside the interpreter (fsync, file copies): Python code in a thread takes
    the interpreter lock from the loop for milliseconds.
    """

    def __init__(self, threads_max: int = EXECUTOR_THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a thread; what it returns or raises comes back."""
        assert not self._closed, "the executor is closed"
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="tidelog")
        future = self._pool.submit(function, *args, **kwargs)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Wait for what runs, drop what has not begun, take no more."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class SystemRng:
    """The operating system's chance."""

    def bytes(self, length: int) -> builtins.bytes:
        """Random bytes."""
        return os.urandom(length)

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high], of 53 random bits."""
        fraction = (int.from_bytes(os.urandom(7), "big") >> 3) / ((1 << 53) - 1)
        return low + (high - low) * fraction

    def uuid(self) -> builtins.bytes:
        """16 bytes of a version 4 UUID, without the cost of importing `uuid`."""
        value = bytearray(os.urandom(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        return bytes(value)


def volume_bytes(directory: str) -> tuple[int, int]:
    """Total and usable bytes of a directory's volume (KIP-827), -1 each if it can't be asked."""
    try:
        volume = os.statvfs(directory)
    except OSError:
        return -1, -1
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def system_runtime(
    files: FileSystem | None = None, *, durable: bool = True, backlog: int = 1024
) -> Runtime:
    """All real seams; `files` only to put another disk under an otherwise real broker.

    Not `durable`: nothing is forced to disk, for data that goes with the process.
    """
    if files is None:
        from tidelog_storage.os_files import OsFileSystem

        files = OsFileSystem(syncs=durable)
    return Runtime(
        clock=SystemClock(),
        network=SystemNetwork(backlog),
        files=files,
        executor=ThreadExecutor(),
        rng=SystemRng(),
    )


def raise_open_files_limit() -> None:
    """As many open files as the system lets this process have: each open segment takes three."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
