"""One broker's machine: its simulated seams, and its lives on one disk.

Each life is a lane of the loop, a `SimFiles` and a real `BrokerServer`; it ends by a clean stop, by
a kill (between two steps, or inside a file operation) or by a power failure. What a dead life left
waiting is kept in `_graves` to the end of the run: Python would run the `finally` blocks of tasks
that it collects, on a machine that is no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import warnings
from typing import TYPE_CHECKING, Any

from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.seams import Runtime
from tidelog.server import BrokerServer, StartError
from tidelog.simulation.disk import SimDisk
from tidelog.simulation.loop import LANE
from tidelog_storage.checkpoints import META_PROPERTIES

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Coroutine, Mapping

    from tidelog.simulation.loop import SimLoop
    from tidelog.simulation.network import SimNetwork
    from tidelog.simulation.shared_store import SharedStore
    from tidelog_storage.seams import FileSystem

HOST = "broker"
PORT = 9092
CALM_DISK_S = (0.0005, 0.005)  # what a sync takes
START_MS = 1_700_000_000_000
REFUSED = "refused to start"
STOP_S_MAX = 5.0  # as `tidelog serve` gives it
PROPERTIES: Mapping[str, str] = {
    **DEVELOPER_PROFILE,
    "listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "log.dirs": "data",
    "offsets.topic.num.partitions": "3",
    "group.min.session.timeout.ms": "100",
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "150",
    "log.retention.check.interval.ms": "900",
    "log.flush.scheduler.interval.ms": "400",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "700",
    "log.segment.delete.delay.ms": "800",
}
# With these, __consumer_offsets is compacted again and again.
COMPACTION: Mapping[str, str] = {
    "log.cleaner.max.compaction.lag.ms": "300",  # its segments are as short
    "log.cleaner.backoff.ms": "250",
    "log.cleaner.dedupe.buffer.size": "8000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.cleaner.delete.retention.ms": "1000",
}


def in_lane(lane: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task in another lane, with all that it will start."""
    token = LANE.set(lane)
    try:
        return asyncio.get_running_loop().create_task(coroutine)
    finally:
        LANE.reset(token)


class SimClock:
    """Loop time, a little faster or slower; the wall clock has a skew, too. Faults change both."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        self._rate = 1.0
        self._since = (0.0, 0.0)  # loop time and this clock's when the rate last changed

    def set_rate(self, rate: float) -> None:
        """Go on at so many seconds a second."""
        self._since = (self._loop.time(), self.monotonic())
        self._rate = rate

    def monotonic(self) -> float:
        """Virtual seconds."""
        loop_s, clock_s = self._since
        return clock_s + (self._loop.time() - loop_s) * self._rate

    def wall_ms(self) -> int:
        """Virtual wall time."""
        return START_MS + int(self.monotonic() * 1000) + self.skew_ms


class SimTimeline:
    """The time of a machine's work: its clock, and the timers of the loop, which know no rate."""

    def __init__(self, clock: SimClock, loop: SimLoop) -> None:
        self._clock = clock
        self._loop = loop

    def time(self) -> float:
        """Seconds of the machine's clock."""
        return self._clock.monotonic()

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Any:
        """Call back at `when`."""
        return self._loop.call_at(self._on_loop(when), callback, *args)

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await asyncio.sleep(seconds)

    async def wait_until(self, event: asyncio.Event, when: float) -> bool:
        """Wait for an event, but not after `when`; return whether it was set."""
        try:
            async with asyncio.timeout_at(self._on_loop(when)):
                return await event.wait()
        except TimeoutError:
            return False

    def elapsed_ms(self, since_ms: int, now_ms: int) -> int:
        """All of it, as it is never moved."""
        return now_ms - since_ms

    def _on_loop(self, when: float) -> float:
        return self._loop.time() + (when - self._clock.monotonic())


