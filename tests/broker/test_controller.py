"""The controller over a real metadata log on the simulated disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.metadata import DIRECTORY_ID, NODE_ID, Metadata
from tidelog.cluster.controller.configs import SET, Change, Resource
from tidelog.cluster.controller.controller import REPLICAS_AT_ONCE
from tidelog.cluster.controller.topics import Creation
from tidelog.cluster.metadata.image import ClusterImage
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tidelog_protocol.messages.controller import AllocateProducerIdsRequest
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1
            )
            for name in names
        ]
    )


def deletion(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    )


def running(
    test: Callable[[Metadata], Coroutine[None, None, None]],
) -> Callable[[], None]:
    """Run a test on a registered broker."""

    def run() -> None:
        async def start() -> None:
            metadata = Metadata()
            await metadata.register()
            await test(metadata)

        asyncio.run(start())

    run.__name__ = test.__name__
    return run


@running
async def test_registration(metadata: Metadata) -> None:
    broker = metadata.log.image.brokers[NODE_ID]
    assert (broker.host, broker.port, broker.log_dirs) == ("127.0.0.1", 9092, (DIRECTORY_ID,))
    assert not broker.fenced
    assert metadata.log.image.is_alive(NODE_ID)
    assert metadata.log.image.controller_id == NODE_ID


@running
async def test_a_new_incarnation_leads_in_new_epochs(metadata: Metadata) -> None:
    await metadata.controller.create_topics(creation("t", partitions=2))
    first = metadata.log.image.brokers[NODE_ID]
    metadata.disk.kill()
    metadata.start()
    await metadata.register()
    image = metadata.log.image
    second = image.brokers[NODE_ID]
    assert second.epoch > first.epoch
    assert second.incarnation_id != first.incarnation_id
    for partition in image.topics["t"].partitions:
        # The registration ends one leadership, the first heartbeat begins the next.
        assert (partition.leader, partition.leader_epoch) == (NODE_ID, 2)
        assert partition.isr == (NODE_ID,)


@running
async def test_partitions_without_a_leader_are_taken_over(metadata: Metadata) -> None:
    await metadata.controller.create_topics(creation("in", "out"))
    ids = {name: topic.topic_id for name, topic in metadata.log.image.topics.items()}
    change = tables.PartitionChangeRecord
    await metadata.log.commit(
        [
            change(partition_id=0, topic_id=ids["in"], leader=-1, isr=[], last_known_elr=[NODE_ID]),
            change(partition_id=0, topic_id=ids["out"], leader=-1, isr=[]),
        ]
    )
    await metadata.close()
    metadata.start()
    await metadata.register()
    topics = metadata.log.image.topics
    assert topics["in"].partitions[0].leader == NODE_ID
    assert topics["out"].partitions[0].leader == -1, "nothing says that it has all records"


@running
async def test_created_grown_deleted(metadata: Metadata) -> None:
    controller = metadata.controller
    created = await controller.create_topics(creation("t"))
    assert created.topics[0].error_code == ErrorCode.NONE
    assert metadata.log.image.topics["t"].topic_id == created.topics[0].topic_id
    grown = await controller.create_partitions(
        CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
            ]
        )
    )
    assert grown.results[0].error_code == ErrorCode.NONE
    assert len(metadata.log.image.topics["t"].partitions) == 3
    deleted = await controller.delete_topics(deletion("t"), 6)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    assert metadata.log.image.topics == {}
    metadata.disk.power_failure()
    metadata.start()
    assert metadata.log.image.topics == {}


@running
async def test_requests_at_once_see_each_other(metadata: Metadata) -> None:
    metadata.executor.hold()
    tasks = [
        asyncio.ensure_future(metadata.controller.create_topics(creation("same"))) for _ in range(3)
    ]
    for _ in range(4):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks), "not even the refusals, which saw the first"
    metadata.executor.release()
    codes = [(await task).topics[0].error_code for task in tasks]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


@pytest.fixture
def steps_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.cluster.controller.controller.TOPICS_AT_ONCE", 2)


@pytest.mark.usefixtures("steps_of_two")
@running
async def test_many_topics_are_made_in_steps_and_others_may_come_between(
    metadata: Metadata,
) -> None:
    """5,000 topics of one request held the loop for 0.9 s of CPU time."""
    create = metadata.controller.create_topics
    many = asyncio.ensure_future(create(creation("a.b", "t1", "a_b", "t3", "t4", "twice", "twice")))
    await asyncio.sleep(0)
    between = await create(creation("t3"))
    assert between.topics[0].error_code == ErrorCode.NONE
    codes = {topic.name: topic.error_code for topic in (await many).topics}
    assert codes.pop("t3") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert codes.pop("twice") == ErrorCode.INVALID_REQUEST
    # Names of one request do not collide with each other, but with those of before.
    assert codes == dict.fromkeys(("a.b", "t1", "a_b", "t4"), ErrorCode.NONE)
    later = await create(creation("t5", "t6", "a.b", "t_3"))
    assert [topic.error_code for topic in later.topics] == [0, 0, 36, 0]
    asked = creation("u1", "u2", "u3")
    asked.validate_only = True
    assert {topic.error_code for topic in (await create(asked)).topics} == {ErrorCode.NONE}
    assert sorted(metadata.log.image.topics) == sorted(
        ["a.b", "a_b", "t1", "t3", "t4", "t5", "t6", "t_3"]
    )


def test_topics_of_many_replicas_are_made_in_smaller_steps() -> None:
    asked = creation(*(f"t{number}" for number in range(5)))
    for topic, (partitions, factor) in zip(
        asked.topics, ((3, 1), (1, 3), (2, 2), (50, 1), (-1, -1)), strict=True
    ):
        topic.num_partitions, topic.replication_factor = partitions, factor
    metadata = Metadata()
    left = Creation(asked, metadata.config, metadata.rng)
    counts = []
    while not left.is_over:
        counts.append(left.count_within(3, 6))
        left.step(ClusterImage("c"), counts[-1])
    assert counts == [2, 1, 1, 3]
    assert Creation(asked, metadata.config, metadata.rng).count_within(3, 100) == 3


def test_deletion_may_be_switched_off() -> None:
    async def run() -> None:
        metadata = Metadata(delete_topic_enable="false")
        await metadata.register()
        await metadata.controller.create_topics(creation("t"))
        for version, code in ((2, ErrorCode.INVALID_REQUEST), (6, 73)):
            response = await metadata.controller.delete_topics(deletion("t"), version)
            assert response.responses[0].error_code == code
        assert "t" in metadata.log.image.topics

    asyncio.run(run())


@running
async def test_settings(metadata: Metadata) -> None:
    resource = Resource(4, "", [Change("log.retention.ms", SET, "5")], replaces=False)
    alter = metadata.controller.alter_configs
    first = {"": {"min.insync.replicas": "1"}}
    (result,) = await alter([resource], validate_only=True)
    assert (result.code, metadata.log.image.broker_configs) == (ErrorCode.NONE, first)
    await alter([resource], validate_only=False)
    assert metadata.log.image.broker_configs == {"": {**first[""], "log.retention.ms": "5"}}


@running
async def test_producer_ids_never_come_twice(metadata: Metadata) -> None:
    async def allocate() -> range:
        request = AllocateProducerIdsRequest(
            broker_id=NODE_ID, broker_epoch=metadata.log.image.brokers[NODE_ID].epoch
        )
        response = await metadata.controller.allocate_producer_ids_for(request)
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    blocks = await asyncio.gather(*(allocate() for _ in range(3)))
    assert blocks == [range(1000), range(1000, 2000), range(2000, 3000)]
    metadata.disk.power_failure()
    metadata.start()
    await metadata.register()
    assert await allocate() == range(3000, 4000)


@running
async def test_nothing_is_promised_that_is_not_written(metadata: Metadata) -> None:
    metadata.executor.error = OSError("gone")
    with pytest.raises(StorageError):
        await metadata.controller.create_topics(creation("t"))
    assert metadata.log.image.topics == {}


@running
async def test_a_large_topic_is_decided_again_if_others_changed_the_metadata(
    metadata: Metadata,
) -> None:
    """Between its decision and its record others have a turn."""
    controller, wide = metadata.controller, 2 * REPLICAS_AT_ONCE
    large = asyncio.create_task(controller.create_topics(creation("a", partitions=wide)))
    small = asyncio.create_task(controller.create_topics(creation("a")))
    codes = [answer.topics[0].error_code for answer in await asyncio.gather(large, small)]
    assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]
    assert len(metadata.log.image.topics["a"].partitions) == 1

    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=wide, assignments=None)
    large_growth = asyncio.create_task(
        controller.create_partitions(CreatePartitionsRequest(topics=[grown]))
    )
    small = asyncio.create_task(controller.create_topics(creation("b")))
    answer, _ = await asyncio.gather(large_growth, small)
    assert answer.results[0].error_code == ErrorCode.NONE
    assert len(metadata.log.image.topics["a"].partitions) == wide
