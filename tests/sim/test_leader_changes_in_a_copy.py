"""The leader changes at each step of a copy, and no record is lost or doubled, and nothing is left
over: the old leader dies there, or lives on and finishes the copy sooner or later.

At chance: `test_remote_tier.py` and `test_tier_rest.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sim.remote_store import PREFIX, new_weather
from sim.stage import TOPIC, VOTERS, Stage
from sim.test_remote_tier import SETTINGS, TOPIC_SETTINGS
from sim.test_tier_rest import Disturbed
from tidelog.simulation.loop import simulate
from tidelog.simulation.machines import CONTROLLER_PORT
from tidelog_protocol.messages.data import DeleteRecordsRequest
from tidelog_storage.remote.api import RetriableRemoteStorageError

if TYPE_CHECKING:
    from tidelog_storage.remote.api import RemoteSegment, SegmentUpdate

POINTS = (
    "before COPY_SEGMENT_STARTED",
    "after COPY_SEGMENT_STARTED",
    "half of the data",
    "before COPY_SEGMENT_FINISHED",
    "after COPY_SEGMENT_FINISHED",
)
WHEN = (
    "never",  # it dies
    "while it is cut off",  # and takes itself for the leader
    "when all is copied",  # by the new leader, which it follows by then
    "when all has expired",
)

# Less to do while nothing happens, which is most of the time.
IDLE = {"replica.fetch.wait.max.ms": "500", "log.flush.scheduler.interval.ms": "2000"}


class Halt:
    """A broker's next copy waits at one point until it `goes_on`."""

    def __init__(self, tier: Any, point: str) -> None:
        self.goes_on = asyncio.Event()
        self.is_there = False
        self._point = point
        self._store, metadata, pool = tier.storage, tier.metadata, tier.pools.copier
        self._add, self._update, self._run = metadata.add, metadata.update, pool.run
        metadata.add, metadata.update, pool.run = self._begin, self._change, self._ship

    async def _at(self, point: str) -> bool:
        if self.is_there or point != self._point:
            return False
        self.is_there = True
        await self.goes_on.wait()
        return True

    async def _begin(self, segment: RemoteSegment) -> None:
        self._segment = segment
        await self._at("before COPY_SEGMENT_STARTED")
        await self._add(segment)
        await self._at("after COPY_SEGMENT_STARTED")

    async def _ship(self, *call: Any) -> Any:
        if self._point == "half of the data" and not self.is_there:
            self._store.copy_half(self._segment)
            await self._at(self._point)
            raise RetriableRemoteStorageError("the connection broke")
        return await self._run(*call)

    async def _change(self, update: SegmentUpdate) -> None:
        await self._at(f"before {update.state.name}")
        await self._update(update)
        await self._at(f"after {update.state.name}")


class Moved(Disturbed):
    """A leads and copies; then B does."""

    is_quiet = Disturbed.has_copied

    async def send(self, name: str, count: int) -> None:
        """Each sealed segment has one of these records."""
        for _ in range(count):
            value = f"v{len(self.acknowledged)}"
            await self.stage.acknowledged(name, value, acks=-1)
            self.acknowledged.append(value)

    async def expire(self, name: str) -> None:
        """All that is committed; wait until nothing of it is remote."""
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=-1)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=3000)
        answer = (await self.stage.ask(name, request, 2)).topics[0].partitions[0]
        assert answer.error_code == 0, answer
        await self.stage.until(lambda: not self.weather.disk.names, "nothing is left")

    async def move(self, halt: Halt, when: str) -> None:
        """Let B lead, and A's copy go on."""
        stage = self.stage
        links = [(*ends, CONTROLLER_PORT) for each in VOTERS for ends in (("A", each), (each, "A"))]
        if when == "never":
            stage.kill("A")
        else:
            stage.network.cut(links)
        await stage.until(lambda: stage.leads("B"), "B leads")
        if when == "while it is cut off":
            assert stage.partition("A").is_leader
            halt.goes_on.set()
        await self.send("B", 3)
        copier = self.tier("B").partitions[TOPIC, 0].copier
        await stage.until(lambda: copier.copied_offset == len(self.acknowledged) - 2, "B copies")
        if when == "never":
            await stage.start("A")
            return
        stage.network.heal(links)
        await stage.until(lambda: not stage.partition("A").is_leader, "A follows")
        if when == "when all has expired":
            await self.expire("B")
            await self.send("B", 2)
        halt.goes_on.set()


async def live(loop: Any, seed: str, point: str, when: str) -> None:
    weather = new_weather(seed)
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}{seed}", **IDLE}
    async with Stage(loop, "ABC", settings) as stage:
        await stage.create_topic("ABC", **TOPIC_SETTINGS, segment_index_bytes=12)
        play = Moved(stage, seed, weather, 0 if when == "when all has expired" else None)
        await play.send("A", 3)
        await stage.until(play.is_quiet, "all is copied")
        assert weather.calls["copy"] == 2
        halt = Halt(play.tier("A"), point)
        await play.send("A", 2)
        await stage.until(lambda: halt.is_there, point)
        await play.move(halt, when)
        await play.check()
        assert not play.tier("A").partitions[TOPIC, 0].copier.copying
        await play.expire("B")


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("point", POINTS)
def test_the_leader_changes(point: str, when: str) -> None:
    seed = f"{point}, {when}"
    simulate(seed, lambda loop: live(loop, seed, point, when))
