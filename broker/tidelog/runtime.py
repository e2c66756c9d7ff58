"""The real clock, network, threads and randomness; only code that starts brokers imports it."""

# ruff: noqa: PLC0415 - TLS, thread pools and aiofiles wait for their first use

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tidelog.descriptors import Doorkeeper, share_out, watch_accept_errors
from tidelog.seams import Runtime
from tidelog.timeline import LoopTimeline
from tidelog_storage.open_files import OWN_FILE

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor
    from ssl import SSLContext

    from tidelog.seams import Timeline
    from tidelog_storage.seams import FileSystem

P = ParamSpec("P")
T = TypeVar("T")

EXECUTOR_THREADS_MAX = 4
ACCEPTS_AT_ONCE = 4  # a refused connection is closed some turns of the loop later
FREE_PORT_TRIES = 10
SEND_BUFFER_BYTES = 4800 << 10  # an answer of four partitions of 1 MiB, and how Linux counts it


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self.skew_ms = 0
        """Added to the wall clock, which is wrong by as much."""
        self._followed: Timeline | None = None
        self._began_ms = 0.0  # the wall clock at second 0 of what it follows

    monotonic = staticmethod(time.monotonic)
    """Seconds since some fixed moment."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        if self._followed is None:
            return time.time_ns() // 1_000_000 + self.skew_ms
        return int(self._began_ms + self._followed.time() * 1000) + self.skew_ms

    @property
    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of the machine's, without its skew."""
        return self.wall_ms() - self.skew_ms - time.time_ns() // 1_000_000

    def follow(self, timeline: Timeline | None, began_ms: float = 0.0) -> None:
        """Let the wall clock go with a timeline that a tester moves, which began at `began_ms`;
        None for the machine's."""
        self._followed, self._began_ms = timeline, began_ms


class SystemListener:
    """A listening socket of the loop."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening; open connections are closed by their owners.

        Connections accepted in this turn of the loop still get their protocols: asyncio would leak
        their sockets if the server closed before that.
        """
        loop = self._server.get_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        loop.call_soon(self._server.close)


class SystemNetwork:
    """TCP of the running loop, which sets TCP_NODELAY on every connection."""

    def __init__(self, backlog: int = 1024) -> None:
        self._backlog = backlog

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None = None,
    ) -> SystemListener:
        """Listen; OSError when the address is taken. An empty host stands for all interfaces, which
        share one port."""
        loop = asyncio.get_running_loop()
        factory = protocol_factory
        if tls is not None:
            from tidelog.handshakes import Handshakes

            factory = Handshakes(protocol_factory, tls)
        doorkeeper = Doorkeeper(factory)
        server = await _bind(doorkeeper, host, port)
        for listening in server.sockets:
            _enlarge_backlog(listening.fileno(), self._backlog)
        doorkeeper.listening = server.sockets[0].fileno()
        watch_accept_errors(loop)
        _enlarge_send_buffers(server)
        return SystemListener(server)

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection; OSError without an answer."""
        loop = asyncio.get_running_loop()
        if tls is None:
            return await loop.create_connection(protocol_factory, host, port)
        from tidelog.handshakes import HANDSHAKE_S_MAX

        return await loop.create_connection(
            protocol_factory, host, port, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S_MAX
        )


async def _bind(doorkeeper: Doorkeeper, host: str, port: int) -> asyncio.Server:
    """Bind. All interfaces are those of IPv4 and IPv6, and with port 0 each would take its own."""
    loop = asyncio.get_running_loop()
    bind = partial(loop.create_server, doorkeeper, backlog=ACCEPTS_AT_ONCE)
    for _ in range(0 if host or port else FREE_PORT_TRIES):
        with socket.socket() as probe:
            probe.bind(("", 0))
            free = probe.getsockname()[1]
        with contextlib.suppress(OSError):  # something else has the port, perhaps of IPv6 alone
            return await bind(None, free)
    return await bind(host or None, port)


def _enlarge_backlog(listening: int, backlog: int) -> None:
    """Let more clients wait than asyncio accepts in one turn of the loop.

    asyncio creates the protocols only after accepting, so the doorkeeper would be called too late.
    """
    with socket.socket(fileno=os.dup(listening)) as same:
        same.listen(backlog)


def _enlarge_send_buffers(server: asyncio.Server) -> None:
    """Let a client's socket take a whole large response in one call.

    Accepted sockets inherit the listener's limit. Linux grows the limit to 4 MiB on its own: a few
    KiB too small, and the rest costs a turn of the loop. A limit set here stays fixed, so nothing
    is set if the system (net.core.wmem_max) grants less.
    """
    asked = SEND_BUFFER_BYTES // 2  # Linux grants twice as much
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, asked)
        if probe.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= SEND_BUFFER_BYTES:
            for listening in server.sockets:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, asked)


class ThreadExecutor:
    """A small pool of threads, created on first use, because importing and starting it costs
    start-up time.

    Meant for long calls outside the interpreter (fsync, file copies): Python code in a thread takes
    the interpreter lock from the loop for milliseconds.
    """

    def __init__(self, threads_max: int = EXECUTOR_THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None
        self._running: set[Future[Any]] = set()
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a thread and return its result or raise its error."""
        assert not self._closed, "the executor is closed"
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="tidelog")
        future = self._pool.submit(function, *args, **kwargs)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Accept no more calls, and drop those that have not begun."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    async def wait_closed(self) -> None:
        """Return when running calls have ended. Other brokers of the loop continue meanwhile."""
        running = [asyncio.wrap_future(future) for future in list(self._running)]
        await asyncio.gather(*running, return_exceptions=True)


