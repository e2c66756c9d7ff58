"""A topic whose records get the time at which the leader appends them (LogAppendTime).

All who write and read by topic id use it. What the clients saw is judged by `histories/stamps.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.cluster.work.part import OwnWriter, Part

if TYPE_CHECKING:
    from sim.history import TopicHistory

TOPIC = "stamped"


class AppendTime(Part):
    """The topic, and whether any clock was set back."""

    name = "append time"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._topics: list[TopicHistory] = []
        self._clocks: dict[int, int] = {}

    def topic_config(self, name: str) -> dict[str, str] | None:
        """Small segments, that an append may roll."""
        if name != TOPIC:
            return None
        return {
            "message.timestamp.type": "LogAppendTime",
            "internal.segment.bytes": str(self.rng.choice((2500, 1 << 20))),
            "index.interval.bytes": "100",
        }

    async def create(self) -> None:
        """The topic."""
        self._topics.append(await self.create_topic(TOPIC, self.rng.randint(1, 2)))

    def start(self) -> None:
        """At least one producer writes to it."""
        self.start_writer(OwnWriter(self.world, "idempotent-stamped", self._topics))

    def look(self, node_id: int, partition: Any) -> None:
        """A clock that is set back stamps as it says: Kafka does not hold it."""
        now_ms = self.world.machines.by_id[node_id].clock.wall_ms()
        if now_ms < self._clocks.get(node_id, now_ms):
            self.world.observer.clocks_are_steady = False
        self._clocks[node_id] = now_ms
