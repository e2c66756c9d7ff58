"""A compacted topic of users: the last record of each key stays, on every replica, for clients.

In a part of the runs some records have no value (tombstones): they delete their key, and go
themselves after a while, but never before the records that they delete. A replica that was away for
longer than delete.retention.ms may never hear of a deletion, as in Kafka: so that is looked at when
all replicas are back, with records of that time.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.work.part import OwnWriter, Part
from sim.cluster.work.reader import LooseReader
from tidelog.simulation.machine import COMPACTION
from tidelog_protocol.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.history import PartitionHistory

TOPIC = "keyed"
KEYS = 7
SEEDS_WITH_TOMBSTONES = 0.5
ROUND = 4 * KEYS  # records: so many keys are written three times, and deleted for good
DELETE_RETENTION_MS = (100, 1000)
WHOLE_S_MAX = 30.0
CALM_RECORDS = 3 * ROUND
CALM_PAUSE_S = 0.1


class KeyedWriter(OwnWriter):
    """Few keys, each again and again."""

    deletes = False

    def key_of(self, value: bytes) -> bytes | None:
        """By its number."""
        number = int(value.split(b"/")[1])
        if self.deletes:
            return b"key-%d-%d" % (number % KEYS, number // ROUND)
        return b"key-%d" % (number % KEYS)

    def record_of(self, delta: int, timestamp: int, value: bytes) -> Record:
        """A tombstone has what tells it from others in a header."""
        is_last = int(value.split(b"/")[1]) % ROUND >= ROUND - KEYS
        if not (self.deletes and is_last):
            return super().record_of(delta, timestamp, value)
        return Record(delta, timestamp, self.key_of(value), None, (("id", value),))


class KeyedReader(LooseReader):
    """Reads along, and at the end again from the beginning."""

    async def run(self) -> None:
        """To the end, twice."""
        await super().run()
        await self.read_again()


class Compaction(Part):
    """The topic, its clients, and what every replica has to keep."""

    name = "compacted topic"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        rng = random.Random(f"{world.seed}:keys end")  # by this name: no seed of planted bugs
        self.has_tombstones = rng.random() < SEEDS_WITH_TOMBSTONES
        self._delete_retention_ms = rng.choice(DELETE_RETENTION_MS)

    def settings(self) -> Mapping[str, str]:
        """The cleaner looks often, and its map is small."""
        names = ("log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size")
        return {name: COMPACTION[name] for name in names}

    def topic_config(self, name: str) -> dict[str, str] | None:
        """Whatever is not in the active segment may be compacted at once."""
        if name != TOPIC:
            return None
        more = {}
        if self.has_tombstones:
            more["delete.retention.ms"] = str(self._delete_retention_ms)
        return more | {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": str(self.rng.choice((300, 2000))),
            "internal.segment.bytes": str(self.rng.choice((2500, 5000))),
            "file.delete.delay.ms": "300",
        }

    async def create(self) -> None:
        """The topic. No other producer writes to it, because theirs send no keys."""
        topic = await self.create_topic(TOPIC, 1)
        del self.world.history.topics[topic.topic_id]
        self.topics.append(topic)
        self.world.checkers.compacted.add(topic.topic_id)
        if self.has_tombstones:
            self.world.checkers.with_deletions.add(topic.topic_id)

    def start(self) -> None:
        """One writes, one reads."""
        targets = [topic.partition(0) for topic in self.topics]
        writer = KeyedWriter(self.world, "idempotent-keyed", self.topics)
        writer.deletes = self.has_tombstones
        self.start_writer(writer)
        self.start_client(KeyedReader(self.world, "keyed-consumer", targets))

    async def finish(self) -> None:
        """All clients end. Then keys come and go once more."""
        await super().finish()
        if self.has_tombstones:
            (topic,) = self.topics
            await self.world.within(WHOLE_S_MAX, "a topic is not whole", self._missing)
            self.world.observer.together[topic.topic_id.hex()] = self.world.loop.time()
            await self._write_calmly(topic.partition(0))
            reader = KeyedReader(self.world, "keyed-consumer-again", [topic.partition(0)])
            await reader.read_again()

    def _missing(self) -> str | None:
        """Why some replica may not have all."""
        image = self.world.machines.image()
        known = None if image is None else image.topics.get(TOPIC)
        if known is None or self.world.unready():
            return "a broker is down"
        state = known.partitions[0]
        return None if sorted(state.isr) == sorted(state.replicas) else f"in sync: {state.isr}"

    async def _write_calmly(self, target: PartitionHistory) -> None:
        """So many records, and for so long, that the first deletions go."""
        writer = KeyedWriter(self.world, "idempotent-keyed-again", self.topics)
        writer.deletes, writer.left = True, CALM_RECORDS
        await writer.begin()
        while writer.left > 0:
            await writer.write(target)
            await asyncio.sleep(CALM_PAUSE_S)
        writer.cluster.close()

    def check(self) -> None:
        """Note whether anything went, so that a run without it is seen."""
        for node_id, partition in self.world.machines.partitions():
            if partition.topic_partition.topic == TOPIC:
                batches = self.world.tier.batches(self.world.machines.by_id[node_id], partition)
                records = [record for batch in batches for record in batch.records()]
                there = len(records)
                left = sum(record.value is None for record in records)
                self.world.history.count("tombstones left", left)
                gone = partition.log.log_end_offset - there
                self.world.history.count("records compacted away", gone)
