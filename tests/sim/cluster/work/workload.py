"""The kinds of work of one run, from its settings to what is checked at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.cluster.work.append_time import AppendTime
from sim.cluster.work.consumer_groups import ConsumerGroups
from sim.cluster.work.keyed import Compaction
from sim.cluster.work.moves import Moves
from sim.cluster.work.names import Names
from sim.cluster.work.retention import Retention
from sim.cluster.work.seeds import work_of
from sim.cluster.work.sessions import Sessions
from sim.cluster.work.share_groups import ShareGroups
from sim.cluster.work.static import StaticMembers
from sim.cluster.work.streams_groups import StreamsGroups
from sim.cluster.work.unclean import Elections
from sim.cluster.work.voters import Voters

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from sim.cluster.faults import ClusterFaults
    from sim.cluster.work.part import Part
    from sim.history import TopicHistory

PARTS: Mapping[str, type[Part]] = {
    "append time": AppendTime,
    "compacted topic": Compaction,
    "consumer groups": ConsumerGroups,
    "fetch sessions": Sessions,
    "names used again": Names,
    "new topics that move": Moves,
    "retention": Retention,
    "share groups": ShareGroups,
    "static members": StaticMembers,
    "streams groups": StreamsGroups,
    "unclean elections": Elections,
    "voters that change": Voters,
}


class Workload:
    """All kinds that the seed has."""

    def __init__(self, world: Any) -> None:
        kinds = work_of(world.seed) if world.kinds_of_work is None else world.kinds_of_work
        self.parts = [PARTS[kind](world) for kind in kinds]

    def settings(self) -> dict[str, str]:
        """Of all brokers."""
        return {key: value for part in self.parts for key, value in part.settings().items()}

    def topic_config(self, name: str) -> dict[str, str] | None:
        """What a topic of this name is created with; None for topics of others."""
        return next(filter(None, (part.topic_config(name) for part in self.parts)), None)

    def look(self, node_id: int, changed: Sequence[Any]) -> None:
        """After a step of a broker that changed these replicas."""
        for part in self.parts:
            for partition in changed:
                part.look(node_id, partition)

    async def create(self) -> None:
        """The topics."""
        for part in self.parts:
            await part.create()

    def start(self) -> None:
        """All clients begin."""
        for part in self.parts:
            part.start()

    async def play(self, faults: ClusterFaults, kind: str, name: str) -> None:
        """A fault that belongs to one kind."""
        for part in self.parts:
            await part.play(faults, kind, name)

    def topics(self) -> list[TopicHistory]:
        """Those that the others do not use."""
        return [topic for part in self.parts for topic in part.topics]

    def writers(self) -> list[asyncio.Task[Any]]:
        """Those whose end is the end of writing."""
        return [writer for part in self.parts for writer in part.writers]

    async def finish(self) -> None:
        """All clients end: no fault will come, and the writers are done."""
        for part in self.parts:
            await part.finish()

    def check(self) -> None:
        """What holds at the end."""
        for part in self.parts:
            part.check()
