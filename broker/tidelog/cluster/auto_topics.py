"""Automatic creation of topics: those that a client names first, and Kafka's own.

It chooses their settings and creates each only once at a time. The Metadata and group APIs call it.
`create_topics` is injected: the local controller or a forwarder.
"""

# ruff: noqa: PLC0415 - the tables of admin requests are imported by the first of them

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import (
    GROUP_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.admin import CreateTopicsRequest, CreateTopicsResponse

__all__ = ["AutoTopics"]

_log = logging.getLogger(__name__)


class AutoTopics:
    """Creates topics by name, with the broker's defaults. `_creating` are the creations in
    progress."""

    def __init__(
        self,
        create_topics: Callable[[CreateTopicsRequest], Awaitable[CreateTopicsResponse]],
        config: BrokerConfig,
    ) -> None:
        self._create_topics = create_topics
        self._config = config
        self._creating: dict[str, asyncio.Task[ErrorCode]] = {}
        self._requests: dict[asyncio.Task[None], None] = {}
        self._is_ending = False

    def start_auto_creation(self, name: str) -> bool:
        """Begin to create a topic with the broker's defaults; False if that has already begun.

        This never creates the metadata topic of the remote tier: only the tier does, because
        brokers refuse one with another number of partitions than configured.
        """
        if name in self._creating or name == REMOTE_LOG_METADATA_TOPIC:
            return False
        self._start(name, None)
        return True

    def _start(self, name: str, topic: CreateTopicsRequest.CreatableTopic | None) -> None:
        task = asyncio.get_running_loop().create_task(
            self._create(name, topic), name=f"auto-create-{name}"
        )
        self._creating[name] = task
        task.add_done_callback(lambda _: self._creating.pop(name, None))

    async def create(self, topic: CreateTopicsRequest.CreatableTopic) -> ErrorCode:
        """Create an internal topic with these settings; NONE also if it exists already."""
        if topic.name not in self._creating:
            self._start(topic.name, topic)
        return await asyncio.shield(self._creating[topic.name])

    def create_all(
        self,
        topics: Sequence[CreateTopicsRequest.CreatableTopic],
        on_done: Callable[[Mapping[str, str]], None],
    ) -> None:
        """Begin to create topics with these settings by one request. `on_done` is called once, with
        the reason for each topic that could not be created."""
        task = asyncio.get_running_loop().create_task(
            self._create_all(topics, on_done), name=f"auto-create-{topics[0].name}"
        )
        self._requests[task] = None
        task.add_done_callback(self._requests.pop)

    async def _create_all(
        self,
        topics: Sequence[CreateTopicsRequest.CreatableTopic],
        on_done: Callable[[Mapping[str, str]], None],
    ) -> None:
        from tidelog_protocol.messages.admin import CreateTopicsRequest

        try:
            response = await self._create_topics(CreateTopicsRequest(topics=[*topics]))
        except Exception as error:  # noqa: BLE001 - no caller awaits this task
            reasons = dict.fromkeys((each.name for each in topics), str(error) or repr(error))
        else:
            reasons = {
                each.name: each.error_message or ErrorCode(each.error_code).name
                for each in response.topics
                if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            }
        level = logging.DEBUG if self._is_ending else logging.WARNING
        for name, reason in reasons.items():
            _log.log(level, "topic %s was not created: %s", name, reason)
        on_done(reasons)

    async def auto_create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics with the broker's defaults, internal ones with their own settings; wait for
        it.

        NONE also for those that exist already.
        """
        results = {}
        for name in names:
            self.start_auto_creation(name)
            results[name] = await asyncio.shield(self._creating[name])
        return results

    async def _create(
        self, name: str, topic: CreateTopicsRequest.CreatableTopic | None
    ) -> ErrorCode:
        from tidelog_protocol.messages.admin import CreateTopicsRequest

        topic = topic or self._automatic_topic(name)
        try:
            response = await self._create_topics(CreateTopicsRequest(topics=[topic]))
        except Exception as error:  # noqa: BLE001 - no caller may await this task
            level = logging.DEBUG if self._is_ending else logging.ERROR
            _log.log(level, "automatic creation of topic %s failed: %s", name, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        result = response.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            _log.warning("topic %s was not created: %s", name, result.error_message)
            return ErrorCode(result.error_code)
        return ErrorCode.NONE

    def _automatic_topic(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        from tidelog_protocol.messages.admin import CreateTopicsRequest

        config = self._config
        if name == GROUP_METADATA_TOPIC:
            partitions = config.offsets_topic_num_partitions
            factor = config.offsets_topic_replication_factor
            settings = {
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
        elif name == TRANSACTION_STATE_TOPIC:
            partitions = config.transaction_state_log_num_partitions
            factor = config.transaction_state_log_replication_factor
            settings = {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            }
        elif name == SHARE_GROUP_STATE_TOPIC:
            partitions = config.share_coordinator_state_topic_num_partitions
            factor = config.share_coordinator_state_topic_replication_factor
            settings = {
                "compression.type": "producer",
                "cleanup.policy": "delete",  # the coordinator deletes what no state needs
                "retention.ms": "-1",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            }
        else:
            # -1: what is not set here is the controller's.
            given = config.given
            partitions = config.num_partitions if "num.partitions" in given else -1
            is_factor_given = "default.replication.factor" in given
            factor = config.default_replication_factor if is_factor_given else -1
            settings = {}
        return CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in settings.items()
            ],
        )

    def end(self) -> None:
        """Report no more failures: the broker ends, and clients ask another one."""
        self._is_ending = True

    async def close(self) -> None:
        """Wait for topics being created."""
        creating = [*self._creating.values(), *self._requests]
        if creating:
            await asyncio.wait(creating)
