"""A compacted topic of users: the last record of each key stays, on every replica, for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.cluster.work.part import OwnWriter, Part
from sim.cluster.work.reader import LooseReader
from sim.machine import COMPACTION

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC = "keyed"
KEYS = 7


class KeyedWriter(OwnWriter):
    """Few keys, each again and again."""

    def key_of(self, value: bytes) -> bytes:
        """By its number."""
        return b"key-%d" % (int(value.split(b"/")[1]) % KEYS)


class KeyedReader(LooseReader):
    """Reads along, and at the end again from the beginning."""

    async def run(self) -> None:
        """To the end, twice."""
        await super().run()
        await self.read_again()


class Compaction(Part):
    """The topic, its clients, and what every replica has to keep."""

    name = "compacted topic"

    def settings(self) -> Mapping[str, str]:
        """The cleaner looks often, and its map is small."""
        names = ("log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size")
        return {name: COMPACTION[name] for name in names}

    def topic_config(self, name: str) -> dict[str, str] | None:
        """Whatever is not in the active segment may be compacted at once."""
        if name != TOPIC:
            return None
        return {
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

    def start(self) -> None:
        """One writes, one reads."""
        targets = [topic.partition(0) for topic in self.topics]
        self.start_writer(KeyedWriter(self.world, "idempotent-keyed", self.topics))
        self.start_client(KeyedReader(self.world, "keyed-consumer", targets))

    def check(self) -> None:
        """Note whether anything went, so that a run without it is seen."""
        for node_id, partition in self.world.machines.partitions():
            if partition.topic_partition.topic == TOPIC:
                batches = self.world.tier.batches(self.world.machines.by_id[node_id], partition)
                there = sum(len(batch.records()) for batch in batches)
                gone = partition.log.log_end_offset - there
                self.world.history.count("records compacted away", gone)
