"""The admin client of a cluster: topics, elections, reassignments; and a group that commits."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S, ClusterClient
from sim.cluster.machines import replication_of
from sim.history import TopicHistory, Violation, require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld

LATER = frozenset(
    {
        ErrorCode.INVALID_REPLICATION_FACTOR,  # too few brokers are unfenced
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
NOT_NOW = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class ClusterAdmin:
    """One operation at a time, each retried until its outcome is known."""

    def __init__(self, world: ClusterWorld, operations: int) -> None:
        self.world, self.operations = world, operations
        self.rng = random.Random(f"{world.seed}:admin")
        self.cluster = ClusterClient(world.machines, "admin", self.rng)
        self._number = 0

    async def create_base_topics(self) -> list[TopicHistory]:
        """The topics that everybody uses."""
        return [
            await self.create(f"base-{index}", self.rng.randint(1, 3))
            for index in range(self.rng.randint(1, 2))
        ]

    async def run(self) -> None:
        """Create topics now and then, and see that all are known."""
        for _ in range(self.operations):
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            if self.rng.random() < 0.3:
                self._number += 1
                await self.create(f"extra-{self._number}", self.rng.randint(1, 2))
        await self.check_metadata()
        self.cluster.close()

    async def create(self, name: str, partitions: int) -> TopicHistory:
        """Create a topic of a new name."""
        factor, min_isr = replication_of(len(self.world.machines.by_id))
        config = {
            "internal.segment.bytes": str(self.rng.choice((2500, 6000, 1 << 20))),
            "min.insync.replicas": str(min_isr),
        }
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in config.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        while True:
            try:
                result = (await self.cluster.ask(self.cluster.any_broker(), request, 7)).topics[0]
            except Lost:
                await asyncio.sleep(PAUSE_S)
                continue
            error = ErrorCode(result.error_code)
            if error not in LATER:
                break
            await asyncio.sleep(PAUSE_S)
        topic_id = result.topic_id
        if error is ErrorCode.TOPIC_ALREADY_EXISTS:  # brokers that forward ask again, too
            topic_id = await self._id_of(name)
        elif error is not ErrorCode.NONE:
            raise Violation(f"CreateTopics {name}: {error.name}")
        history = self.world.history
        require(topic_id not in history.topics, f"{name} got the id of another topic")
        history.topics[topic_id] = TopicHistory(name, topic_id, partitions, config)
        history.count("topics created")
        return history.topics[topic_id]

    async def _id_of(self, name: str) -> bytes:
        while True:
            response = await self.cluster.ask_any(MetadataRequest(topics=None), 12)
            for topic in response.topics:
                if topic.name == name:
                    return bytes(topic.topic_id)
            await asyncio.sleep(PAUSE_S)

    async def check_metadata(self) -> None:
        """Some broker soon knows all topics that were created."""
        wanted = {topic.topic_id for topic in self.world.history.existing()}
        end_s = self.world.loop.time() + 20
        while True:
            response = await self.cluster.ask_any(MetadataRequest(topics=None), 12)
            missing = wanted - {topic.topic_id for topic in response.topics}
            if not missing:
                return
            require(
                self.world.loop.time() < end_s or not self.world.is_quiet,
                f"{len(missing)} topics that were created are not there",
            )
            await asyncio.sleep(PAUSE_S)


class ClusterGroup:
    """Commits rising offsets without members, and looks what is committed."""

    def __init__(self, world: ClusterWorld, name: str, group: str) -> None:
        self.world, self.name, self.group = world, name, group
        self.rng = random.Random(f"{world.seed}:{name}")
        self.cluster = ClusterClient(world.machines, name, self.rng)
        self._coordinator: int | None = None

    async def run(self) -> None:
        """Commit, and look what is committed."""
        topics = self.world.base_topics
        for _ in range(self.rng.randint(10, 40)):
            topic = self.rng.choice(topics)
            await self._commit(topic.name, self.rng.randrange(topic.partitions_min))
            if self.rng.random() < 0.2:
                await self.check(at_least=False)
            await asyncio.sleep(self.rng.choice((0.01, 0.05, 0.2)))
        self.cluster.close()

    async def _ask(self, message: Any, version: int) -> Any:
        """Ask the coordinator; Lost if there is none, or it does not answer."""
        if self._coordinator is None:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
            response = await self.cluster.ask(self.cluster.any_broker(), request, 4)
            found = response.coordinators[0]
            if found.error_code:
                error = ErrorCode(found.error_code)
                require(error in NOT_NOW, f"FindCoordinator was answered {error.name}")
                raise Lost(error.name)
            self._coordinator = found.node_id
        try:
            return await self.cluster.ask(self._coordinator, message, version)
        except Lost:
            self._coordinator = None
            raise

    async def _commit(self, name: str, index: int) -> None:
        committed = self.world.history.commits(self.group, name, index)
        number = committed.next()
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=number, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])
        request = OffsetCommitRequest(group_id=self.group, topics=[topic])
        try:
            response = await self._ask(request, 8)
        except Lost:
            await asyncio.sleep(PAUSE_S)
            return
        error = ErrorCode(response.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            committed.acked = max(committed.acked, number)
            self.world.history.count("offsets committed")
            return
        require(error in NOT_NOW, f"OffsetCommit was answered {error.name}")
        self._coordinator = None
        await asyncio.sleep(PAUSE_S)

    async def check(self, *, at_least: bool = True) -> None:
        """What is committed is no older than what was acknowledged before asking.

        Not `at_least` that while there are faults: who was coordinator may not know of its end.
        """
        acked = {
            (name, index): committed.acked
            for (group, name, index), committed in self.world.history.committed.items()
            if group == self.group and committed.acked >= 0
        }
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[index])
            for name, index in acked
        ]
        if not topics:
            return
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        while True:
            try:
                response = (await self._ask(OffsetFetchRequest(groups=[group]), 8)).groups[0]
            except Lost:
                await asyncio.sleep(PAUSE_S)
                continue
            error = ErrorCode(response.error_code)
            if error is ErrorCode.NONE:
                break
            require(error in NOT_NOW, f"OffsetFetch was answered {error.name}")
            self._coordinator = None
            await asyncio.sleep(PAUSE_S)
        for topic in response.topics:
            for answer in topic.partitions:
                key = (topic.name, answer.partition_index)
                tried = self.world.history.commits(self.group, *key).tried
                require(
                    (acked[key] if at_least else -1) <= answer.committed_offset <= tried,
                    f"{self.group} committed {acked[key]} to {key}, tried {tried}, and has"
                    f" {answer.committed_offset}",
                )
