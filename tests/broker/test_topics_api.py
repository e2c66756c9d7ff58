"""CreateTopics, DeleteTopics, CreatePartitions in every version, over a real metadata log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.handler_calls import make_context
from support.metadata import Metadata
from tidelog.api.topics import TopicsApi
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

if TYPE_CHECKING:
    from tidelog_protocol.schema import Message


async def call(api: TopicsApi, key: ApiKey, version: int, request: Message) -> Any:
    """Through both codecs of a version, as a client would."""
    served = API[key]
    request = served.request_codec(version).decode(served.request_codec(version).encode(request))
    response = await api.handlers()[key](make_context(key, version), request)
    return served.response_codec(version).decode(served.response_codec(version).encode(response))


def creation(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


async def started(**settings: str) -> tuple[Metadata, TopicsApi]:
    metadata = Metadata(**settings)
    await metadata.register()
    return metadata, TopicsApi(metadata.controller)


@pytest.mark.parametrize("version", range(2, 8))
def test_create(version: int) -> None:
    async def run() -> None:
        metadata, api = await started()
        (made,) = (await call(api, ApiKey.CREATE_TOPICS, version, creation("t"))).topics
        assert (made.name, made.error_code, made.error_message) == ("t", 0, None)
        if version >= 5:
            assert (made.num_partitions, made.replication_factor) == (1, 1)
            assert made.topic_config_error_code == 0
            assert len(made.configs) > 30
        if version >= 7:
            assert made.topic_id == metadata.log.image.topics["t"].topic_id
        (again,) = (await call(api, ApiKey.CREATE_TOPICS, version, creation("t"))).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert again.error_message == "Topic 't' already exists."
        assert again.configs == []
        assert (await call(api, ApiKey.CREATE_TOPICS, version, CreateTopicsRequest())).topics == []

    asyncio.run(run())


@pytest.mark.parametrize("version", range(1, 7))
def test_delete(version: int) -> None:
    async def run() -> None:
        metadata, api = await started()
        await call(api, ApiKey.CREATE_TOPICS, 7, creation("t"))
        topic_id = metadata.log.image.topics["t"].topic_id
        request = (
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in ("t", "nix")],
                timeout_ms=60_000,
            )
            if version >= 6
            else DeleteTopicsRequest(topic_names=["t", "nix"], timeout_ms=60_000)
        )
        gone, unknown = (await call(api, ApiKey.DELETE_TOPICS, version, request)).responses
        assert (gone.name, gone.error_code, gone.error_message) == ("t", 0, None)
        assert (unknown.name, unknown.error_code) == ("nix", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if version >= 5:
            text = "This server does not host this topic-partition."
            assert unknown.error_message == text
        if version >= 6:
            assert gone.topic_id == topic_id
        assert metadata.log.image.topics == {}

    asyncio.run(run())


@pytest.mark.parametrize("version", [2, 3, 6])
def test_delete_switched_off(version: int) -> None:
    async def run() -> None:
        metadata, api = await started(delete_topic_enable="false")
        await call(api, ApiKey.CREATE_TOPICS, 7, creation("t"))
        request = DeleteTopicsRequest(
            topic_names=["t"],
            topics=[DeleteTopicsRequest.DeleteTopicState(name="t")],
            timeout_ms=60_000,
        )
        (refused,) = (await call(api, ApiKey.DELETE_TOPICS, version, request)).responses
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert (refused.name, refused.error_code) == ("t", code)
        assert "t" in metadata.log.image.topics

    asyncio.run(run())


@pytest.mark.parametrize("version", range(4))
def test_grow(version: int) -> None:
    async def run() -> None:
        metadata, api = await started()
        await call(api, ApiKey.CREATE_TOPICS, 7, creation("t"))
        topics = [
            CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3, assignments=None)
            for name in ("t", "nix")
        ]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=60_000)
        grown, unknown = (await call(api, ApiKey.CREATE_PARTITIONS, version, request)).results
        assert (grown.name, grown.error_code, grown.error_message) == ("t", 0, None)
        assert (unknown.error_code, unknown.error_message) == (3, None)
        assert len(metadata.log.image.topics["t"].partitions) == 3

    asyncio.run(run())


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_time_nothing_is_done(timeout_ms: int) -> None:
    """Kafka's controller drops such a request unread, invalid entries with the others."""

    async def run() -> None:
        metadata, api = await started()
        await call(api, ApiKey.CREATE_TOPICS, 7, creation("t"))
        before = metadata.log.image
        late = ErrorCode.REQUEST_TIMED_OUT

        create = CreateTopicsRequest(
            topics=[*creation("new").topics, *creation("bad name").topics], timeout_ms=timeout_ms
        )
        made = await call(api, ApiKey.CREATE_TOPICS, 7, create)
        assert [(r.name, r.error_code, r.error_message) for r in made.topics] == [
            ("new", late, None),
            ("bad name", late, None),
        ]
        assert [(r.num_partitions, r.replication_factor) for r in made.topics] == [(-1, -1)] * 2
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)],
            timeout_ms=timeout_ms,
        )
        grown = await call(api, ApiKey.CREATE_PARTITIONS, 3, grow)
        assert [(r.name, r.error_code) for r in grown.results] == [("t", late)]
        Topic = DeleteTopicsRequest.DeleteTopicState  # noqa: N806 - a class
        some_id = bytes(range(16))
        delete = DeleteTopicsRequest(
            topics=[Topic(name="t"), Topic(name=None, topic_id=some_id)], timeout_ms=timeout_ms
        )
        deleted = await call(api, ApiKey.DELETE_TOPICS, 6, delete)
        assert [(r.name, r.topic_id, r.error_code) for r in deleted.responses] == [
            ("t", bytes(16), late),
            (None, some_id, late),
        ]
        delete = DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms)
        deleted = await call(api, ApiKey.DELETE_TOPICS, 5, delete)
        assert [(r.name, r.error_code) for r in deleted.responses] == [("t", late)]
        assert metadata.log.image is before

        for key, version, empty in (
            (ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(timeout_ms=timeout_ms)),
            (ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(timeout_ms=timeout_ms)),
            (ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(timeout_ms=timeout_ms)),
        ):
            answer = await call(api, key, version, empty)
            assert not any(getattr(answer, name, ()) for name in ("topics", "results", "responses"))

    asyncio.run(run())


def test_a_broken_disk_is_reported_for_every_entry() -> None:
    async def run() -> None:
        metadata, api = await started()
        metadata.executor.error = OSError("gone")
        made = await call(api, ApiKey.CREATE_TOPICS, 7, creation("t"))
        assert [r.error_code for r in made.topics] == [ErrorCode.KAFKA_STORAGE_ERROR]
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)],
            timeout_ms=60_000,
        )
        grown = await call(api, ApiKey.CREATE_PARTITIONS, 3, grow)
        assert [r.error_code for r in grown.results] == [ErrorCode.KAFKA_STORAGE_ERROR]
        delete = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=60_000
        )
        deleted = await call(api, ApiKey.DELETE_TOPICS, 6, delete)
        assert [r.error_code for r in deleted.responses] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert metadata.log.image.topics == {}

    asyncio.run(run())
