"""Has `__remote_log_metadata` when a broker with a remote tier starts: finds it or creates it
(Kafka's TopicBasedRemoteLogMetadataManager.initializeResources)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.remote.metadata_settings import MetadataSettings
from tidelog.start_error import StartError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.remote.metadata_client import MetadataTopicClient
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.admin import CreateTopicsRequest

__all__ = ["Creation"]


class Creation:
    """Of the topic, as `settings` want it."""

    def __init__(
        self,
        client: MetadataTopicClient,
        create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure`: the topic can't be had, and the broker must stop."""
        self.settings = MetadataSettings.of({})
        self._client = client
        self._create_topic = create_topic
        self._on_failure = on_failure

    async def find(self, pause_s: float, seconds_max: float) -> bool:
        """Return when the topic is there; False if there is none, or another, and that was told."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds_max
        why = ""
        while not self._client.partition_count:
            if loop.time() >= deadline:
                self._on_failure(StartError(f"{self._client.name} was not created: {why}"))
                return False
            brokers, replicas = self._client.broker_count, self.settings.replication_factor
            if brokers < replicas:  # while a cluster starts, the others are about to come
                why = f"it is to have {replicas} replicas, and there are {brokers} brokers"
            else:
                topic = self.settings.topic(self._client.name)
                why = (await self._create_topic(topic)).name
            if not self._client.partition_count:
                await asyncio.sleep(pause_s)
        return self.has_right_count()

    def has_right_count(self) -> bool:
        """Whether the topic has as many partitions as it should; False was told."""
        count, wanted = self._client.partition_count, self.settings.partition_count
        if count == wanted:
            return True
        text = (
            f"{self._client.name} has {count} partitions, and"
            f" remote.log.metadata.topic.num.partitions is {wanted}: this number cannot change"
        )
        self._on_failure(StartError(text))
        return False
