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

if TYPE_CHECKING:
    from sim.history import PartitionHistory

EARLIEST_LOCAL, LATEST_TIERED = -4, -5


class Auditor(ClusterConsumer):
    """Reads every partition that stays from its log start to its end, and tells when it is done."""

    def __init__(self, world: Any) -> None:
        super().__init__(world, "auditor")
        self.rack = ""  # leaders have to know all
        self.partition_bytes = 5_000

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
        self._read_values = read
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

    def _read(self, place: Place, data: bytes, high_watermark: int, node_id: int) -> None:
        before = place.position
        super()._read(place, data, high_watermark, node_id)
        for offset in range(before, place.position):
            self._read_values[offset] = place.history.facts.get(offset, b"")

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
