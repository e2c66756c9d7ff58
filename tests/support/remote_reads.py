"""Remote reads of a broker over a small tier, in virtual time, with threads that a test steps."""

from __future__ import annotations

import asyncio
import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from support.data_path import CountingRng
from support.logs import NOW, append, config, open_log
from support.remote import PARTITION, KnownSegments, LogView, NearStore, WatchedStore, copy_log
from tidelog.metrics.meters import Meters
from tidelog.simulation.disk import SimDisk
from tidelog.simulation.loop import simulate
from tidelog.tiered.pools import Pool
from tidelog.tiered.quotas import RateQuota
from tidelog.tiered.reads.loading import Loader
from tidelog.tiered.reads.reader import RemoteRead
from tidelog.tiered.reads.remote_reads import RemoteReads
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SETTINGS = config(internal_segment_bytes=3000, index_interval_bytes=300, retention_ms=-1)


class LoopClock:
    """Virtual time as both clocks."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return NOW + int(self.monotonic() * 1000)


class SteppedExecutor:
    """Threads: each call takes `delay_s` of virtual time; while `is_hung`, for ever."""

    def __init__(self, delay_s: float = 0.001) -> None:
        self.delay_s = delay_s
        self.is_hung = False
        self.calls = 0
        self.running = 0
        self.most_running = 0
        self._hung: list[asyncio.Future[None]] = []

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        loop = asyncio.get_running_loop()
        if self.is_hung:
            gate: asyncio.Future[None] = loop.create_future()
            self._hung.append(gate)
            await asyncio.shield(gate)
        try:
            return function(*args, **kwargs)
        finally:
            await asyncio.sleep(self.delay_s)
            self.running -= 1

    def release(self) -> None:
        """What hung goes on."""
        self.is_hung = False
        for gate in self._hung:
            gate.set_result(None)
        self._hung.clear()

    def close(self) -> None:
        """Nothing to wait for."""


class ReadsWorld:
    """A copied log and the reads of one broker."""

    def __init__(
        self,
        batches: int = 60,
        *,
        chunk_bytes: int = 700,
        capacity_bytes: int = 1 << 20,
        window_bytes_max: int = 4000,
        threads: int = 4,
        pending_max: int = 100,
        quota: int = 2**63 - 1,
        settings: Any = SETTINGS,
        size: int = 100,
        near: bool = False,
        epoch_batches: int = 1 << 30,
    ) -> None:
        """Another leader epoch begins after each `epoch_batches`."""
        self.disk = SimDisk(0)
        self.files = self.disk.files()
        self.files.make_dirs("data")
        self.log = open_log(self.files, settings=settings)
        for number in range(batches):
            epoch = number // epoch_batches
            append(self.log, 2, size=size, timestamp=NOW + 10 * number, leader_epoch=epoch)
        store = NearStore if near else WatchedStore
        self.store: Any = store(DirectoryStore(self.files, "tier"))
        self.segments = copy_log(self.log, self.store, self.files)
        self.metadata = KnownSegments(self.segments)
        self.view = LogView(self.log, self.log.segments.active.base_offset)
        self.cache = IndexCache(self.files, "data", 1 << 30)
        self.cache.open(NOW)
        self.chunks = ChunkCache(
            capacity_bytes, chunk_bytes=chunk_bytes, window_bytes_max=window_bytes_max
        )
        self.executor = SteppedExecutor()
        self.pool = Pool(self.executor, threads, pending_max=pending_max)
        self.meters = Meters()
        self.reads = RemoteReads(
            Sources(self.store, self.cache, self.chunks),
            self.metadata,
            self.pool,
            quota=RateQuota(quota),
            runtime=SimpleNamespace(clock=LoopClock(), rng=CountingRng()),  # type: ignore[arg-type]
            meters=self.meters,
        )

    @property
    def end(self) -> int:
        """The first offset that is local only."""
        return self.view.local_log_start_offset

    def start(self, offset: int, max_bytes: int = 1 << 20, **options: Any) -> Any:
        """Begin a read; `(pending, future)`, the future done when the read is."""
        done = asyncio.get_running_loop().create_future()
        request = RemoteRead(PARTITION, offset, max_bytes, **options)
        pending = self.reads.fetch(request, self.view, lambda: done.set_result(None))
        if pending.is_done:
            done.set_result(None)
        return pending, done

    async def read(self, offset: int, max_bytes: int = 1 << 20, **options: Any) -> Any:
        """A read to its end."""
        pending, done = self.start(offset, max_bytes, **options)
        await done
        assert pending.is_done
        return pending

    async def read_all(self, max_bytes: int = 1500, pause_s: float = 0.01, **options: Any) -> bytes:
        """As a consumer catches up."""
        data: list[Any] = []
        offset = 0
        while offset < self.end:
            pending = await self.read(offset, max_bytes, **options)
            assert pending.error is None, pending.error
            data += pending.result.parts
            offset = pending.result.next_offset
            await asyncio.sleep(pause_s)
        return b"".join(data)

    def local(self) -> bytes:
        """The same from the log."""
        data: list[Any] = []
        offset = 0
        while offset < self.end:
            records = self.log.read(offset, 1 << 20, upper_bound=self.log.log_end_offset)
            data += records.parts
            offset = records.next_offset
        return b"".join(data)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In virtual time; nothing may be left that failed unseen."""
    _, loop = simulate(0, lambda _: test())
    assert loop.failures == []


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is run so."""

    @functools.wraps(test)
    def wrapper(**arguments: Any) -> None:
        run(lambda: test(**arguments))

    return wrapper


class InlineLoader(Loader):
    """Loads on the caller's thread: what it reads for never waits."""

    def __init__(self, sources: Sources, now_ms: int = NOW) -> None:
        super().__init__(sources, None, lambda: now_ms)  # type: ignore[arg-type]

    async def _loaded(self, load: Any) -> Any:
        self.sources.begin(load)
        try:
            loaded = self.sources.load(load)
        except BaseException as error:
            self.sources.give_up(load, error, self._now_ms())
            raise
        self.sources.keep(load, loaded, self._now_ms())
        return loaded


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that lets others run, but waits for nothing."""
    while True:
        try:
            assert work.send(None) is None
        except StopIteration as end:
            return end.value
