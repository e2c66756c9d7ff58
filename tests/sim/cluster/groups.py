"""Groups in a cluster: their coordinator moves, and what they have committed moves with it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S, ClusterClient
from sim.groups import NOT_NOW as NOT_NOW_AT_ONE
from sim.groups import Member
from sim.history import require
from sim.wire import Lost
from tidelog.replication.internal_topics import partition_for
from tidelog.simulation.machines import host_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld
    from tidelog_protocol.schema import Message

OFFSETS_TOPIC = "__consumer_offsets"
NOT_NOW = NOT_NOW_AT_ONE | {ErrorCode.REQUEST_TIMED_OUT}
Term = tuple[int, int]  # node id, leader epoch of the group's partition


def term_of(world: ClusterWorld, group: str) -> Term | None:
    """Who is coordinator and in which epoch, as the controller has it: nobody else may be. None if
    those who have heard it are dead or still loading."""
    image = world.machines.image()
    topic = None if image is None else image.topics.get(OFFSETS_TOPIC)
    if image is None or topic is None or world.checkers.in_sync.knows_newer_than(image):
        return None
    state = topic.partitions[partition_for(group, len(topic.partitions))]
    return state.leader, state.leader_epoch


def term_at(world: ClusterWorld, group: str, host: str) -> Term | None:
    """The same if this host is it, else None."""
    term = term_of(world, group)
    return term if term is not None and host_of(term[0]) == host else None


class CoordinatorClient:
    """Asks a group's coordinator, wherever it is; `Lost` (after a while) if nobody is it."""

    def __init__(self, world: ClusterWorld, name: str, group: str, rng: random.Random) -> None:
        self.world, self.group = world, group
        self.cluster = ClusterClient(world.machines, name, rng)
        self.node_id: int | None = None
        self.life: Term | None = None  # None: an earlier coordinator that does not know of its end

    async def ask(self, message: Message, version: int) -> Any:
        """One request, one response; `life` is then the term in which the coordinator gave it."""
        before = self.term()
        try:
            if self.node_id is None:
                await self._find()
            assert self.node_id is not None
            heard = self._epoch_at(self.node_id)
            response = await self.cluster.ask(self.node_id, message, version)
        except Lost:
            self.node_id = None
            await asyncio.sleep(PAUSE_S)
            raise
        is_witness = before == self.term() and before == (self.node_id, heard)
        self.life = before if is_witness else None
        return response

    async def _find(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        response = await self.cluster.ask(self.cluster.any_broker(), request, 4)
        found = response.coordinators[0]
        if found.error_code:
            error = ErrorCode(found.error_code)
            require(error in NOT_NOW, f"FindCoordinator was answered {error.name}")
            raise Lost(error.name)
        self.node_id = found.node_id

    def term(self) -> Term | None:
        """Its coordinator now."""
        return term_of(self.world, self.group)

    def _epoch_at(self, node_id: int) -> int | None:
        """The leader epoch of the group's partition as a broker itself has it."""
        image = self.world.machines.image()
        topic = None if image is None else image.topics.get(OFFSETS_TOPIC)
        server: Any = dict(self.world.machines.servers()).get(node_id)
        if topic is None or server is None or not server.is_built:
            return None
        index = partition_for(self.group, len(topic.partitions))
        partition = server.replicas.hosted(TopicPartition(OFFSETS_TOPIC, index))
        return None if partition is None else partition.leader_epoch

    def forget(self) -> None:
        """It is not the coordinator: find another."""
        self.node_id = None

    def close(self) -> None:
        """End all connections."""
        self.cluster.close()


class ClusterGroup:
    """Commits rising offsets without members, and looks what is committed."""

    def __init__(self, world: ClusterWorld, name: str, group: str) -> None:
        self.world, self.name, self.group = world, name, group
        self.rng = random.Random(f"{world.seed}:{name}")
        self.client = CoordinatorClient(world, name, group, self.rng)

    async def run(self) -> None:
        """Commit, and look what is committed."""
        topics = self.world.base_topics
        for _ in range(self.rng.randint(10, 40)):
            topic = self.rng.choice(topics)
            await self._commit(topic.name, self.rng.randrange(topic.partitions_min))
            if self.rng.random() < 0.2:
                await self.check()
            await asyncio.sleep(self.rng.choice((0.01, 0.05, 0.2)))
        self.client.close()

    async def _commit(self, name: str, index: int) -> None:
        committed = self.world.history.commits(self.group, name, index)
        number = committed.next()
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=number, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])
        request = OffsetCommitRequest(group_id=self.group, topics=[topic])
        try:
            response = await self.client.ask(request, 8)
        except Lost:
            return
        error = ErrorCode(response.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            committed.acked = max(committed.acked, number)
            self.world.history.count("offsets committed")
            return
        require(error in NOT_NOW, f"OffsetCommit was answered {error.name}")
        self.client.forget()
        await asyncio.sleep(PAUSE_S)

    async def check(self) -> None:
        """What is committed now is no older than what was acknowledged before asking."""
        await check_offsets(self.world, self.client, self.group)


async def check_offsets(world: ClusterWorld, client: CoordinatorClient, group: str) -> None:
    """Look until the coordinator has told."""
    while True:
        try:
            error = await look_at_offsets(world, client, group)
        except Lost:
            continue
        if error is ErrorCode.NONE:
            return
        client.forget()
        await asyncio.sleep(PAUSE_S)


async def look_at_offsets(world: ClusterWorld, client: CoordinatorClient, group: str) -> ErrorCode:
    """What a group has committed is no older than what was acknowledged, or told anybody, before
    asking.

    If who answers may be an earlier coordinator, it may not know of the newest. The error if it
    cannot tell now; Lost if it does not answer.
    """
    least = {
        (name, index): committed.least
        for (of, name, index), committed in world.history.committed.items()
        if of == group and committed.tried
    }
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[index])
        for name, index in least
    ]
    if not topics:
        return ErrorCode.NONE
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)]
    )
    response = await client.ask(request, 8)
    error, term = ErrorCode(response.groups[0].error_code), client.life
    if error is not ErrorCode.NONE:
        require(error in NOT_NOW, f"OffsetFetch was answered {error.name}")
        return error
    if term is not None:
        world.history.count("committed offsets looked at")
    for topic in response.groups[0].topics:
        for answer in topic.partitions:
            key = (topic.name, answer.partition_index)
            committed = world.history.commits(group, *key)
            require(
                (-1 if term is None else least[key]) <= answer.committed_offset <= committed.tried,
                f"{group} committed {least[key]} to {key}, tried {committed.tried}, and has"
                f" {answer.committed_offset} in {term}",
            )
            committed.told = max(committed.told, answer.committed_offset)
    return error


class ClusterMember(Member):
    """A member of a group whose coordinator moves."""

    world: Any

    def new_client(self) -> CoordinatorClient:
        """Who asks the coordinator, wherever it is."""
        return CoordinatorClient(self.world, self.name, self.group, self.rng)

    async def find_coordinator(self) -> None:
        """Whenever it is asked for."""

    async def check(self) -> None:
        """What is committed is no older than what was acknowledged."""
        await check_offsets(self.world, self.client, self.group)

    async def _trouble(self, error: ErrorCode, what: str) -> None:
        if error in NOT_NOW:
            self.beats = 0
            self.client.forget()
            await asyncio.sleep(PAUSE_S)
            return
        await super()._trouble(error, what)
