"""Finds or creates `__remote_log_metadata` when a broker with a remote tier starts (Kafka:
TopicBasedRemoteLogMetadataManager.initializeResources)."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from tidelog.start_error import StartError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.tiered.metadata.client import MetadataTopicClient
    from tidelog.tiered.metadata.settings import MetadataSettings
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.admin import CreateTopicsRequest

__all__ = ["Creation"]

log = logging.getLogger("tidelog.tiered.metadata")

SILENT_S = 3.0  # brokers of a new cluster start one after the other


class Creation:
    """Creates the topic."""

    def __init__(
        self,
        client: MetadataTopicClient,
        create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` stops the broker, because the topic can't be created or used."""
        self._client = client
        self._create_topic = create_topic
        self._on_failure = on_failure

    async def find(self, settings: MetadataSettings, pause_s: float, seconds_max: float) -> bool:
        """Return when the topic exists. False, after a call of `on_failure`, if it does not after
        `seconds_max`, which may be infinite, or has another number of partitions."""
        loop = asyncio.get_running_loop()
        began, is_warned = loop.time(), False
        while not self._client.partition_count:
            brokers, replicas = self._client.broker_count, settings.replication_factor
            if brokers < replicas:
                why = (
                    f"remote.log.metadata.topic.replication.factor is {replicas},"
                    f" brokers that are registered: {brokers}"
                )
            else:
                why = (await self._create_topic(settings.topic(self._client.name))).name
            if self._client.partition_count:
                break
            waited_s = loop.time() - began
            if waited_s >= seconds_max:
                self._on_failure(StartError(f"{self._client.name} was not created: {why}"))
                return False
            if waited_s >= SILENT_S and not is_warned:
                is_warned = True
                log.warning("%s is not created yet: %s", self._client.name, why)
                if not math.isinf(seconds_max):
                    log.warning("without it the broker stops %g s after its start", seconds_max)
            await asyncio.sleep(pause_s)
        return self.has_right_count(settings)

    def has_right_count(self, settings: MetadataSettings) -> bool:
        """Return whether the number of partitions is right; calls `on_failure` if not."""
        count, wanted = self._client.partition_count, settings.partition_count
        if count == wanted:
            return True
        text = (
            f"{self._client.name} has {count} partitions, and"
            f" remote.log.metadata.topic.num.partitions is {wanted}: this number cannot change"
        )
        self._on_failure(StartError(text))
        return False
