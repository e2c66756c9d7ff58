"""The controller: decides operations on the cluster's metadata and commits them, one by one.

The decisions themselves are pure and live in `topic_control`, `topic_deletion` and
`config_control`; here they meet the metadata log. Each is taken against `MetadataLog.latest` and
appended without an await in between, so operations never see each other half done; the answer goes
out when everything the decision saw is on disk, so no client hears of a state that a crash could
take back.

Called by the API handlers, `auto_topics.py` and, at start, the server.
"""

# ruff: noqa: PLC0415 - a broker that starts in a tenth of a second imports what it decides by later

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metadata.image import NO_LEADER
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages import metadata_records as tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.config.broker import BrokerConfig
    from tidelog.controller.configs import Resource, ResourceResult
    from tidelog.metadata.log import MetadataLog
    from tidelog.seams import Rng
    from tidelog_protocol.messages.admin import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from tidelog_protocol.schema import Message

PRODUCER_ID_BLOCK = 1000
_PLAINTEXT = 0
_UNFENCE = -1
_TOPIC_DELETION_DISABLED_SINCE = 3  # older DeleteTopics don't know the code


class Controller:
    """The only controller of a cluster of one."""

    def __init__(self, log: MetadataLog, config: BrokerConfig, rng: Rng) -> None:
        self._log = log
        self._config = config
        self._rng = rng

    # ---- brokers ------------------------------------------------------------------------------

    async def register_broker(
        self,
        *,
        host: str,
        port: int,
        listener: str = "PLAINTEXT",
        rack: str | None = None,
        log_dirs: Sequence[bytes] = (),
    ) -> int:
        """Register this broker's new incarnation and let it lead; its broker epoch.

        Every partition it can lead begins a new leader epoch: whoever follows or consumes learns
        that records not yet on disk may have gone with the last incarnation (KIP-101, KIP-320).
        """
        node_id = self._config.node_id
        epoch = self._log.next_offset
        records: list[Message] = [
            tables.RegisterBrokerRecord(
                broker_id=node_id,
                incarnation_id=self._rng.uuid(),
                broker_epoch=epoch,
                end_points=[
                    tables.RegisterBrokerRecord.BrokerEndpoint(
                        name=listener, host=host, port=port, security_protocol=_PLAINTEXT
                    )
                ],
                rack=rack,
                fenced=True,
                log_dirs=sorted(log_dirs),
            ),
            tables.BrokerRegistrationChangeRecord(
                broker_id=node_id, broker_epoch=epoch, fenced=_UNFENCE
            ),
            *self._elections(node_id),
        ]
        await self._log.commit(records)
        return epoch

    def _elections(self, node_id: int) -> list[Message]:
        """A new leader epoch for each partition that this broker leads or may take over."""
        return [
            tables.PartitionChangeRecord(
                partition_id=partition.partition, topic_id=topic.topic_id, leader=node_id
            )
            for topic in self._log.latest.topics.values()
            for partition in topic.partitions
            if partition.leader == node_id
            or (partition.leader == NO_LEADER and node_id in partition.isr)
        ]

    # ---- topics -------------------------------------------------------------------------------

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """CreateTopics; StorageError if it cannot be written."""
        from tidelog.controller.topics import create_topics
        from tidelog_protocol.messages.admin import CreateTopicsResponse

        decision = create_topics(self._log.latest, request, self._config, self._rng)
        await self._log.commit(decision.records)
        return CreateTopicsResponse(topics=decision.results)

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """CreatePartitions; StorageError if it cannot be written."""
        from tidelog.controller.topics import create_partitions
        from tidelog_protocol.messages.admin import CreatePartitionsResponse

        decision = create_partitions(self._log.latest, request, self._rng)
        await self._log.commit(decision.records)
        return CreatePartitionsResponse(results=decision.results)

    async def delete_topics(
        self, request: DeleteTopicsRequest, api_version: int
    ) -> DeleteTopicsResponse:
        """DeleteTopics; StorageError if it cannot be written."""
        from tidelog.controller.deletion import delete_topics, refuse_deletion
        from tidelog_protocol.messages.admin import DeleteTopicsResponse

        if not self._config.delete_topic_enable:
            code = (
                ErrorCode.TOPIC_DELETION_DISABLED
                if api_version >= _TOPIC_DELETION_DISABLED_SINCE
                else ErrorCode.INVALID_REQUEST
            )
            return DeleteTopicsResponse(responses=refuse_deletion(request, code))
        decision = delete_topics(self._log.latest, request)
        await self._log.commit(decision.records)
        return DeleteTopicsResponse(responses=decision.results)

    # ---- configuration ------------------------------------------------------------------------

    async def alter_configs(
        self, resources: Sequence[Resource], *, validate_only: bool
    ) -> list[ResourceResult]:
        """AlterConfigs and IncrementalAlterConfigs; StorageError if it cannot be written."""
        from tidelog.controller.configs import alter_configs

        decision = alter_configs(self._log.latest, self._config, resources)
        await self._log.commit(() if validate_only else decision.records)
        return decision.results

    # ---- producer ids -------------------------------------------------------------------------

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else gets, also after a crash (KIP-730)."""
        image = self._log.latest
        broker = image.brokers[self._config.node_id]
        first = image.next_producer_id
        block = range(first, first + PRODUCER_ID_BLOCK)
        record = tables.ProducerIdsRecord(
            broker_id=broker.node_id, broker_epoch=broker.epoch, next_producer_id=block.stop
        )
        await self._log.commit([record])
        return block
