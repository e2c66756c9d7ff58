"""Flights of remote reads: what came is kept once, whoever comes while it lands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.clusters import run
from support.remote import remote_segment
from tidelog.tiered.reads.loading import Loader
from tidelog_storage.remote.index_cache import RemoteIndexes
from tidelog_storage.remote.sources import Load

if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENT = remote_segment(size=100)
INDEXES = RemoteIndexes(None, (), 0)  # type: ignore[arg-type]


class Kept:
    """In place of `Sources`."""

    def __init__(self) -> None:
        self.loads: list[Load] = []
        self.begun = 0

    def find_indexes(self, segment: Any, now_ms: int, *, with_times: bool) -> RemoteIndexes | None:
        del segment, now_ms, with_times
        return INDEXES if self.loads else None

    def begin(self, load: Load) -> None:
        assert load == Load(SEGMENT)
        self.begun += 1

    def load(self, load: Load) -> RemoteIndexes:
        assert load == Load(SEGMENT)
        return INDEXES

    def keep(self, load: Load, loaded: RemoteIndexes, now_ms: int, *, ahead: bool) -> None:
        del now_ms, ahead
        assert loaded is INDEXES
        self.loads.append(load)


class HeldPool:
    """Its calls end when a test says so."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.call: Callable[[], Any] = lambda: None

    def begin(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        self.call = lambda: call(*args)
        return self.ended

    def end(self) -> None:
        self.ended.set_result(self.call())

    def withdraw(self, ended: asyncio.Future[Any]) -> bool:
        del ended
        return False


def test_a_read_that_comes_while_a_load_ends_finds_it_kept() -> None:
    """Otherwise it would ask for it again at once."""

    async def test() -> None:
        kept, pool = Kept(), HeldPool()
        loader = Loader(kept, pool, lambda: 0)  # type: ignore[arg-type]
        seen: list[int] = []

        async def come() -> None:
            assert await loader.indexes(SEGMENT) is INDEXES
            seen.append(len(kept.loads))

        first = asyncio.create_task(come())
        await asyncio.sleep(0.01)
        late = asyncio.create_task(come())  # it runs before what follows the end
        pool.end()
        await asyncio.gather(first, late)
        assert seen == [1, 1]
        assert kept.loads == [Load(SEGMENT)]
        assert kept.begun == 1
        assert not len(loader)

    run(test)
