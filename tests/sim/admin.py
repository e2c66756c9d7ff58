"""The admin client: creates, grows and deletes topics, deletes records, looks at the metadata."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.history import TopicHistory, Violation, require
from sim.wire import Client, Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.data import DeleteRecordsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping
    from typing import Any

    from sim.history import PartitionHistory
    from sim.world import World
    from tidelog_protocol.schema import Message

BUSY = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})


def random_topic_config(rng: random.Random) -> dict[str, str]:
    """Small segments in all their kinds; durable, lazily flushed or forgetful."""
    config = {
        "index.interval.bytes": str(rng.choice((0, 100, 1000))),
        "internal.segment.bytes": str(rng.choice((2500, 6000, 1 << 20))),
    }
    if rng.random() < 0.3:
        config["segment.ms"] = str(rng.choice((300, 1000)))
    flush = rng.random()
    if flush < 0.35:
        config["flush.messages"] = "1"
    elif flush < 0.5:
        config["flush.messages"] = "5"
    elif flush < 0.75:
        config["flush.ms"] = str(rng.choice((200, 1000)))
    if rng.random() < 0.25:
        config["retention.bytes"] = "4000"
        config["file.delete.delay.ms"] = "300"
    return config


async def until_known(
    ask: Callable[[], Awaitable[Any]],
    pick: Callable[[Any], Any],
    *,
    later: Container[int],
    pause_s: float,
) -> tuple[Any, bool]:
    """Ask until what is picked of the answer is no passing trouble (`later`); whether it was asked
    again."""
    retried = False
    while True:
        try:
            result = pick(await ask())
            if result.error_code not in later:
                return result, retried
        except Lost:
            pass
        retried = True
        await asyncio.sleep(pause_s)


def creatable_topic(
    name: str, partitions: int, replicas: int, config: Mapping[str, str]
) -> CreateTopicsRequest.CreatableTopic:
    """A topic as CreateTopics wants it."""
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in config.items()
        ],
    )


def random_records_deletion(
    rng: random.Random, topics: list[TopicHistory]
) -> tuple[PartitionHistory, int, DeleteRecordsRequest]:
    """To move the log start of some partition up to some acknowledged offset."""
    topic = rng.choice(topics)
    partition = topic.partition(rng.randrange(topic.partitions_min))
    return records_deletion(partition, rng.randint(0, partition.acked_end))


def records_deletion(
    partition: PartitionHistory, offset: int
) -> tuple[PartitionHistory, int, DeleteRecordsRequest]:
    """To move the log start of this partition up to this offset."""
    topic = partition.topic
    partition.delete_bound = max(partition.delete_bound, offset)
    asked = DeleteRecordsRequest.DeleteRecordsPartition(
        partition_index=partition.index, offset=offset
    )
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic.name, partitions=[asked])],
        timeout_ms=2000,
    )
    return partition, offset, request


def check_deleted(partition: PartitionHistory, offset: int, low_watermark: int) -> None:
    """The log start that DeleteRecords answered."""
    has_retention = partition.topic.has_retention
    require(
        offset <= low_watermark and (has_retention or low_watermark <= partition.delete_bound),
        f"{partition}: records below {offset} deleted, low {low_watermark}",
    )


class Admin:
    """One client, one operation at a time, each retried until its outcome is known."""

    def __init__(self, world: World, operations: int) -> None:
        self.world, self.operations = world, operations
        self.rng = random.Random(f"{world.seed}:admin")
        self.client = Client(world.machine, "admin")
        self._number = 0

    async def create_base_topics(self) -> list[TopicHistory]:
        """The topics that stay."""
        return [
            await self.create(f"base-{index}", self.rng.randint(1, 2))
            for index in range(self.rng.randint(1, 3))
        ]

    async def run(self) -> None:
        """Do this and that."""
        choices = (self._create_extra, self._delete_extra, self._grow, self._delete_records)
        for _ in range(self.operations):
            await asyncio.sleep(self.rng.uniform(0.02, 0.4))
            await self.rng.choice((*choices, self.check_metadata))()
        await self.check_metadata()
        self.client.close()

    async def _until_known(self, message: Message, version: int, pick: Any) -> tuple[Any, bool]:
        return await until_known(
            lambda: self.client.ask(message, version), pick, later=BUSY, pause_s=0.05
        )

    def _extras(self) -> list[TopicHistory]:
        return [t for t in self.world.history.existing() if t.name.startswith("extra")]

    # -- topics ------------------------------------------------------------------------------------

    async def create(self, name: str, partitions: int) -> TopicHistory:
        """Create a topic of a new name."""
        config = random_topic_config(self.rng)
        topic = creatable_topic(name, partitions, 1, config)
        result, retried = await self._until_known(
            CreateTopicsRequest(topics=[topic]), 7, lambda response: response.topics[0]
        )
        topic_id = result.topic_id
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and retried:
            topic_id = (await self._metadata())[name].topic_id
        elif result.error_code != ErrorCode.NONE:
            raise Violation(f"CreateTopics {name}: {ErrorCode(result.error_code).name}")
        history = self.world.history
        require(topic_id not in history.topics, f"{name} got the id of another topic")
        history.topics[topic_id] = TopicHistory(name, topic_id, partitions, config)
        history.count("topics created")
        return history.topics[topic_id]

    async def _create_extra(self) -> None:
        # A name may come back: its topic is another one then.
        used = {topic.name for topic in self.world.history.existing()}
        free = [name for name in ("extra-0", "extra-1", "extra-2") if name not in used]
        if free:
            await self.create(self.rng.choice(free), self.rng.randint(1, 2))

    async def _delete_extra(self) -> None:
        if not self._extras():
            return
        topic = self.rng.choice(self._extras())
        topic.state = "deleting"
        by_id = self.rng.random() < 0.5
        state = DeleteTopicsRequest.DeleteTopicState(
            name=None if by_id else topic.name, topic_id=topic.topic_id if by_id else bytes(16)
        )
        result, retried = await self._until_known(
            DeleteTopicsRequest(topics=[state], timeout_ms=5000),
            6,
            lambda response: response.responses[0],
        )
        error = ErrorCode(result.error_code)
        gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        require(
            error is ErrorCode.NONE or (retried and error in gone),
            f"DeleteTopics {topic.name}: {error.name}",
        )
        topic.state = "gone"
        self.world.history.count("topics deleted")

    async def _grow(self) -> None:
        if not self._extras():
            return
        topic = self.rng.choice(self._extras())
        count = topic.partitions_max = topic.partitions_min + 1
        asked = CreatePartitionsRequest.CreatePartitionsTopic(
            name=topic.name, count=count, assignments=None
        )
        result, retried = await self._until_known(
            CreatePartitionsRequest(topics=[asked], timeout_ms=5000, validate_only=False),
            3,
            lambda response: response.results[0],
        )
        error = ErrorCode(result.error_code)
        require(
            error is ErrorCode.NONE or (retried and error is ErrorCode.INVALID_PARTITIONS),
            f"CreatePartitions {topic.name}: {error.name}",
        )
        topic.partitions_min = count

    # -- records -----------------------------------------------------------------------------------

    async def _delete_records(self) -> None:
        partition, offset, request = random_records_deletion(self.rng, self.world.base_topics)
        result, _ = await self._until_known(
            request, 2, lambda response: response.topics[0].partitions[0]
        )
        error = ErrorCode(result.error_code)
        if error is ErrorCode.NONE:
            check_deleted(partition, offset, result.low_watermark)
            self.world.history.count("records deleted")
        else:
            require(
                error is ErrorCode.OFFSET_OUT_OF_RANGE and self.world.history.power_failures,
                f"DeleteRecords {partition} to {offset}: {error.name}",
            )

    # -- metadata ----------------------------------------------------------------------------------

    async def _metadata(self) -> dict[str, Any]:
        while True:
            try:
                response = await self.client.ask(MetadataRequest(topics=None), 12)
            except Lost:
                await asyncio.sleep(0.05)
                continue
            return {topic.name: topic for topic in response.topics}

    async def check_metadata(self) -> None:
        """Topics that were created are there, deleted ones are not."""
        found = await self._metadata()
        counts = {topic.topic_id: len(topic.partitions) for topic in found.values()}
        self.world.check_topics(counts, "Metadata")
