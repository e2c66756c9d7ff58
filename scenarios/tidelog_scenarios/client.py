"""Requests of clients, in the vector's leader epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import DeleteTopicsRequest
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.data import (
    DeleteRecordsRequest,
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tidelog_protocol.records import Record, build_batch
from tidelog_scenarios.answers import Reply, error_of, fetch_reply
from tidelog_scenarios.vocabulary import TOPIC, PlayError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog_scenarios.names import Names
    from tidelog_scenarios.stage import Stage

__all__ = ["Client"]

_WAIT_MS = 30_000
_FETCH_BYTES = 1 << 20
_TOPIC_RESOURCE, _SET = 2, 0
_CONSUMER = -1


class Client:
    """Sends requests to the brokers of a stage."""

    def __init__(self, stage: Stage, names: Names, now_ms: int) -> None:
        """`now_ms` is the timestamp of all records."""
        self._stage = stage
        self._names = names
        self._now_ms = now_ms

    async def produce(self, broker: str, values: Sequence[str], acks: int) -> Reply:
        """Produce one batch."""
        records = [Record(n, self._now_ms, None, value.encode()) for n, value in enumerate(values)]
        batch = build_batch(records)
        partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(
            name=TOPIC, topic_id=self._stage.topic_id, partition_data=[partition]
        )
        request = ProduceRequest(acks=acks, timeout_ms=_WAIT_MS, topic_data=[topic])
        answer = (await self._stage.ask(broker, request)).responses[0].partition_responses[0]
        return {**error_of(answer.error_code), "offset": answer.base_offset}

    async def fetch(
        self,
        broker: str,
        offset: int,
        last_fetched_epoch: int = -1,
        current_leader_epoch: int = -1,
    ) -> Reply:
        """Fetch once as a consumer."""
        topic = FetchRequest.FetchTopic
        partition = topic.FetchPartition(
            partition=0,
            fetch_offset=offset,
            last_fetched_epoch=self._names.cluster_epoch(last_fetched_epoch),
            current_leader_epoch=self._names.cluster_epoch(current_leader_epoch),
            partition_max_bytes=_FETCH_BYTES,
        )
        topics = [topic(topic=TOPIC, topic_id=self._stage.topic_id, partitions=[partition])]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=_FETCH_BYTES, topics=topics)
        response = await self._stage.ask(broker, request)
        return self._names.translated(fetch_reply(response.responses[0].partitions[0]))

    async def list_offsets(self, broker: str, timestamp: int, current_leader_epoch: int) -> Reply:
        """Send ListOffsets with a special timestamp."""
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(
            partition_index=0,
            timestamp=timestamp,
            current_leader_epoch=self._names.cluster_epoch(current_leader_epoch),
        )
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[topic(name=TOPIC, partitions=[partition])],
            timeout_ms=_WAIT_MS,
        )
        answer = (await self._stage.ask(broker, request)).topics[0].partitions[0]
        facts = {"offset": answer.offset, "leader_epoch": answer.leader_epoch}
        return {**error_of(answer.error_code), **self._names.translated(facts)}

    async def end_of_epoch(
        self, broker: str, leader_epoch: int, current_leader_epoch: int
    ) -> Reply:
        """Send OffsetForLeaderEpoch."""
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        partition = topic.OffsetForLeaderPartition(
            leader_epoch=self._names.cluster_epoch(leader_epoch),
            current_leader_epoch=self._names.cluster_epoch(current_leader_epoch),
        )
        request = OffsetForLeaderEpochRequest(topics=[topic(topic=TOPIC, partitions=[partition])])
        answer = (await self._stage.ask(broker, request)).topics[0].partitions[0]
        facts = {"leader_epoch": answer.leader_epoch, "end_offset": answer.end_offset}
        return {**error_of(answer.error_code), **self._names.translated(facts)}

    async def delete_records(self, broker: str, before: int) -> Reply:
        """Send DeleteRecords."""
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        partition = topic.DeleteRecordsPartition(partition_index=0, offset=before)
        request = DeleteRecordsRequest(
            topics=[topic(name=TOPIC, partitions=[partition])], timeout_ms=_WAIT_MS
        )
        answer = (await self._stage.ask(broker, request)).topics[0].partitions[0]
        return {**error_of(answer.error_code), "low_watermark": answer.low_watermark}

    async def delete_topic(self) -> str:
        """Delete the topic of the play; return the name of the error code."""
        topic = DeleteTopicsRequest.DeleteTopicState(name=TOPIC)
        request = DeleteTopicsRequest(topics=[topic], timeout_ms=_WAIT_MS)
        (answer,) = (await self._stage.ask("X", request)).responses
        return ErrorCode(answer.error_code).name

    async def alter_config(self, settings: Mapping[str, object]) -> None:
        """Change settings of the topic."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=name, config_operation=_SET, value=str(value).lower())
            for name, value in settings.items()
        ]
        asked = resource(resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configs=configs)
        response = await self._stage.ask("X", IncrementalAlterConfigsRequest(resources=[asked]))
        (result,) = response.responses
        if result.error_code:
            raise PlayError(f"settings {dict(settings)}: {result.error_message}")