class SimRng:
    """The chance of one life."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(f"{seed}:rng")

    def bytes(self, length: int) -> builtins.bytes:
        """Random bytes."""
        return self._random.randbytes(length)

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        return self._random.uniform(low, high)

    def uuid(self) -> builtins.bytes:
        """A version 4 UUID."""
        value = bytearray(self._random.randbytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        return bytes(value)


class SimExecutor:
    """Threads: work is done whole, at a step of its own, after a virtual delay.

    The result arrives a little later: between the two the machine may die.
    """

    def __init__(self, machine: Machine, *, waits: bool = True) -> None:
        """`waits`: whether `close` does first all that was asked for. An executor that does not may
        be asked for things that take long (`Machine.store_delay_s`)."""
        self._machine = machine
        self._waits = waits
        self._waiting: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._closed = False

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function; it runs even if the task that waits is cancelled."""
        assert not self._closed, "the executor is closed"
        loop = self._machine.loop
        future: asyncio.Future[Any] = loop.create_future()
        number = self._next = self._next + 1

        def work() -> None:
            if self._waiting.pop(number, None) is None:
                return
            self._machine.is_on_thread = True
            try:
                result = function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - for the task that waits
                settle = (future.set_exception, error)
            else:
                settle = (future.set_result, result)
            finally:
                self._machine.is_on_thread = False
            loop.call_later(
                self._machine.draw_disk_delay() / 10,
                lambda: None if future.done() else settle[0](settle[1]),
            )

        self._waiting[number] = work
        delay_s = self._machine.draw_disk_delay()
        loop.call_later(delay_s if self._waits else delay_s + self._machine.store_delay_s(), work)
        return await future

    def close(self) -> None:
        """Have done what was asked for, or leave it to itself."""
        self._closed = True
        if self._waits:
            for work in list(self._waiting.values()):
                work()

    async def wait_closed(self) -> None:
        """Nothing runs after `close`."""


