"""Reads and writes `__remote_log_metadata` wherever its partitions are led.

A partition led here is appended to and read directly, up to the high watermark. Requests for other
partitions go to their leaders: Produce with acks=-1, Fetch as a consumer, ListOffsets. A follower
is read only while there is no leader, because it learns the high watermark with its next fetch,
half a second late. Values are bytes here, not events.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.awaiting import called_back
from tidelog.network.peers import Channels, PeerError
from tidelog.replication.internal_topics import InternalTopic
from tidelog.replication.partition import (
    EARLIEST_TIMESTAMP,
    HIGH_WATERMARK,
    LATEST_TIMESTAMP,
    Partition,
)
from tidelog.tiered.metadata.settings import pause_s
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest, ProduceRequest
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records
from tidelog_storage.types import OffsetAndTimestamp, OutOfRange, Records, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.tiered.metadata.settings import ClientSettings

__all__ = ["Chunk", "MetadataTopicClient", "TopicError"]


class TopicError(Exception):
    """A request to the topic failed; `code` is the reason."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Chunk(NamedTuple):
    """Some records of one partition: (offset, value) in order, and the next offset to read."""

    records: list[tuple[int, bytes | None]]
    next_offset: int


class MetadataTopicClient:
    """The topic, as far as this broker can reach it."""

    def __init__(
        self,
        name: str,
        *,
        replicas: ReplicaManager,
        image: Callable[[], ClusterImage],
        new_channel: Callable[[str, int], PeerChannel] | None,
        settings: ClientSettings,
        listener: str = "",
    ) -> None:
        """A lone broker needs no `new_channel`. Requests go to the leaders' `listener` of this
        name; if it is empty, to the inter-broker listener."""
        self.name = name
        self.replicas = replicas
        self.image = image
        self.settings = settings
        self._listener = listener
        self._topic = InternalTopic(
            name, replicas, commit_timeout_ms=settings.producer.request_timeout_ms
        )
        new_channel = new_channel or _no_channel
        # Answers come in the order of requests: a waiting fetch must not delay others.
        self._asking = Channels(new_channel, self._address_of)
        self._fetching = Channels(new_channel, self._address_of)

    def close(self) -> None:
        """Close the channels."""
        self._asking.close()
        self._fetching.close()

    # -- where -------------------------------------------------------------------------------------

    @property
    def broker_count(self) -> int:
        """The number of registered brokers, whether they run or not."""
        return len(self.image().brokers)

    @property
    def partition_count(self) -> int:
        """The number of partitions; 0 if the topic does not exist."""
        topic = self.image().topics.get(self.name)
        return 0 if topic is None else len(topic.partitions)

    @property
    def topic_id(self) -> bytes:
        """The topic's id, zero if it does not exist."""
        topic = self.image().topics.get(self.name)
        return ZERO_UUID if topic is None else topic.topic_id

    def leader_of(self, index: int) -> int:
        """Return the leader of a partition; -1 for none."""
        partition = self.image().partition(self.name, index)
        return -1 if partition is None else partition.leader

    def place_of(self, index: int) -> int:
        """Return the broker whose replica is read now; -1 for none."""
        leader, here = self.leader_of(index), self.replicas.node_id
        partition = self._replica(index)
        if partition is not None and (partition.is_leader or leader == -1):
            return here
        return -1 if leader == here else leader

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        broker = self.image().brokers.get(node_id)
        return None if broker is None else broker.address(self._listener)

    def _replica(self, index: int) -> Partition | None:
        partition = self.replicas.partition(self.name, index)
        return partition if isinstance(partition, Partition) else None

    def _led_here(self, index: int) -> Partition | None:
        partition = self._replica(index)
        return partition if partition is not None and partition.is_leader else None

    async def _ask(self, index: int, request: Any, timeout_ms: int) -> Any:
        """Ask the partition's leader, which is another broker."""
        leader = self.leader_of(index)
        if leader in (-1, self.replicas.node_id):
            raise TopicError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{self.name}-{index} has no leader to be asked"
            )
        code = ErrorCode.LEADER_NOT_AVAILABLE
        try:
            channel = self._asking.to(leader)
            code = ErrorCode.NETWORK_EXCEPTION
            return await channel.ask(request, timeout_s=timeout_ms / 1000)
        except PeerError as error:
            raise TopicError(code, str(error)) from error

    def _refused(self, index: int, code: int) -> TopicError:
        code = ErrorCode(code)
        return TopicError(code, f"{self.name}-{index}: {code.name}")

    # -- writing -----------------------------------------------------------------------------------

    async def publish(self, index: int, value: bytes) -> int:
        """Write a record and return its offset when all in-sync replicas have it.

        Retriable failures are retried until a time-out; TopicError. The record may be written all
        the same, and more than once.
        """
        loop, settings = asyncio.get_running_loop(), self.settings.producer
        deadline = loop.time() + settings.delivery_timeout_ms / 1000
        retry_s = pause_s(settings.retry_backoff_ms)
        while True:
            try:
                partition = self._led_here(index)
                if partition is not None:
                    return await self._append(index, value, partition.leader_epoch)
                return await self._produce(index, value)
            except TopicError as error:
                if loop.time() + retry_s >= deadline or not error.code.retriable:
                    raise
            await asyncio.sleep(retry_s)

    async def _append(self, index: int, value: bytes, leader_epoch: int) -> int:
        now_ms = self.replicas.clock.wall_ms()
        try:
            end_offset = self._topic.append(
                index, [(None, value)], leader_epoch=leader_epoch, now_ms=now_ms
            )
        except StorageError as error:
            raise self._refused(index, error.code) from error
        code = await called_back(partial(self._topic.commit, index, end_offset))
        if code not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            raise self._refused(index, code)
        return end_offset - 1

    async def _produce(self, index: int, value: bytes) -> int:
        batch = build_batch([Record(0, self.replicas.clock.wall_ms(), None, value)])
        data = ProduceRequest.PartitionProduceData(index=index, records=memoryview(batch))
        topic = ProduceRequest.TopicProduceData(topic_id=self.topic_id, partition_data=[data])
        timeout_ms = self.settings.producer.request_timeout_ms
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
        response = await self._ask(index, request, timeout_ms)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            raise self._refused(index, answer.error_code)
        return int(answer.base_offset)

    # -- reading -----------------------------------------------------------------------------------

    async def end_offset(self, index: int) -> int:
        """Return the leader's high watermark of a partition; TopicError."""
        return await self._offset(index, LATEST_TIMESTAMP)

    async def start_offset(self, index: int) -> int:
        """Return the first offset of a partition; TopicError."""
        return await self._offset(index, EARLIEST_TIMESTAMP)

    async def _offset(self, index: int, timestamp: int) -> int:
        partition = self._led_here(index)
        if partition is not None:
            found = partition.offset_for(
                timestamp, isolation=HIGH_WATERMARK, current_leader_epoch=-1, leader_only=True
            )
            if isinstance(found, ErrorCode):
                raise self._refused(index, found)
            assert isinstance(found, OffsetAndTimestamp), "the topic has no remote tier"
            return found.offset
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.name, partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = await self._ask(index, request, self.settings.consumer.request_timeout_ms)
        (answer,) = response.topics[0].partitions
        if answer.error_code:
            raise self._refused(index, answer.error_code)
        return int(answer.offset)

    def read_here(self, index: int, offset: int) -> Chunk | None:
        """Return one chunk of the replica here, from `offset` on and below the high watermark.

        None if there is no replica here. TopicError OFFSET_OUT_OF_RANGE for an offset that its
        leader does not have, KAFKA_STORAGE_ERROR if its log can't be read.
        """
        partition = self._replica(index)
        if partition is None:
            return None
        log = partition.log
        if offset < log.log_start_offset:
            return Chunk([], log.log_start_offset)
        if offset > log.log_end_offset and not partition.is_leader:
            return Chunk([], offset)  # it is not replicated yet
        try:
            outcome = log.read(
                offset,
                self.settings.consumer.max_partition_fetch_bytes,
                upper_bound=log.high_watermark,
                min_one_batch=True,
            )
        except StorageError as error:
            raise self._refused(index, error.code) from error
        if isinstance(outcome, OutOfRange):
            raise self._refused(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert isinstance(outcome, Records), "the topic has no remote tier"
        data = outcome.parts[0] if len(outcome.parts) == 1 else b"".join(outcome.parts)
        return _chunk(data, offset)

    async def fetch(self, leader: int, offsets: Mapping[int, int]) -> dict[int, Chunk | ErrorCode]:
        """Fetch records from a leader, from these offsets on by partition; waits for new ones.
        PeerError."""
        settings = self.settings.consumer
        partitions = [
            FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=settings.max_partition_fetch_bytes,
            )
            for index, offset in offsets.items()
        ]
        topic_id = self.topic_id
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=partitions)],
        )
        timeout_s = settings.request_timeout_ms / 1000
        response = await self._fetching.to(leader).ask(request, timeout_s=timeout_s)
        if topic_id != self.topic_id:
            raise PeerError(f"{self.name} was deleted meanwhile")
        return {
            data.partition_index: ErrorCode(data.error_code)
            if data.error_code
            else _chunk(data.records or b"", offsets[data.partition_index])
            for topic in response.responses
            for data in topic.partitions
        }


def _no_channel(host: str, port: int) -> PeerChannel:
    raise PeerError(f"a lone broker has no other brokers to ask, such as {host}:{port}")


def _chunk(data: Any, offset: int) -> Chunk:
    """Return the records' values from `offset` on; None for a batch that can't be read."""
    values: list[tuple[int, bytes | None]] = []
    next_offset = offset
    for position, header in iter_batches(data):
        next_offset = max(next_offset, header.next_offset)
        if header.is_control:
            continue
        try:
            found = [(record.offset, record.value) for record in iter_records(data, position)]
        except ProtocolError:
            found = [(header.base_offset, None)]
        values += [(at, value) for at, value in found if at >= offset]
    return Chunk(values, next_offset)
