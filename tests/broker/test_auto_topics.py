"""Topics created on demand, over a real controller and metadata log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import tidelog
from support.clusters import run
from support.metadata import Metadata, broker_config
from tidelog.cluster.auto_topics import AutoTopics
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    import pytest


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
async def test_automatic_creation(metadata: Metadata) -> None:
    results = await metadata.auto_topics.auto_create(["__consumer_offsets", "mine", "a b"])
    assert results == {
        "__consumer_offsets": ErrorCode.NONE,
        "mine": ErrorCode.NONE,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    image = metadata.log.image
    assert len(image.topics["__consumer_offsets"].partitions) == 50
    assert list(image.topic_config("__consumer_offsets").items()) == [
        ("compression.type", "producer"),
        ("cleanup.policy", "compact"),
        ("segment.bytes", "104857600"),
    ]
    assert image.topic_config("mine") == {}
    await metadata.auto_topics.auto_create(["__transaction_state"])
    assert list(metadata.log.image.topic_config("__transaction_state").items()) == [
        ("compression.type", "uncompressed"),
        ("cleanup.policy", "compact"),
        ("min.insync.replicas", "1"),
        ("segment.bytes", "104857600"),
        ("unclean.leader.election.enable", "false"),
    ]
    again = await metadata.auto_topics.auto_create(["mine"])
    assert again == {"mine": ErrorCode.NONE}, "it is there: all the caller asked for"


@running
async def test_automatic_creation_runs_once_at_a_time(metadata: Metadata) -> None:
    metadata.executor.hold()
    topics = metadata.auto_topics
    assert topics.start_auto_creation("t")
    assert not topics.start_auto_creation("t")
    waiting = [asyncio.ensure_future(topics.auto_create(["t"])) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    metadata.executor.release()
    assert await waiting[1] == {"t": ErrorCode.NONE}
    await topics.close()
    assert "t" in metadata.log.image.topics


@running
async def test_automatic_creation_survives_a_broken_log(metadata: Metadata) -> None:
    metadata.executor.error = OSError("gone")
    assert await metadata.auto_topics.auto_create(["t"]) == {"t": ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_creation_that_the_end_of_its_broker_cuts_off_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "tidelog.cluster.auto_topics")

    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            first = cluster.brokers[0].server.metadata  # type: ignore[attr-defined]
            controller = cluster.brokers[first.leader_id - 1]
            other = next(each for each in cluster.brokers if each is not controller)
            topics = other.server._auto_topics  # type: ignore[attr-defined]
            await controller.freeze()
            topics.start_auto_creation("t")
            await asyncio.sleep(0)
            await other.stop(controlled=False)  # type: ignore[call-arg]
            await controller.thaw()

    run(test)
    texts = [(record.levelname, record.exc_info) for record in caplog.records]
    assert texts == [("DEBUG", None)]
    assert "automatic creation of topic t failed" in caplog.text


@running
async def test_the_remote_tier_alone_creates_its_metadata_topic(metadata: Metadata) -> None:
    name = "__remote_log_metadata"
    topics = metadata.auto_topics
    assert not topics.start_auto_creation(name)
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=7,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="retention.ms", value="-1")
        ],
    )
    first, second = await asyncio.gather(topics.create(topic), topics.create(topic))
    assert (first, second) == (ErrorCode.NONE, ErrorCode.NONE)
    assert await topics.create(topic) == ErrorCode.NONE, "it is there"
    image = metadata.log.image
    assert len(image.topics[name].partitions) == 7
    assert image.topic_config(name) == {"retention.ms": "-1"}


@running
async def test_a_controllers_defaults_count_where_the_broker_has_none(metadata: Metadata) -> None:
    asked: list[tuple[int, int]] = []

    async def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        asked.extend((topic.num_partitions, topic.replication_factor) for topic in request.topics)
        response: CreateTopicsResponse = await metadata.controller.create_topics(request)
        return response

    own = broker_config(num_partitions="3", default_replication_factor="1")
    for name, config in (("a", broker_config()), ("b", own)):
        topics = AutoTopics(create, config)
        assert await topics.auto_create([name]) == {name: ErrorCode.NONE}
    assert asked == [(-1, -1), (3, 1)]


@running
async def test_many_topics_by_one_request(metadata: Metadata) -> None:
    table = CreateTopicsRequest.CreatableTopic
    asked = [
        table(name="one", num_partitions=2, replication_factor=-1),
        table(name="a b", num_partitions=1, replication_factor=-1),
    ]
    done: list[Mapping[str, str]] = []
    metadata.auto_topics.create_all(asked, done.append)
    assert done == [], "the caller does not wait"
    await metadata.auto_topics.close()
    (reasons,) = done
    assert reasons.keys() == {"a b"}
    assert "Topic name is invalid" in reasons["a b"]
    assert len(metadata.log.image.topics["one"].partitions) == 2
    metadata.auto_topics.create_all(asked[:1], done.append)
    await metadata.auto_topics.close()
    assert done[-1] == {}, "it exists already"