class DetachedExecutor:
    """Threads for calls that may hang: neither `close` nor the end of the process waits for them.

    It starts a thread when there are more calls than threads, up to `threads_max`.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._work: _Work | None = None
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a thread and return its result or raise its error."""
        assert not self._closed, "the executor is closed"
        from concurrent.futures import Future

        future: Future[T] = Future()
        self._submit(future, lambda: function(*args, **kwargs))
        return await asyncio.wrap_future(future)

    def _submit(self, future: Future[Any], call: Callable[[], Any]) -> None:
        from threading import Thread

        if self._work is None:
            self._work = _Work(self._threads_max)
        number = self._work.put((future, call))
        if number is not None:
            name = f"tidelog-{self._name}-{number}"
            Thread(target=_work_off, args=(self._work,), name=name, daemon=True).start()

    def close(self) -> None:
        """Accept no more calls and drop those that have not begun; running calls continue."""
        self._closed = True
        if self._work is not None:
            for future, _ in self._work.close():
                future.cancel()

    async def wait_closed(self) -> None:
        """Return at once: a call may hang."""


class _Work:
    """The state that the threads of an executor share.

    Invariant: `_free` threads run no call; each takes an item as soon as there is one. A thread
    becomes free before the end of its call is reported, so the next call finds it free. So there
    are never more threads than concurrent calls.
    """

    def __init__(self, threads_max: int) -> None:
        from collections import deque
        from threading import Condition

        self._changed = Condition()
        self._items: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads_max = threads_max
        self._threads = self._free = 0
        self._is_closed = False

    def put(self, item: tuple[Future[Any], Callable[[], Any]]) -> int | None:
        """Add an item; return the number of the thread to start for it, or None."""
        with self._changed:
            self._items.append(item)
            if self._free >= len(self._items) or self._threads == self._threads_max:
                self._changed.notify()
                return None
            self._free += 1
            self._threads += 1
            return self._threads - 1

    def take(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for the next item; None at the end."""
        with self._changed:
            while not self._items:
                if self._is_closed:
                    return None
                self._changed.wait()
            self._free -= 1
            return self._items.popleft()

    def done(self) -> None:
        """Mark a thread as free."""
        with self._changed:
            self._free += 1

    def close(self) -> list[tuple[Future[Any], Callable[[], Any]]]:
        """End all threads; return the calls that no thread has taken."""
        with self._changed:
            self._is_closed = True
            left = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return left


def _work_off(work: _Work) -> None:
    """Run items until the end, in one thread."""
    while True:
        item = work.take()
        if item is None:
            return
        future, call = item
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                work.done()
                future.set_exception(error)
            else:
                work.done()
                future.set_result(result)
                del result
        else:
            work.done()
        del item, future, call  # release their memory while this thread is idle


class AwaitedFiles:
    """The operating system's files through `aiofiles`."""

    def __init__(self, *, syncs: bool = True) -> None:
        """Without `syncs` it skips fsync."""
        self._syncs = syncs

    async def read(self, path: str) -> bytes:
        """Return the whole content."""
        import aiofiles.os

        content: bytes = await aiofiles.os.wrap(_read)(path)
        return content

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Write a temporary file, fsync, rename, fsync the folder."""
        import aiofiles.os

        await aiofiles.os.wrap(_write_atomic)(path, data, syncs=self._syncs)

    async def remove(self, path: str) -> None:
        """Remove a file; no error if it is not there."""
        import contextlib

        import aiofiles.os

        with contextlib.suppress(FileNotFoundError):
            await aiofiles.os.remove(path)

    async def list(self, path: str) -> builtins.list[str]:
        """Return the sorted names in a folder; empty if it does not exist."""
        import aiofiles.os

        try:
            return sorted(await aiofiles.os.listdir(path))
        except FileNotFoundError:
            return []


# Open, use and close a file in one call: a cancelled task would leave it open.


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _own(path: str, flags: int) -> int:
    """Open a file, not a link, of which a new one is its owner's alone."""
    return os.open(path, flags | os.O_NOFOLLOW, OWN_FILE)


def _write_atomic(path: str, data: bytes, *, syncs: bool) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700, exist_ok=True)
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb", opener=_own) as file:
            file.write(data)
            file.flush()
            if syncs:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # a full disk needs the space
        raise
    if syncs:
        _sync_folder(folder)


def _sync_folder(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class SystemRng:
    """The operating system's randomness."""

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
    """Return total and usable bytes of a directory's volume (KIP-827), -1 each if unknown."""
    try:
        volume = os.statvfs(directory)
    except OSError:
        return -1, -1
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def system_runtime(
    files: FileSystem | None = None, *, durable: bool = True, backlog: int = 1024
) -> Runtime:
    """Return all real seams; `files` replaces only the disk.

    Without `durable` it skips fsync, for data that ends with the process. It raises the limit of
    open files to what the system grants.
    """
    share_out()
    if files is None:
        from tidelog_storage.os_files import OsFileSystem

        files = OsFileSystem(syncs=durable)
    clock = SystemClock()
    return Runtime(
        clock=clock,
        work=LoopTimeline(clock.monotonic),
        sessions=LoopTimeline(clock.monotonic),
        network=SystemNetwork(backlog),
        files=files,
        async_files=AwaitedFiles(syncs=durable),
        executor=ThreadExecutor(),
        new_executor=DetachedExecutor,
        rng=SystemRng(),
        watch_loop=_watch_loop,
    )


def _watch_loop(limit_ms: float, report: Callable[[object], None]) -> Callable[[], None]:
    from tidelog.watchdog import watch

    return watch(limit_ms, report)
