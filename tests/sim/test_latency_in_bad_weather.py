"""Producers and consumers of what is local do not feel the store: their slowest request takes as
long when it is away, slow or hangs, and readers of what is remote wait for it, as when all is well.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sim.remote_store import PREFIX, new_weather
from sim.stage import TOPIC, Miser, Stage
from sim.test_remote_tier import SETTINGS, TOPIC_SETTINGS
from sim.wire import WireConnection
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop
    from tidelog_protocol.schema import Message

READERS = 12  # more than the reader pool has threads
BIG = "x" * 20_000  # records in segments of their own: those for the readers are remote alone,
LOCAL_BYTES = 35_000  # one is in both tiers
BOTH_OFFSET, LAST_OFFSET = READERS, READERS + 1
RECORDS = 40
PAUSE_S = 0.05
ROUND_TRIP_S, DISK_S = 0.001, 0.002
DELAYS_S = {"slow": 4.0, "hangs": 1e6}  # longer than all of it takes
FETCH_WAIT_S = 0.5  # remote.fetch.max.wait.ms


class Seen(NamedTuple):
    """Of one run: the slowest of each kind, in virtual seconds, and what became of the tier."""

    produce_s: float
    fetch_new_s: float
    fetch_copied_s: float
    remote_s: float
    copied_offset: int
    is_pool_full: bool


def fetch_request(offset: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    topic = FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[topic])


class Client:
    """A connection to the leader, and how long its answers take."""

    def __init__(self, stage: Stage, connection: WireConnection) -> None:
        self.slowest_s = 0.0
        self._stage, self._connection = stage, connection

    @classmethod
    async def of(cls, stage: Stage, name: str) -> Client:
        return cls(stage, await WireConnection.open(stage.machines["A"], name))

    async def _ask(self, message: Message) -> Any:
        begun_s = self._stage.loop.time()
        answer = await self._connection.ask(message, 12)
        self.slowest_s = max(self.slowest_s, self._stage.loop.time() - begun_s)
        return answer.responses[0]

    async def produce(self, value: str) -> int:
        answer = await self._ask(self._stage.produce_request(value, acks=-1))
        (partition,) = answer.partition_responses
        assert partition.error_code == 0
        return int(partition.base_offset)

    async def fetch(self, offset: int) -> Any:
        (partition,) = (await self._ask(fetch_request(offset))).partitions
        return partition

    async def fetch_again_and_again(self, offset: int) -> None:
        while True:
            answer = await self.fetch(offset)
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
            await asyncio.sleep(PAUSE_S)


async def live(loop: SimLoop, sky: str) -> Seen:
    weather = new_weather("latency")
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}latency"}
    async with Stage(loop, "ABC", settings) as stage:
        config = {**TOPIC_SETTINGS, "local_retention_bytes": LOCAL_BYTES}
        await stage.create_topic("ABC", **config, segment_index_bytes=12)
        for _ in range(LAST_OFFSET + 1):
            await stage.acknowledged("A", BIG, acks=-1)
        log = stage.partition("A").log
        await stage.until(
            lambda: log.local_log_start_offset == log.highest_remote_offset == BOTH_OFFSET, "copied"
        )
        # From here on chance decides nothing.
        stage.network.latency_s, stage.network.rng = (ROUND_TRIP_S / 2,) * 2, Miser()
        for machine in stage.machines.values():
            machine.disk_delay_s = (DISK_S, DISK_S)
            machine.disk.on_sync = lambda: None  # the syncs of a roll are those of a calm disk
            machine.store_delay_s = lambda: DELAYS_S.get(sky, 0.0)
        weather.bad = 1.0 if sky == "is away" else 0.0
        remote = [await Client.of(stage, f"remote {number}") for number in range(READERS)]
        reading = [
            asyncio.ensure_future(client.fetch_again_and_again(offset))
            for offset, client in enumerate(remote)
        ]
        producer, new, copied = [await Client.of(stage, f"local {number}") for number in range(3)]
        await asyncio.sleep(1)
        for number in range(RECORDS):
            offset = await producer.produce(f"v{number}")
            assert len((await new.fetch(offset)).records)
            assert len((await copied.fetch(BOTH_OFFSET)).records)
            await asyncio.sleep(PAUSE_S)
        server: Any = stage.machines["A"].server
        pool = server.tier.pools.reader
        for task in reading:
            assert task.cancel(), task.result()
        assert log.local_log_start_offset == BOTH_OFFSET
        return Seen(
            producer.slowest_s,
            new.slowest_s,
            copied.slowest_s,
            max(client.slowest_s for client in remote),
            log.highest_remote_offset,
            pool.running == pool.threads_max < READERS,
        )


@functools.cache
def seen(sky: str) -> Seen:
    result, _ = simulate("latency", lambda loop: live(loop, sky))
    return result


@pytest.mark.parametrize("sky", ["is away", *DELAYS_S])
def test_what_is_local_is_as_fast(sky: str) -> None:
    calm, bad = seen("is calm"), seen(sky)
    assert calm.remote_s < FETCH_WAIT_S <= bad.remote_s
    assert calm.copied_offset > LAST_OFFSET + RECORDS / 2
    assert bad.copied_offset <= LAST_OFFSET
    assert bad.is_pool_full or sky not in DELAYS_S
    # A produce: the producer's request, and a follower's fetch that tells that it has the record.
    expected = pytest.approx((2 * ROUND_TRIP_S, ROUND_TRIP_S, ROUND_TRIP_S))
    assert calm[:3] == expected
    assert bad[:3] == expected
