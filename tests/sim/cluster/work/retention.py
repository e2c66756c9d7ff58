"""Topics with retention by size and by time: nothing goes that is not over its limit.

Each move of a log start is noted when the leader makes it. A move that no DeleteRecords asked for
leaves `retention.bytes` in the log, or takes records alone that are older than `retention.ms` by
the leader's clock.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.admin import random_records_deletion
from sim.cluster.work.part import OwnWriter, Part, TopicAdmin
from sim.history import require
from sim.raw_logs import read_log
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.records import iter_batches, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.history import PartitionHistory, TopicHistory

BY_SIZE, BY_TIME = "kept-by-size", "kept-by-time"
BYTES, MS = "retention.bytes", "retention.ms"


class Move(NamedTuple):
    """The leader's log start went from `first` to `end`."""

    partition: PartitionHistory
    first: int
    end: int
    wall_ms: int  # the leader's clock
    leader: int


class Deleter(TopicAdmin):
    """DeleteRecords, now and then, beside retention."""

    def __init__(self, world: Any, topics: list[TopicHistory]) -> None:
        super().__init__(world, "deleter")
        self.name, self.topics = "deleter", topics

    async def run(self) -> None:
        """A few times."""
        for _ in range(self.rng.randint(0, 4)):
            await asyncio.sleep(self.rng.uniform(0.5, 3))
            await self._until_deleted(*random_records_deletion(self.rng, self.topics))
        self.cluster.close()


class Retention(Part):
    """The topics, and each move of their log starts."""

    name = "retention"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._topics: dict[bytes, TopicHistory] = {}
        self._starts: dict[PartitionHistory, int] = {}
        self._moves: list[Move] = []  # of topics by time, to be judged at the end

    def settings(self) -> Mapping[str, str]:
        """Retention is looked at often."""
        return {"log.retention.check.interval.ms": "300"}

    def topic_config(self, name: str) -> dict[str, str] | None:
        """One limit for each topic."""
        limits = {
            BY_SIZE: {BYTES: str(self.rng.choice((1000, 4000)))},
            BY_TIME: {MS: str(self.rng.choice((1000, 2500)))},
        }
        if name not in limits:
            return None
        rolls = {"segment.ms": "700"} if self.rng.random() < 0.5 else {}
        return {
            **limits[name],
            **rolls,
            "internal.segment.bytes": "2500",
            "file.delete.delay.ms": "300",
        }

    async def create(self) -> None:
        """One topic or both."""
        for name in self.rng.choice(((BY_SIZE,), (BY_TIME,), (BY_SIZE, BY_TIME))):
            topic = await self.create_topic(name, 1)
            self._topics[topic.topic_id] = topic

    def start(self) -> None:
        """Records are deleted, too."""
        topics = list(self._topics.values())
        self.start_client(Deleter(self.world, topics))
        self.start_writer(OwnWriter(self.world, "idempotent-kept", topics))

    def look(self, node_id: int, partition: Any) -> None:
        """Note a move of the log start."""
        topic = self._topics.get(partition.topic_id)
        if topic is None or not partition.is_leader:
            return
        history = topic.partition(partition.topic_partition.partition)
        start, known = partition.log.log_start_offset, self._starts.get(history, 0)
        if start <= known:
            return
        self._starts[history] = start
        first = max(known, history.delete_bound)
        if first >= start:
            return
        self.world.history.count(f"log starts moved, {topic.name}")
        machine = self.world.machines.by_id[node_id]
        if BYTES in topic.config:
            batches = read_log(machine.disk, partition.log.folder).batches()
            kept = sum(len(batch.data) for batch in batches if batch.header.base_offset >= start)
            require(
                kept >= int(topic.config[BYTES]),
                f"{history} on {node_id}: the log start went from {first} to {start}, and"
                f" {kept} bytes were kept of {topic.config[BYTES]}",
            )
        else:
            wall_ms = machine.clock.wall_ms()
            self._moves.append(Move(history, first, start, wall_ms, node_id))

    def check(self) -> None:
        """By time: what went was old enough, as far as clients know what it was."""
        stamps: dict[bytes, int] = {}
        for value, stamp in self._stamps():  # each try has its own: the log has one of them
            stamps[value] = min(stamp, stamps.get(value, stamp))
        for move in self._moves:
            oldest_ms = move.wall_ms - int(move.partition.topic.config[MS])
            for offset in range(max(move.first, move.partition.delete_bound), move.end):
                value = move.partition.facts.get(offset)
                require(
                    value is None or stamps[value] < oldest_ms,
                    f"{move.partition} on {move.leader}: the record at {offset} was deleted"
                    f" {stamps.get(value or b'', 0) - oldest_ms} ms before its time",
                )

    def _stamps(self) -> Iterator[tuple[bytes, int]]:
        """Values and timestamps of all that was sent to the topics."""
        for asked in self.world.observer.asked:
            message = asked.message
            if not isinstance(message, ProduceRequest):
                continue
            for topic in message.topic_data:
                if bytes(topic.topic_id) in self._topics:
                    for data in topic.partition_data:
                        records = bytes(data.records or b"")
                        for position, _ in iter_batches(records):
                            for record in iter_records(records, position):
                                yield record.value or b"", record.timestamp
