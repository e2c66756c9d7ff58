"""Has `__remote_log_metadata` when a broker with a remote tier starts: finds it or creates it
(Kafka's TopicBasedRemoteLogMetadataManager.initializeResources)."""

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

SILENT_S = 3.0  # brokers of a cluster that starts come one after the other


class Creation:
    """Of the topic."""

    def __init__(
        self,
        client: MetadataTopicClient,
        create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure`: the topic can't be had, and the broker must stop."""
        self._client = client
        self._create_topic = create_topic
        self._on_failure = on_failure

    async def find(self, settings: MetadataSettings, pause_s: float, seconds_max: float) -> bool:
        """Return when the topic is there; False if there is none after `seconds_max`, which may be
        infinite, or one of another number of partitions: that was told."""
        loop = asyncio.get_running_loop()
        began, is_told = loop.time(), False
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
            if waited_s >= SILENT_S and not is_told:
                is_told = True
                log.warning("%s is not created yet: %s", self._client.name, why)
                if not math.isinf(seconds_max):
                    log.warning("without it the broker stops %g s after its start", seconds_max)
            await asyncio.sleep(pause_s)
        return self.has_right_count(settings)

    def has_right_count(self, settings: MetadataSettings) -> bool:
        """Whether the topic has as many partitions as it should; False was told."""
        count, wanted = self._client.partition_count, settings.partition_count
        if count == wanted:
            return True
        text = (
            f"{self._client.name} has {count} partitions, and"
            f" remote.log.metadata.topic.num.partitions is {wanted}: this number cannot change"
        )
        self._on_failure(StartError(text))
        return False