class SimAsyncFiles:
    """The machine's disk for small files that the loop awaits: each call whole, at a step of its
    own."""

    def __init__(self, files: FileSystem, executor: SimExecutor) -> None:
        self._files = files
        self._executor = executor

    async def read(self, path: str) -> bytes:
        """Read a whole file."""
        data: bytes = await self._executor.run(self._files.read_bytes, path)
        return data

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file as a whole, durably; make its folder."""

        def write() -> None:
            self._files.make_dirs(path.rpartition("/")[0])
            self._files.write_atomic(path, data)

        await self._executor.run(write)

    async def remove(self, path: str) -> None:
        """Remove a file."""
        await self._executor.run(self._files.remove, path)

    async def list(self, path: str) -> list[str]:
        """Sorted names in a folder; none if it is not there."""

        def names() -> list[str]:
            return self._files.list(path) if self._files.exists(path) else []

        found: list[str] = await self._executor.run(names)
        return found


class Machine:
    """A host with a disk, on which a broker lives, dies and lives again."""

    def __init__(
        self,
        loop: SimLoop,
        network: SimNetwork,
        seed: int | str,
        settings: Mapping[str, str] | None = None,
        host: str = HOST,
    ) -> None:
        """`settings` go before PROPERTIES, which make a single broker of it."""
        self.host = host
        self.loop, self.network, self.seed = loop, network, seed
        self.disk = SimDisk(seed)
        self.death_inside = "kill"  # how the machine dies inside a file operation
        self.disk.on_death = lambda: self.die(self.death_inside)
        self.disk.on_sync = self._stall
        self.clock = SimClock(loop)
        self.config = BrokerConfig.from_properties({**PROPERTIES, **(settings or {})})
        self.new_fetcher: Callable[..., Any] | None = None  # as for `BrokerServer`
        self.cluster_id = "simulated-cluster-0000"
        self.is_formatted = False
        self.life = 0
        self.lane = ""
        self.server: BrokerServer | None = None
        self.is_ready = False
        self._is_stopping = False
        self.disk_delay_s = CALM_DISK_S
        self.is_on_thread = False  # what runs now is an executor's
        self.store_delay_s: Callable[[], float] = lambda: 0.0  # more, for a remote store
        self.store: SharedStore | None = None  # a directory that all machines see
        self.before_death: Callable[[str], None] = lambda _how: None
        self.deaths: list[tuple[int, str]] = []  # (life, how)
        self._delays = random.Random(f"{seed}:delays")
        self._stalls = random.Random(f"{seed}:stalls")
        self._ended: asyncio.Future[str] | None = None
        self._asked_to_stop: asyncio.Future[None] | None = None
        self._graves: list[Any] = []

    def draw_disk_delay(self) -> float:
        """Seconds that a sync takes."""
        return self._delays.uniform(*self.disk_delay_s)

    def _stall(self) -> None:
        """A sync on the loop stops it, for as long as a slow disk takes."""
        is_on_loop = self.loop.lane == self.lane and not self.is_on_thread
        if is_on_loop and self.disk_delay_s != CALM_DISK_S:
            self.loop.stall(self._stalls.uniform(*self.disk_delay_s))

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> bool:
        """Begin a life on what the disk holds; whether the broker answers clients.

        False if it could not start (StartError) or died on the way.
        """
        assert self.server is None, "one life at a time"
        self.life += 1
        self.lane = f"{self.host}.{self.life}"
        self.disk.unwinding = False
        self._is_stopping = False
        self._ended = self.loop.create_future()
        files: FileSystem = self.disk.files()
        if self.store is not None:
            files = self.store.beside(files)
        runtime = Runtime(
            clock=self.clock,
            work=SimTimeline(self.clock, self.loop),
            sessions=SimTimeline(self.clock, self.loop),
            network=self.network.door(self.host),
            files=files,
            async_files=SimAsyncFiles(files, SimExecutor(self)),
            executor=SimExecutor(self),
            new_executor=lambda _name, _threads_max: SimExecutor(self, waits=False),
            rng=SimRng(f"{self.seed}:{self.life}"),
        )
        self.server = BrokerServer(
            self.config,
            runtime,
            new_cluster_id=self._new_cluster_id(),
            new_fetcher=self.new_fetcher,
        )
        asked_to_stop = self._asked_to_stop = self.loop.create_future()
        self.server.on_failure = lambda: asked_to_stop.set_result(None)
        task = in_lane(self.lane, self.server.start())
        await asyncio.wait([task, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            return False
        try:
            task.result()
        except StartError as error:
            self.die(f"{REFUSED}: {error}")
            return False
        self.is_ready = self.is_formatted = True
        self.loop.tell(self.lane, "starts")
        return True

    def _new_cluster_id(self) -> str | None:
        """What its directories are to be formatted with: once, at the first start."""
        self.is_formatted = self.is_formatted or any(
            name.endswith(META_PROPERTIES) for name in self.disk.names
        )
        return None if self.is_formatted else self.cluster_id

    @property
    def has_refused(self) -> bool:
        """Whether the last life could not begin."""
        return bool(self.deaths) and self.deaths[-1][1].startswith(REFUSED)

    async def ended(self) -> str:
        """Wait for the end of this life: how it ended.

        A broker whose disk has failed ends as by a crash, as under `tidelog serve`.
        """
        assert self._ended is not None
        assert self._asked_to_stop is not None
        ends: list[asyncio.Future[Any]] = [self._ended, self._asked_to_stop]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._ended.done():
            assert self.server is not None
            self.loop.tell(self.lane, f"gives up: {self.server.failure!r}")
            if not self._is_stopping:  # an orderly stop may fail at that
                self.disk.descriptors.judge(self.server.failure)
            ending = [in_lane(self.lane, self.server.stop()), self._ended]
            await asyncio.wait(ending, timeout=STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED)
            self.die("given up")
        return self._ended.result()

    async def stop(self) -> bool:
        """Stop in order, at most as long as `tidelog serve` waits; whether that went well."""
        server, ended = self.server, self._ended
        assert server is not None
        assert ended is not None
        self._is_stopping = True
        task = in_lane(self.lane, server.stop())
        await asyncio.wait([task, ended], timeout=STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return False
        if not task.done():
            self.die("slow stop")
            return False
        failure = task.exception() or server.failure
        if failure is not None and not isinstance(failure, OSError):
            self.loop.failures.append({"message": "stop failed", "exception": failure})
        self.die("stop" if failure is None else "failed stop")
        return failure is None

    def die(self, how: str) -> None:
        """The life ends now: `kill`, `power`, or what an orderly end has come to."""
        if self.server is None:
            return
        self.loop.tell(self.lane, f"ends: {how}")
        self.before_death("power" if self.disk.trouble.has_lost_pages else how)
        self.deaths.append((self.life, how))
        if how == "power":
            self.disk.power_failure()
        else:
            self.disk.kill()
        # A server that has refused to start has ended all it began, and may do so many times.
        kept = None if self.has_refused else self.server
        self._graves.append((kept, list(asyncio.all_tasks(self.loop))))
        self.server = None
        self.is_ready = False
        self.loop.close_lane(self.lane)
        self.network.drop_host(self.host)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(how)

    def bury(self) -> None:
        """End what dead lives left waiting, without warnings, after the loop is closed.

        Otherwise Python would do it later, with warnings.
        """
        with warnings.catch_warnings():
            # What a coroutine begins when it is closed has no loop to be awaited in.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in asyncio.all_tasks(self.loop):
                coroutine: Any = task.get_coro()
                with contextlib.suppress(BaseException):
                    for value in list(inspect.getcoroutinelocals(coroutine).values()):
                        if inspect.iscoroutine(value):
                            value.close()
                with contextlib.suppress(BaseException):
                    coroutine.close()
        self._graves.clear()
