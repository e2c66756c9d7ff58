"""Replicas that move while everybody works: reassignments, their cancellation and their list.

One mover at a time asks for a partition. A request that was lost may still be done late: what it
asked for stays among what the partition may end up with, until `settle` asks once more, with
nothing on its way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.admin import LATER, AdminClient
from sim.cluster.client import PAUSE_S
from sim.cluster.groups import OFFSETS_TOPIC
from sim.history import require
from sim.wire import Lost
from tidelog.simulation.machines import host_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

if TYPE_CHECKING:
    from sim.cluster.client import Key
    from sim.cluster.promises import Placement, Replicas
    from sim.cluster.world import ClusterWorld
    from tidelog.cluster.metadata.image import PartitionImage

Asked = AlterPartitionReassignmentsRequest.ReassignableTopic
HELD_UP_S_MAX = 3.0
ELECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Movable(NamedTuple):
    """A partition and where it is, by the newest metadata."""

    name: str
    key: Key
    state: PartitionImage

    @property
    def replicas(self) -> Replicas:
        """Brokers that it is on."""
        return frozenset(self.state.replicas)


class Mover(AdminClient):
    """Moves replicas about."""

    def __init__(self, world: ClusterWorld, moves: int, name: str = "mover") -> None:
        super().__init__(world, name)
        self.moves = moves

    async def run(self) -> None:
        """Now here, now there."""
        for _ in range(self.moves):
            await asyncio.sleep(self.rng.uniform(0.1, 1.5))
            movable = self.movable()
            if not movable:
                continue
            await self.act(self.rng.choice(movable))

    async def act(self, chosen: Movable) -> None:
        """Have its preferred replica lead, or move it; now and then, think again."""
        if self.rng.random() < 0.2:
            await self.elect(chosen)
            return
        target = self._target(chosen)
        if self.rng.random() < 0.4 and chosen.state.leader > 0:
            await self._held_up(chosen, target)
        else:
            await self.move(chosen, target)

    async def _held_up(self, chosen: Movable, target: list[int]) -> None:
        """Those that are to come do not reach the leader: time to look, and to think again."""
        network, leader = self.world.machines.network, host_of(chosen.state.leader)
        coming = [host_of(node) for node in target if node not in chosen.replicas]
        links = [(host, leader) for host in coming]
        network.cut(links)
        deciding = asyncio.get_running_loop().create_task(self._decide(chosen, target))
        # Who is to come may be needed for a decision, as the other half of the quorum.
        await asyncio.wait([deciding], timeout=HELD_UP_S_MAX)
        network.heal(links)
        await deciding

    async def _decide(self, chosen: Movable, target: list[int]) -> None:
        await self.move(chosen, target)
        await asyncio.sleep(self.rng.choice((0.02, 0.1, 0.5)))
        await self.look()
        now = next((movable for movable in self.movable() if movable.key == chosen.key), chosen)
        if self.rng.random() < 0.6:
            await self.cancel(now)
        elif self.rng.random() < 0.5:
            await self.move(now, self._target(now))

    def movable(self) -> list[Movable]:
        """Partitions of topics that stay."""
        image = self.world.machines.image()
        names = self.names()
        return [
            Movable(name, (topic.topic_id, state.partition), state)
            for name in names
            if image is not None and (topic := image.topics.get(name)) is not None
            for state in topic.partitions
        ]

    def names(self) -> list[str]:
        """Of those topics."""
        names = [topic.name for topic in self.world.base_topics] + [OFFSETS_TOPIC]
        return names + self.world.transactions.movable_topics() + self.world.tier.movable_topics()

    def hosts(self) -> list[int]:
        """Brokers that may get replicas: those that are registered."""
        image, leaving = self.world.machines.image(), self.world.leaving
        return [
            node
            for node in self.world.machines.by_id
            if image is not None and node in image.brokers and node not in leaving
        ]

    def _target(self, chosen: Movable) -> list[int]:
        """As many replicas as before or, now and then, another number that is safe."""
        hosts = self.hosts()
        low = min(2, len(hosts))
        size = len(chosen.state.replicas) - len(chosen.state.adding_replicas)
        if self.rng.random() < 0.5:
            size = self.rng.randint(low, min(4, len(hosts)))
        return self.rng.sample(hosts, max(low, min(size, len(hosts))))

    # -- requests ----------------------------------------------------------------------------------

    async def move(self, chosen: Movable, target: list[int]) -> bool:
        """Ask for these replicas; whether they will come to be."""
        async with self.world.promises.moving:
            if not set(target) <= set(self.hosts()):
                return False  # one of them has been taken away meanwhile
            placement = self._placement(chosen)
            wanted = frozenset(target)
            before = set(placement.allowed)
            placement.allowed.add(wanted)
            error, was_lost = await self._ask(chosen, target)
            if was_lost:
                placement.in_doubt.add(wanted)
            if error is ErrorCode.NONE:
                placement.allowed = {wanted}
                self.world.history.count("reassignments")
                return True
            require(
                self._may_refuse(error, chosen, wanted),
                f"reassignment of {chosen.name} to {target}: {error.name}",
            )
            placement.allowed = before
            return False

    def _may_refuse(self, error: ErrorCode, chosen: Movable, wanted: Replicas) -> bool:
        """Whether the topic, or a broker it was to be on, may have gone while we asked."""
        if error is ErrorCode.INVALID_REPLICA_ASSIGNMENT:
            return not wanted <= set(self.hosts())
        return self._is_gone(error, chosen)

    def _is_gone(self, error: ErrorCode, chosen: Movable) -> bool:
        topic = self.world.history.topic(chosen.key[0])
        is_deleted = topic is not None and topic.state != "exists"
        return error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and is_deleted

    async def cancel(self, chosen: Movable) -> None:
        """Back to where it was, if it still moves."""
        async with self.world.promises.moving:
            placement = self._placement(chosen)
            adding, removing = chosen.state.adding_replicas, chosen.state.removing_replicas
            back = chosen.replicas - set(adding)
            if not adding and not removing:
                back = chosen.replicas
            placement.allowed.add(back)
            error, was_lost = await self._ask(chosen, None)
            if was_lost:
                placement.in_doubt |= placement.allowed
            require(
                error
                in (
                    ErrorCode.NONE,
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # it would take an unclean election
                )
                or self._is_gone(error, chosen),
                f"cancellation of the move of {chosen.name}: {error.name}",
            )
            if error is ErrorCode.NONE:
                self.world.history.count("reassignments cancelled")

    def _placement(self, chosen: Movable) -> Placement:
        return self.world.promises.placement(chosen.name, chosen.key, chosen.replicas)

    async def _ask(self, chosen: Movable, target: list[int] | None) -> tuple[ErrorCode, bool]:
        partition = Asked.ReassignablePartition(partition_index=chosen.key[1], replicas=target)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=3000, topics=[Asked(name=chosen.name, partitions=[partition])]
        )
        was_lost = False
        while True:
            try:
                response = await self.cluster.ask(self.cluster.any_broker(), request, 1)
                error = ErrorCode(response.error_code)
                if error is ErrorCode.NONE:
                    error = ErrorCode(response.responses[0].partitions[0].error_code)
                if error not in LATER:
                    return error, was_lost
            except Lost:
                pass
            was_lost = True
            await asyncio.sleep(PAUSE_S)

    async def elect(self, chosen: Movable) -> None:
        """Have the preferred replica lead."""
        topics = [
            ElectLeadersRequest.TopicPartitions(topic=chosen.name, partitions=[chosen.key[1]])
        ]
        request = ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=3000)
        response, _ = await self.until_known(request, 2, lambda r: r)
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                error = ErrorCode(result.error_code)
                require(
                    error in ELECTED or error in LATER, f"ElectLeaders {topic.topic}: {error.name}"
                )

    async def look(self) -> None:
        """The list of reassignments holds together."""
        request = ListPartitionReassignmentsRequest(timeout_ms=3000, topics=None)
        response, _ = await self.until_known(request, 0, lambda r: r)
        for topic in response.topics:
            for moving in topic.partitions:
                self._check_listed(f"{topic.name}-{moving.partition_index}", moving)

    def _check_listed(self, name: str, moving: Any) -> None:
        adding, removing = set(moving.adding_replicas), set(moving.removing_replicas)
        require(
            (adding or removing)
            and not adding & removing
            and adding | removing <= set(moving.replicas)
            and len(set(moving.replicas)) == len(moving.replicas),
            f"{name} is listed as moving: {moving}",
        )
        self.world.history.count("reassignments listed")

    # -- the end -----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Nothing is on its way any more: what was in doubt is asked for once more."""
        for chosen in self.movable():
            placement = self.world.promises.placements.get(chosen.key)
            if placement is not None and len(placement.may_be()) > 1:
                placement.in_doubt.clear()
                moved = await self.move(chosen, self._target(chosen))
                require(moved, f"{chosen.name} cannot be moved, and nothing is wrong")
        self.cluster.close()
