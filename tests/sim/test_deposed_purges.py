"""A topic leaves the remote tier and comes back while who purges it (KIP-950) is deposed, and has
heard of neither: what the next leader has copied since is not the old purge's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sim.remote_store import PREFIX, new_weather
from sim.stage import TOPIC, VOTERS, Stage
from sim.test_leader_changes_in_a_copy import IDLE, Moved
from sim.test_remote_tier import SETTINGS, TOPIC_SETTINGS
from tidelog.simulation.loop import simulate
from tidelog.simulation.machines import CONTROLLER_PORT
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_storage.remote.api import RetriableRemoteStorageError

POINTS = (
    "at the end of a deletion",
    "at a deletion that fails",
    "before it knows what is remote",
)
OUT = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
BACK = {"remote.storage.enable": "true", "remote.log.delete.on.disable": "false"}


class Halt:
    """A broker's purge waits at one point until it `goes_on`."""

    def __init__(self, tier: Any, point: str) -> None:
        self.goes_on = asyncio.Event()
        self.is_there = False
        self._point = point
        self._metadata, pool = tier.metadata, tier.pools.expiration
        self._run, self._is_ready = pool.run, tier.metadata.is_ready
        if point == "before it knows what is remote":
            tier.metadata.is_ready = self._ready
        else:
            pool.run = self._delete

    def _ready(self, partition: Any) -> bool:
        self.is_there = True
        return self.goes_on.is_set() and self._is_ready(partition)

    async def _delete(self, *call: Any) -> Any:
        if not self.is_there:
            self.is_there = True
            await self.goes_on.wait()
            if self._point == "at a deletion that fails":
                raise RetriableRemoteStorageError("the connection broke")
        return await self._run(*call)


class Purged(Moved):
    """A leads and purges; then B does, and the topic comes back."""

    async def alter(self, settings: dict[str, str]) -> None:
        """Change the topic's configuration."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in settings.items()
        ]
        asked = resource(resource_type=2, resource_name=TOPIC, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[asked])
        answer = (await self.stage.ask("X", request, 1)).responses[0]
        assert answer.error_code == 0, answer

    def is_led_by_others(self) -> bool:
        """Whether A, cut off from the controllers, can still tell what it deletes."""
        client = self.tier("A")._topic.client
        own = self.stage.ids["A"]
        return all(client.leader_of(index) not in (-1, own) for index in range(2))

    def has_left(self, name: str) -> bool:
        """Whether a broker knows that the topic is out of the tier."""
        return (TOPIC, 0) not in self.tier(name).partitions

    async def come_back(self, halt: Halt) -> None:
        """B leads, copies and lets go of what it has copied; A knows nothing of it."""
        stage = self.stage
        key = (TOPIC, 0)
        await stage.until(lambda: key in self.tier("B").partitions, "B is back in the tier")
        await self.send("B", 3)
        last = stage.partition("B").log.log_end_offset - 1
        copier = self.tier("B").partitions[key].copier
        await stage.until(lambda: copier.copied_offset == last - 1, "B copies")
        held = stage.partition("B").log
        await stage.until(lambda: held.local_log_start_offset == last, "what is copied goes")
        halt.goes_on.set()
        await asyncio.sleep(5)
        assert stage.partition("A").is_leader, "it has heard"

    def check_kept(self, name: str, start: int) -> None:
        """This broker would serve all from an offset on."""
        assert self.stage.partition(name).log.log_start_offset <= start
        assert self.content(name, start) == self.acknowledged[start:]

    async def check_all(self, start: int) -> None:
        """A has followed, and all brokers have all."""
        stage = self.stage
        await stage.until(lambda: not stage.partition("A").is_leader, "A follows")
        await stage.whole()
        await stage.until(self.is_quiet, "all is copied")
        for name in "ABC":
            self.check_kept(name, start)
        self.check_objects()
        await self.expire("B")


LINKS = [(*ends, CONTROLLER_PORT) for each in VOTERS for ends in (("A", each), (each, "A"))]


async def live(loop: Any, seed: str, point: str) -> None:
    weather = new_weather(seed)
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}{seed}", **IDLE}
    async with Stage(loop, "ABC", settings) as stage:
        await stage.create_topic("ABC", **TOPIC_SETTINGS, segment_index_bytes=12)
        play = Purged(stage, seed, weather, None)
        await play.send("A", 4)
        await stage.until(play.is_quiet, "all is copied")
        assert play.is_led_by_others()
        halt = Halt(play.tier("A"), point)
        await play.alter(OUT)
        await stage.until(lambda: halt.is_there, point)
        start = stage.partition("A").log.log_start_offset
        assert start == 3
        await play.send("A", 2)  # of A's epoch, and B will copy them
        stage.network.cut(LINKS)
        await stage.until(lambda: stage.leads("B"), "B leads")
        await play.alter(BACK)
        await play.come_back(halt)
        play.check_kept("B", start)
        stage.network.heal(LINKS)
        await play.check_all(start)


@pytest.mark.parametrize("point", POINTS)
def test_a_deposed_leader_purges_nothing_of_its_successor(point: str) -> None:
    seed = f"purge, {point}"
    simulate(seed, lambda loop: live(loop, seed, point))


async def live_on(loop: Any, seed: str) -> None:
    weather = new_weather(seed)
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}{seed}", **IDLE}
    async with Stage(loop, "ABC", settings) as stage:
        config = {**TOPIC_SETTINGS, "segment_index_bytes": 12, "local_retention_bytes": 300}
        await stage.create_topic("ABC", **config)
        play = Purged(stage, seed, weather, None)
        await play.send("A", 9)
        logs = [stage.partition(name).log for name in "ABC"]
        start = 4
        await stage.until(
            lambda: all(
                (held.local_log_start_offset, held.highest_remote_offset) == (start, 7)
                for held in logs
            ),
            "all is copied, and the last of it is local too",
        )
        assert play.is_led_by_others()
        halt = Halt(play.tier("A"), POINTS[0])
        await play.alter(OUT)
        await stage.until(lambda: halt.is_there and play.has_left("B"), "A is at the first segment")
        stage.network.cut(LINKS)
        await play.alter({**BACK, "local.retention.bytes": "1"})
        await stage.until(lambda: stage.leads("B"), "B leads")
        await play.come_back(halt)
        play.check_kept("B", start)
        stage.network.heal(LINKS)
        await play.check_all(start)


def test_a_deposed_leader_purges_nothing_that_its_successor_counts_on() -> None:
    """It was copied before the topic left the tier, and is not copied again."""
    seed = "purge, what is kept"
    simulate(seed, lambda loop: live_on(loop, seed))
