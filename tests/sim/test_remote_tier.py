"""Three simulated brokers with a remote tier: whoever dies whenever, and whatever the store does,
local and remote part together have each acknowledged record once, in order, without a hole."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest

from sim.remote_store import NAME, PREFIX, Weather, new_weather
from sim.stage import TOPIC, Stage
from sim.wire import Lost
from tidelog.simulation.loop import simulate
from tidelog_protocol.messages.admin import DeleteTopicsRequest
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.remote.api import SegmentState, TopicIdPartition

_RLMM = "rlmm.config.remote.log.metadata"
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": NAME,
    "remote.log.manager.task.interval.ms": "400",
    "remote.log.manager.task.retry.backoff.ms": "100",
    "remote.log.manager.task.retry.backoff.max.ms": "400",
    "remote.partition.remover.task.interval.ms": "2000",
    f"{_RLMM}.topic.num.partitions": "2",
    f"{_RLMM}.topic.replication.factor": "3",
    f"{_RLMM}.topic.min.isr": "2",
}
TOPIC_SETTINGS = {
    "remote_storage_enable": True,
    "local_retention_bytes": 1,
    "index_interval_bytes": 1,
    "min_insync_replicas": 2,
}


class Play:
    """One run: a producer, deaths and weather; then the verdict."""

    def __init__(
        self, stage: Stage, seed: str, weather: Weather, retention_bytes: int | None
    ) -> None:
        self.stage, self.weather = stage, weather
        self.retention_bytes = retention_bytes
        self.rng = random.Random(f"{seed}:play")
        self.acknowledged: list[str] = []
        self.deaths: list[str] = []
        self.is_over = False

    async def produce(self) -> None:
        """Each record once; what was not acknowledged may be there or not."""
        number = 0
        while not self.is_over:
            value = f"v{number}"
            number += 1
            leader = self.stage.leader if self.stage.has_controller else ""
            if leader and self.stage.machines[leader].is_ready:
                try:
                    answer = await self.stage.produce(leader, value, acks=-1)
                except Lost:
                    answer = None
                if answer is not None and answer.error_code == 0:
                    self.acknowledged.append(value)
            await asyncio.sleep(self.rng.uniform(0.01, 0.1))

    async def disturb(self, count: int) -> None:
        """One broker down at a time, so that what was acknowledged is never lost for good."""
        stage, rng = self.stage, self.rng
        for _ in range(count):
            await asyncio.sleep(rng.uniform(0.2, 2.0))
            self.weather.bad = rng.choice((0.0, 0.0, 0.1, 0.5, 1.0))
            name, how = rng.choice("ABC"), rng.choice(("kill", "power", "stop", "nothing"))
            if how == "nothing":
                continue
            if not await self._may_die(name):
                continue
            self.deaths.append(f"{how} {name}")
            if how == "stop":
                await stage.stop(name)
            else:
                stage.machines[name].die(how)
            await asyncio.sleep(rng.choice((0.05, 0.5, 2.0)))
            await stage.start(name)
        self.weather.bad = 0.0

    async def _may_die(self, name: str) -> bool:
        """Whether the others have all that is acknowledged; wait for it a while."""
        stage = self.stage
        for _ in range(200):
            if stage.has_controller and set(stage.in_sync) - {name} and len(stage.in_sync) == 3:
                return True
            await asyncio.sleep(0.02)
        return False

    async def delete(self) -> None:
        """The topic goes in bad weather, and with it perhaps its leader; nothing may be left."""
        stage, weather, rng = self.stage, self.weather, self.rng
        leader = stage.leader
        weather.bad = rng.choice((0.0, 0.3, 1.0))
        await stage.ask("X", DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=3000), 5)
        if rng.random() < 0.7:
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.1, 0.5)))
            how = rng.choice(("kill", "power"))
            self.deaths.append(f"{how} {leader} at the end")
            stage.machines[leader].die(how)
            await asyncio.sleep(rng.choice((0.05, 2.0)))
            await stage.start(leader)
        await asyncio.sleep(rng.choice((0.0, 3.0)))
        weather.bad = 0.0
        end_s = stage.loop.time() + 60
        while weather.disk.names:
            assert stage.loop.time() < end_s, f"left: {list(weather.disk.names)}; {self.deaths}"
            await asyncio.sleep(0.05)

    # -- the verdict -------------------------------------------------------------------------------

    def tier(self, name: str) -> Any:
        server: Any = self.stage.machines[name].server
        return server.tier

    def is_quiet(self) -> bool:
        """Whether all that may be copied is, and all that may go locally has gone."""
        stage = self.stage
        if not stage.is_whole() or not stage.leader:
            return False
        copier = self.tier(stage.leader).partitions[TOPIC, 0].copier
        if copier.copied_offset is None or copier.lag() != (0, 0):
            return False
        metadata = self.tier(stage.leader).metadata
        partition = TopicIdPartition(UUID(bytes=stage.topic_id), TOPIC, 0)
        finished = SegmentState.COPY_SEGMENT_FINISHED
        size = sum(one.size for one in metadata.segments(partition) if one.state is finished)
        largest = max((one.size for one in metadata.segments(partition)), default=0)
        if self.retention_bytes is not None and size > self.retention_bytes + largest:
            return False
        for name in "ABC":
            held = stage.partition(name).log
            others = list(held.segments)[1:]
            if held.highest_remote_offset != copier.copied_offset or (
                others
                and others[0].base_offset <= held.highest_remote_offset + 1
                and sum(one.size for one in others)  # one byte may stay: less than any segment
            ):
                return False
        return True

    async def check(self) -> None:
        stage = self.stage
        await stage.whole()
        for _ in range(2):
            try:
                await stage.until(self.is_quiet, "all is copied")
            except AssertionError:
                raise AssertionError(f"not quiet: {self.state()}") from None
            await asyncio.sleep(3)
        start = max(stage.partition(name).log.log_start_offset for name in "ABC")
        contents = {name: self.content(name, start) for name in "ABC"}
        content = contents["A"]
        assert contents["B"] == contents["C"] == content
        kept = [value for value in content if value in set(self.acknowledged)]
        if self.retention_bytes is None:
            assert start == 0
            assert kept == self.acknowledged
        assert kept
        assert kept == self.acknowledged[-len(kept) :]
        assert len(set(content)) == len(content), "nothing is there twice"
        self.check_objects()

    def state(self) -> str:
        stage = self.stage
        lines = []
        for name in "ABC":
            held = stage.partition(name).log
            lines.append(
                f"{name}: {held.log_start_offset} {held.local_log_start_offset}"
                f" {held.highest_remote_offset} {held.high_watermark} {held.log_end_offset}"
                f" {[(one.base_offset, one.size) for one in held.segments]}"
            )
        return f"leader {stage.leader} {stage.in_sync}; {'; '.join(lines)}; {self.deaths}"

    def content(self, name: str, start: int) -> list[str]:
        """Values from `start` to the log end, as this broker would read them."""
        stage, metadata = self.stage, self.tier(name).metadata
        held = stage.partition(name).log
        partition = TopicIdPartition(UUID(bytes=stage.topic_id), TOPIC, 0)
        local = {offset: value for offset, value, _ in stage.records(name)}
        values = []
        for offset in range(start, held.log_end_offset):
            if offset >= held.local_log_start_offset:
                values.append(local[offset])
                continue
            epoch = held.epochs.epoch_for_offset(offset)
            segment = metadata.segment_for(partition, epoch, offset)
            assert segment is not None, f"a hole at {offset} in epoch {epoch} on {name}"
            (found,) = [
                (record.value or b"").decode()
                for record_epoch, record in self.remote_records(segment)
                if record.offset == offset and record_epoch == epoch
            ]
            values.append(found)
        return values

    def remote_records(self, segment: Any) -> list[tuple[int, Any]]:
        store = self.tier(self.stage.leader).storage
        with store.fetch_segment(segment, 0) as stream:
            data = stream.read()
        assert len(data) == segment.size
        return [
            (header.leader_epoch, record)
            for position, header in iter_batches(data)
            for record in iter_records(data, position)
        ]

    def check_objects(self) -> None:
        """Every object is of a segment that is known, and every finished segment is whole."""
        metadata = self.tier(self.stage.leader).metadata
        partition = TopicIdPartition(UUID(bytes=self.stage.topic_id), TOPIC, 0)
        known = {segment.segment_id: segment for segment in metadata.segments(partition)}
        from tidelog_storage.remote.layout import object_name

        names = {object_name(segment, "") for segment in known.values()}
        for path in self.weather.disk.names:
            stem = path.rpartition("/")[2].partition(".")[0]
            assert stem in names, f"{path} is of no known segment"
        for segment in known.values():
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                assert self.remote_records(segment)


async def live(loop: Any, seed: str, batches: int, disturbances: int, lying: float = 0.0) -> Play:
    weather = new_weather(seed)
    weather.lying = lying
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}{seed}"}
    async with Stage(loop, "ABC", settings) as stage:
        config = {**TOPIC_SETTINGS, "segment_index_bytes": 12 * batches}
        retention_bytes = random.Random(f"{seed}:retention").choice((None, 800, 3000))
        if retention_bytes is not None:
            config["retention_bytes"] = retention_bytes
        await stage.create_topic("ABC", **config)
        play = Play(stage, seed, weather, retention_bytes)
        producing = asyncio.ensure_future(play.produce())
        await play.disturb(disturbances)
        weather.calm()
        play.is_over = True
        await producing
        await play.check()
        await play.delete()
        return play


@pytest.mark.parametrize(
    "number",  # planted bugs are found by some of them
    [0, 1, *(pytest.param(number, marks=pytest.mark.nightly) for number in (2, 3, 4, 6))],
)
def test_nothing_is_lost_between_the_tiers(number: int) -> None:
    seed = f"tier-{number}"
    play, _ = simulate(seed, lambda loop: live(loop, seed, 1 + number % 3, 6))
    assert len(play.acknowledged) > 10
    assert play.weather.calls["copy"] > 5


@pytest.mark.parametrize("number", range(2))
def test_nothing_is_lost_by_a_store_that_lies(number: int) -> None:
    """It says that it has copied what it has not, or not to the end."""
    seed = f"lies-{number}"
    play, _ = simulate(seed, lambda loop: live(loop, seed, 1 + number, 3, lying=0.4))
    assert len(play.acknowledged) > 10
    assert play.weather.errors["lie"] > 1
