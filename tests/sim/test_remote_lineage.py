"""Unclean elections with a remote tier: branches of a log die, and parts of them are remote.

Whoever leads, and whatever was copied by whom: a read gives the records of the log that the leader
has, and never one of a branch that it has not (tiered-storage.md 7; KIP-405, scenarios 3 to 5).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from sim.lineages import Lineages
from sim.remote_store import PREFIX, Weather, new_weather
from sim.stage import TOPIC, Stage
from sim.test_remote_tier import SETTINGS
from sim.wire import Lost
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.records import crc_is_valid, iter_batches, iter_records

CONFIG = {
    "remote_storage_enable": True,
    "local_retention_bytes": 1,
    "index_interval_bytes": 1,
    "min_insync_replicas": 1,
    "unclean_leader_election_enable": True,
}
VERSION = 12
LATER = {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR,  # the store
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
READ_S_MAX = 60.0
SEEDS = 3  # by which `test_planted_bugs.py` finds its bugs


class Branches:
    """One run: leaders that lose touch, go on alone and die."""

    def __init__(self, stage: Stage, seed: str, weather: Weather) -> None:
        self.stage, self.weather = stage, weather
        self.rng = random.Random(f"{seed}:branches")
        self.lineages = Lineages(stage)
        self.is_over = False
        self.reads = self.remote_reads = self.unclean = self._number = 0
        stage.loop.after_step = self._after_step

    def _after_step(self) -> None:
        self.stage.look()
        self.lineages.look()

    # -- who does what -----------------------------------------------------------------------------

    def _leader(self) -> str:
        """Who leads and answers, "" if nobody does."""
        stage = self.stage
        name = stage.leader if stage.has_controller else ""
        return name if name and stage.machines[name].is_ready and stage.leads(name) else ""

    async def produce(self) -> None:
        """Now and then a record, acknowledged by the leader alone."""
        while not self.is_over:
            leader = self._leader()
            if leader:
                self._number += 1
                await self.stage.produce(leader, f"v{self._number}", acks=1)
            await asyncio.sleep(self.rng.uniform(0.02, 0.15))

    async def read(self) -> None:
        """From anywhere, on."""
        while not self.is_over:
            leader = self._leader()
            if leader:
                end = max(1, self.stage.high_watermark(leader))
                await self._fetch(leader, self.rng.randrange(end))
            await asyncio.sleep(self.rng.uniform(0.01, 0.1))

    async def branch(self) -> None:
        """A leader loses its followers, goes on, and dies; one who knows less leads."""
        stage, rng = self.stage, self.rng
        await stage.until(lambda: bool(self._leader()), "somebody leads")
        leader = self._leader()
        others = [name for name in "ABC" if name != leader]
        for other in others:
            stage.cut(leader, other)
        await asyncio.sleep(rng.uniform(2.5, 4.5))
        self.weather.bad = rng.choice((0.0, 0.0, 0.2))
        stage.machines[leader].die("kill")
        for other in others:
            stage.heal(leader, other)
        await stage.until(lambda: self._leader() not in ("", leader), "another one leads")
        self.unclean += 1
        await asyncio.sleep(rng.choice((0.1, 1.0, 3.0)))
        if rng.random() < 0.3:
            second = self._leader()
            if second:
                stage.machines[second].die("kill")
                await asyncio.sleep(rng.choice((0.05, 2.0)))
                await stage.start(second)
        await stage.start(leader)
        await asyncio.sleep(rng.choice((0.0, 0.5, 2.0)))

    # -- reading -----------------------------------------------------------------------------------

    async def _fetch(self, name: str, offset: int) -> int:
        """Read once; the offset behind what was found, which is what the leader has or had just
        now."""
        stage = self.stage
        then_s, epoch = stage.loop.time(), stage.partition(name).leader_epoch
        before = stage.partition(name).log
        asked = FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=self.rng.choice((100, 500, 5_000)),
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=50_000,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[asked])],
        )
        is_remote = offset < before.local_log_start_offset
        try:
            response = await stage.ask(name, request, VERSION)
        except Lost:
            return offset
        answer = response.responses[0].partitions[0]
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            assert error in LATER, f"{name} answers {error.name} at {offset}; {self.state()}"
            return offset
        found: list[tuple[int, int, str]] = []
        data = bytes(answer.records or b"")
        for position, header in iter_batches(data):
            assert crc_is_valid(data, header, position)
            for record in iter_records(data, position):
                value = (record.value or b"").decode()
                found.append((record.offset, header.leader_epoch, value))
        found = [each for each in found if each[0] >= offset]
        self._check(name, offset, found, then_s)
        self.reads += bool(found)
        self.remote_reads += bool(found and is_remote)
        return found[-1][0] + 1 if found else offset

    def _check(
        self, name: str, offset: int, found: list[tuple[int, int, str]], then_s: float
    ) -> None:
        offsets = [at for at, _, _ in found]
        assert offsets == list(range(offset, offset + len(found))), f"{name}: {offset}, {offsets}"
        records = [(epoch, value) for _, epoch, value in found]
        versions = self.lineages.since(name, then_s)
        assert any(
            [tuple(held) for held in content[offset : offset + len(found)]] == records
            for content in versions
        ), f"{name} gives {found} and has {versions[-1][offset : offset + len(found)]}"

    async def check(self) -> None:
        """In the end all is there to be read, from the first record on."""
        stage = self.stage
        self.weather.calm()
        await stage.whole()
        offset, end_s = 0, stage.loop.time() + READ_S_MAX
        leader = self._leader()
        while offset < len(self.lineages.now(leader)):
            assert stage.loop.time() < end_s, f"{offset} cannot be read: {self.state()}"
            after = await self._fetch(leader, offset)
            await asyncio.sleep(0.1 if after == offset else 0)
            offset, leader = after, self._leader() or leader

    def state(self) -> str:
        """The tiers of all brokers."""
        lines = []
        for name in "ABC":
            if self.stage.has_replica(name):
                held = self.stage.partition(name).log
                lines.append(
                    f"{name}: {held.log_start_offset} {held.local_log_start_offset}"
                    f" {held.highest_remote_offset} {held.log_end_offset} {held.epochs.entries}"
                )
        return f"leader {self.stage.leader}; {'; '.join(lines)}"


async def live(loop: Any, seed: str, elections: int) -> Branches:
    weather = new_weather(seed)
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}{seed}"}
    async with Stage(loop, "ABC", settings) as stage:
        play = Branches(stage, seed, weather)
        with play.lineages.watching():
            rng = random.Random(f"{seed}:segments")
            await stage.create_topic("ABC", **CONFIG, segment_index_bytes=12 * rng.randint(1, 4))
            tasks = [asyncio.ensure_future(play.produce()), asyncio.ensure_future(play.read())]
            await asyncio.sleep(2)
            for _ in range(elections):
                for task in tasks:
                    if task.done():
                        task.result()
                await play.branch()
            play.is_over = True
            await asyncio.gather(*tasks)
            await play.check()
        return play


@pytest.mark.parametrize("number", range(SEEDS))
def test_no_read_gives_a_dead_branch(number: int) -> None:
    seed = f"branches-{number}"
    play, _ = simulate(seed, lambda loop: live(loop, seed, 3))
    assert play.unclean == 3
    assert play.remote_reads > 5
