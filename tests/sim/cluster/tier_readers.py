"""Readers of whole logs, through both tiers: what a consumer that begins at the start finds.

They read when all is quiet: as any client, and as one that wants committed records alone. What they
find is what was produced: every fact is there, each record once, nothing that was aborted.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.consumers import EARLIEST, LATEST, ClusterConsumer, Place
from sim.cluster.transactions_reader import CommittedClient, CommittedPlace, Found
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.records import iter_batches, iter_records

if TYPE_CHECKING:
    from sim.history import PartitionHistory

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
OF_TIERS = 9  # the version of ListOffsets from which on both are known
LOOK_UPS = 3


class Auditor(ClusterConsumer):
    """Reads every partition that stays from its log start to its end, and tells when it is done."""

    def __init__(self, world: Any) -> None:
        super().__init__(world, "auditor")
        self.rack = ""  # leaders have to know all
        self.partition_bytes = 5_000
        self._read_values: dict[int, bytes] = {}
        self._times: dict[int, int] = {}

    async def run(self) -> None:
        """Partition by partition."""
        for topic in self.world.history.existing():
            if "remote.storage.enable" in topic.config:
                for index in range(topic.partitions_min):
                    await self._audit(topic.partition(index))
        for partition in self.world.transactions.partitions() if self._has_transactions else ():
            await self._audit_committed(partition)
        self.cluster.close()

    @property
    def _has_transactions(self) -> bool:
        return bool(self.world.transactions.topics)

    async def _audit(self, history: PartitionHistory) -> None:
        place = Place(history)
        start, end = await self._offset(place, EARLIEST), await self._offset(place, LATEST)
        place.position = start
        read: dict[int, bytes] = {}
        self._read_values, self._times = read, {}
        while place.position < end:
            try:
                await self._fetch(place)
            except Lost:
                await asyncio.sleep(PAUSE_S)
                await self.cluster.refresh()
        if history.topic.has_retention:  # which may have gone on meanwhile
            start = await self._offset(place, EARLIEST)
        lost = [offset for offset in history.facts if offset >= start and offset not in read]
        require(not lost, f"{history}: {self.name} did not find the records at {lost[:3]}")
        self.world.history.count("records audited", len(read))
        await self._look_up(place, start, end)

    def _read(self, place: Place, data: bytes, high_watermark: int, node_id: int) -> None:
        before = place.position
        super()._read(place, data, high_watermark, node_id)
        for offset in range(before, place.position):
            self._read_values[offset] = place.history.facts.get(offset, b"")
        for position, _ in iter_batches(data):
            for record in iter_records(data, position):
                self._times[record.offset] = record.timestamp

    async def _look_up(self, place: Place, start: int, end: int) -> None:
        """ListOffsets, by time and of the tiers, answers what was read."""
        local = await self._offset(place, EARLIEST_LOCAL, OF_TIERS)
        tiered = await self._offset(place, LATEST_TIERED, OF_TIERS)
        require(
            start <= local <= end and (local == start or local - 1 <= tiered) and tiered < end,
            f"{place.history}: {start} to {end}, local from {local}, tiered up to {tiered}",
        )
        if place.history.topic.has_retention:
            return  # what was read may be gone
        times = {offset: self._times[offset] for offset in range(start, end)}
        for wanted in self.rng.sample(sorted(times.values()), min(LOOK_UPS, len(times))):
            expected = min(offset for offset, time in times.items() if time >= wanted)
            found = await self._offset(place, wanted)
            require(
                found == expected,
                f"{place.history}: {wanted} ms is answered with {found}, it is at {expected}",
            )

    async def _audit_committed(self, history: PartitionHistory) -> None:
        """What one reads that begins now is what those have read that were there all the time."""
        client = CommittedClient(self.world, self.name, random.Random(f"{self.world.seed}:audit"))
        place = CommittedPlace(history)
        end = self.world.transactions.ends()[history]
        found: list[Found] = []
        while place.position < end:
            try:
                found += await client.fetch(place)
            except Lost:
                continue
        client.cluster.close()
        for name, known in self.world.transactions.read(history):
            require(
                found == known,
                f"{history}: {len(found)} committed records, {name} has read {len(known)}",
            )
        self.world.history.count("committed records audited", len(found))
