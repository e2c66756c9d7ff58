"""The admin client of a cluster: topics that come, grow, go and come back; records that go."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.admin import (
    check_deleted,
    creatable_topic,
    random_records_deletion,
    random_topic_config,
    records_deletion,
    until_known,
)
from sim.cluster.client import PAUSE_S, ClusterClient
from sim.history import TopicHistory, Violation, require
from sim.wire import Lost
from tidelog.simulation.machines import replication_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tidelog_protocol.messages.cluster import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.cluster.world import ClusterWorld
    from sim.history import PartitionHistory
    from tidelog_protocol.messages.data import DeleteRecordsRequest
    from tidelog_protocol.schema import Message

LATER = frozenset(
    {
        ErrorCode.INVALID_REPLICATION_FACTOR,  # too few brokers are unfenced
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
NOT_LED = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,  # a new leader does not know yet how much is committed
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
PARTITIONS_MAX = 4
EXTRAS = ("extra-0", "extra-1", "extra-2")


class AdminClient:
    """Asks until the outcome is known."""

    def __init__(self, world: ClusterWorld, name: str) -> None:
        self.world = world
        self.rng = random.Random(f"{world.seed}:{name}")
        self.cluster = ClusterClient(world.machines, name, self.rng)

    async def until_known(
        self, message: Message, version: int, pick: Callable[[Any], Any]
    ) -> tuple[Any, bool]:
        """Ask any broker until the answer is no passing trouble; whether it was asked again."""
        return await until_known(
            lambda: self.cluster.ask(self.cluster.any_broker(), message, version),
            pick,
            later=LATER,
            pause_s=PAUSE_S,
        )


class ClusterAdmin(AdminClient):
    """One operation at a time. A request that was lost may still be done late, so topics that may
    come back under their name are deleted by id, and no records of theirs."""

    def __init__(self, world: ClusterWorld, operations: int) -> None:
        super().__init__(world, "admin")
        self.operations = operations

    async def create_base_topics(self) -> list[TopicHistory]:
        """The topics that everybody uses."""
        return [
            await self.create(f"base-{index}", self.rng.randint(1, 3))
            for index in range(self.rng.randint(1, 2))
        ]

    async def run(self) -> None:
        """This and that."""
        work = (self._create_extra, self._delete_extra, self._grow, self._delete_records)
        for _ in range(self.operations):
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            await self.rng.choice((*work, self._create_extra, self.check_metadata))()
        await self.check_metadata()
        self.cluster.close()

    # -- topics ------------------------------------------------------------------------------------

    def _extras(self) -> list[TopicHistory]:
        return [t for t in self.world.history.existing() if t.name in EXTRAS]

    async def create(self, name: str, partitions: int) -> TopicHistory:
        """Create a topic, whose name no other has now."""
        factor, min_isr = replication_of(self.world.machines.voters)
        # By name: an earlier request of ours may be done late, and the topic is as that one says.
        rng = random.Random(f"{self.world.seed}:{name}")
        factor = rng.randint(min(2, factor), factor)
        least = {"min.insync.replicas": str(min_isr)}
        own = self.world.work.topic_config(name)
        if own is not None:
            config = {**own, **least}
        else:
            config = self.world.tier.topic_config(name, {**random_topic_config(rng), **least})
        topic = creatable_topic(name, partitions, factor, config)
        result, _ = await self.until_known(
            CreateTopicsRequest(topics=[topic], timeout_ms=3000), 7, lambda r: r.topics[0]
        )
        error = ErrorCode(result.error_code)
        topic_id = bytes(result.topic_id)
        if error is ErrorCode.TOPIC_ALREADY_EXISTS:  # brokers that forward ask again, too
            topic_id, partitions = await self._existing(name)
        elif error is not ErrorCode.NONE:
            raise Violation(f"CreateTopics {name}: {error.name}")
        history = self.world.history
        require(topic_id not in history.topics, f"{name} got the id of another topic")
        came_back = any(known.name == name for known in history.topics.values())
        history.topics[topic_id] = TopicHistory(name, topic_id, partitions, config)
        history.count("topics created again" if came_back else "topics created")
        return history.topics[topic_id]

    async def _existing(self, name: str) -> tuple[bytes, int]:
        """Id and partitions of a topic that is there, and is not one that was deleted."""
        while True:
            response = await self.cluster.ask_any(MetadataRequest(topics=None), 12)
            for topic in response.topics:
                known = self.world.history.topic(topic.topic_id)
                if topic.name == name and known is None:
                    return bytes(topic.topic_id), len(topic.partitions)
            await asyncio.sleep(PAUSE_S)

    async def _create_extra(self) -> None:
        used = {topic.name for topic in self._extras()}
        free = [name for name in EXTRAS if name not in used]
        if free:
            await self.create(self.rng.choice(free), self.rng.randint(1, 2))

    async def _delete_extra(self) -> None:
        if not self._extras():
            return
        topic = self.rng.choice(self._extras())
        await self.delete(topic)
        if self.rng.random() < 0.5:  # back at once, while followers still drop the old one
            await self.create(topic.name, self.rng.randint(1, 2))

    async def delete(self, topic: TopicHistory) -> None:
        """Delete a topic, by its id."""
        topic.state = "deleting"
        state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.topic_id)
        result, _ = await self.until_known(
            DeleteTopicsRequest(topics=[state], timeout_ms=3000), 6, lambda r: r.responses[0]
        )
        error = ErrorCode(result.error_code)
        require(
            error is ErrorCode.NONE or error is ErrorCode.UNKNOWN_TOPIC_ID,
            f"DeleteTopics {topic.name}: {error.name}",
        )
        topic.state = "gone"
        self.world.history.count("topics deleted")

    async def _grow(self) -> None:
        topic = self.rng.choice(self.world.history.existing())
        count = topic.partitions_min + 1
        if count > PARTITIONS_MAX:
            return
        topic.partitions_max = count
        asked = CreatePartitionsRequest.CreatePartitionsTopic(
            name=topic.name, count=count, assignments=None
        )
        request = CreatePartitionsRequest(topics=[asked], timeout_ms=3000, validate_only=False)
        result, _ = await self.until_known(request, 3, lambda r: r.results[0])
        if topic.state != "exists":
            return  # a play has deleted it meanwhile
        error = ErrorCode(result.error_code)
        require(
            error is ErrorCode.NONE or error is ErrorCode.INVALID_PARTITIONS,
            f"CreatePartitions {topic.name}: {error.name}",
        )
        topic.partitions_min = count
        self.world.history.count("topics grown")

    # -- records -----------------------------------------------------------------------------------

    async def _delete_records(self) -> None:
        deletion = random_records_deletion(self.rng, self.world.base_topics)
        await self._until_deleted(*deletion)

    async def delete_all_records(self, partition: PartitionHistory) -> None:
        """Those that are acknowledged."""
        await self._until_deleted(*records_deletion(partition, partition.acked_end))

    async def _until_deleted(
        self, partition: PartitionHistory, offset: int, request: DeleteRecordsRequest
    ) -> None:
        """Move the log start of a partition up, and see that it has moved."""
        for _ in range(10):
            answer = await self._ask_leader(partition, request)
            if answer is None:
                continue
            error = ErrorCode(answer.error_code)
            if error is ErrorCode.NONE:
                check_deleted(partition, offset, answer.low_watermark)
                self.world.promises.records_deleted(partition, offset)
                self.world.history.count("records deleted")
                return
            require(error in NOT_LED, f"DeleteRecords {partition} to {offset}: {error.name}")
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()

    async def _ask_leader(self, partition: PartitionHistory, request: Message) -> Any:
        """The answer of the partition's leader for it; None if there is none."""
        try:
            _, node_id = await self.cluster.leader(partition)
            if node_id < 0:
                raise Lost("no leader")
            response = await self.cluster.ask(node_id, request, 2)
        except Lost:
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()
            return None
        return response.topics[0].partitions[0]

    # -- metadata ----------------------------------------------------------------------------------

    async def check_metadata(self) -> None:
        """Some broker soon knows all topics that were created, and none that was deleted."""
        history = self.world.history
        wanted = {topic.topic_id: topic.partitions_min for topic in history.existing()}
        gone = {topic.topic_id for topic in history.topics.values() if topic.state == "gone"}
        end_s = self.world.loop.time() + 20
        while True:
            response = await self.cluster.ask_any(MetadataRequest(topics=None), 12)
            found = {topic.topic_id: len(topic.partitions) for topic in response.topics}
            missing = [
                key
                for key, count in wanted.items()
                if found.get(key, 0) < count and history.topics[key].state == "exists"
            ]
            back = sorted(gone & found.keys())
            if not missing and not back:
                return
            require(
                self.world.loop.time() < end_s or not self.world.is_quiet,
                f"{len(missing)} topics that were created are not there, {len(back)} that were"
                " deleted are",
            )
            await asyncio.sleep(PAUSE_S)
