"""The controller: decides operations on the cluster's metadata and commits them, one by one.

The decisions themselves are pure and live in `topic_control`, `topic_deletion` and
`config_control`; here they meet the metadata log. Each is taken against `MetadataLog.latest` and
appended without an await in between, so operations never see each other half done; the answer goes
out when everything the decision saw is on disk, so no client hears of a state that a crash could
take back.

Called by the API handlers, the coordinators (internal topics, producer ids) and, at start, the
server.
"""

# ruff: noqa: PLC0415 - a broker that starts in a tenth of a second imports what it decides by later

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.metadata.image import (
    GROUP_METADATA_TOPIC,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages import metadata_records as tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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

_log = logging.getLogger(__name__)

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
        self._creating: dict[str, asyncio.Task[ErrorCode]] = {}

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

    # ---- topics nobody asked to create ----------------------------------------------------------

    def start_auto_creation(self, name: str) -> bool:
        """Begin to create a topic with the broker's defaults; False if that is under way."""
        if name in self._creating:
            return False
        task = asyncio.get_running_loop().create_task(
            self._create(name), name=f"auto-create-{name}"
        )
        self._creating[name] = task
        task.add_done_callback(lambda _: self._creating.pop(name, None))
        return True

    async def auto_create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics with the broker's defaults, internal ones as they must be; wait for it.

        NONE also for those that exist already.
        """
        results = {}
        for name in names:
            self.start_auto_creation(name)
            results[name] = await asyncio.shield(self._creating[name])
        return results

    async def _create(self, name: str) -> ErrorCode:
        from tidelog_protocol.messages.admin import CreateTopicsRequest

        topic = self._automatic_topic(name)
        try:
            response = await self.create_topics(CreateTopicsRequest(topics=[topic]))
        except Exception as error:  # noqa: BLE001 - nobody may be waiting for this task
            _log.error("automatic creation of topic %s failed: %s", name, error)
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
        else:
            partitions, factor, settings = (
                config.num_partitions,
                config.default_replication_factor,
                {},
            )
        return CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in settings.items()
            ],
        )

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

    async def close(self) -> None:
        """Wait for topics being created."""
        if self._creating:
            await asyncio.wait(self._creating.values())
