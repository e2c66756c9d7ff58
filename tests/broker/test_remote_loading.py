"""Jobs of remote reads: what came is kept before anybody goes on with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.clusters import run
from support.remote import remote_segment
from tidelog.remote.loading import Loader
from tidelog_storage.remote.sources import Job

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = Job(remote_segment(size=100), None)


class Kept:
    """What `Sources` is told."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def begin(self, job: Job) -> None:
        assert job is JOB

    def load(self, job: Job) -> str:
        assert job is JOB
        return "indexes"

    def keep(self, job: Job, loaded: str, now_ms: int, *, ahead: bool) -> None:
        del now_ms, ahead
        assert loaded == "indexes"
        self.jobs.append(job)


class HeldPool:
    """Ends its calls when told to."""

    def __init__(self) -> None:
        self.gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, call: Callable[..., Any], *args: Any) -> Any:
        await self.gate
        return call(*args)


def test_who_comes_between_the_end_of_a_job_and_what_follows_it_finds_it_kept() -> None:
    """Else he would ask for it again at once, and never let the loop keep it."""

    async def test() -> None:
        kept, pool = Kept(), HeldPool()
        loader = Loader(kept, pool, lambda: 0)  # type: ignore[arg-type]
        seen: list[int] = []

        async def come() -> None:
            assert await loader.loaded(JOB) == "indexes"
            seen.append(len(kept.jobs))

        first = asyncio.create_task(come())
        await asyncio.sleep(0.01)
        pool.gate.set_result(None)  # the job ends in the loop's next turn …
        late = asyncio.create_task(come())  # … in which this one comes, behind it
        await asyncio.gather(first, late)
        assert seen == [1, 1]
        assert kept.jobs == [JOB]
        assert not len(loader)

    run(test)
