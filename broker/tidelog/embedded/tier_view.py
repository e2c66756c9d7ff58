"""Collect what `tidelog tiers` shows of a topic, through Kafka's own requests.

Offsets come from ListOffsets (KIP-405, KIP-1005), epochs from OffsetForLeaderEpoch, bytes from
DescribeLogDirs, remote segments from the records of `__remote_log_metadata`: so this works with
Apache Kafka as well. Local segments are counted in the log directory, if it is on this machine.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.embedded.cluster_client import ClusterClient
from tidelog.embedded.cluster_settings import ClusterError
from tidelog_protocol.errors import ErrorCode, ProtocolError, error_name
from tidelog_protocol.messages.admin import DescribeLogDirsRequest
from tidelog_protocol.messages.data import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.remote.api import TopicIdPartition
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.metadata_records import decode, metadata_partition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tidelog.embedded.client_security import ClientSecurity
    from tidelog.embedded.simple_client import SimpleClient
    from tidelog_storage.remote.api import RemoteSegment
    from tidelog_storage.remote.metadata_records import MetadataEvent

__all__ = ["PartitionTiers", "TierViewer"]

_LATEST, _EARLIEST, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -4, -5
_FETCH_BYTES = 1 << 20
_EPOCHS_MAX = 1000
_BROKER = 4  # of DescribeConfigs' resource types


@dataclass(slots=True)
class PartitionTiers:
    """One partition on its leader. End offsets are exclusive, `highest_copied` is inclusive; -1
    stands for none. `epochs` are (leader epoch, first offset).

    `trouble`: why some fields are missing; `knows_remote`: whether `remote` is complete.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    log_start: int = -1
    local_log_start: int = -1
    highest_copied: int = -1
    high_watermark: int = -1
    log_end: int = -1
    epochs: list[tuple[int, int]] = field(default_factory=list)
    local_bytes: int = -1
    local_segments: int | None = None  # None: the directory is not on this machine
    remote: list[RemoteSegment] = field(default_factory=list)
    knows_remote: bool = False
    trouble: str | None = None


class TierViewer(ClusterClient):
    """Connections to the brokers of one cluster; ClusterError or OSError if they do not answer."""

    def __init__(self, bootstrap_server: str, security: ClientSecurity | None = None) -> None:
        super().__init__(bootstrap_server, security)
        # By metadata partition: the offset to continue at, and the events read so far.
        self._events: dict[int, tuple[int, list[MetadataEvent]]] = {}

    def look(self, topic: str, partitions: Collection[int] | None = None) -> list[PartitionTiers]:
        """Return the tiers of these partitions of a topic now, of all without a choice."""
        described = self._topic(topic)
        if described is None:
            raise ClusterError(f"there is no topic {topic}")
        views = []
        topic_id = UUID(bytes=described.topic_id)
        for state in sorted(described.partitions, key=lambda one: one.partition_index):
            if partitions is not None and state.partition_index not in partitions:
                continue
            view = PartitionTiers(topic, state.partition_index, state.leader_id, state.leader_epoch)
            views.append(view)
            name = TopicIdPartition(topic_id, topic, state.partition_index)
            with self._troubles(view):
                if state.leader_id < 0:
                    raise ClusterError("there is no leader")
                self._ask_leader(view)
            with self._troubles(view):
                view.remote = self.remote_segments(name)
                view.knows_remote = True
        return views

    @contextmanager
    def _troubles(self, view: PartitionTiers) -> Iterator[None]:
        """Note an error instead of raising it: if a broker is away, the rest is still shown."""
        try:
            yield
        except (ClusterError, OSError) as error:
            view.trouble = str(error)
            self.forget_brokers()

    def broker_settings(self) -> dict[str, str | None]:
        """Return the settings that a broker describes; None for a hidden value."""
        from tidelog_protocol.messages.configs import DescribeConfigsRequest  # noqa: PLC0415 - few need it

        node_id = min(self.nodes())
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(node_id), configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])
        (result,) = self.broker(node_id).ask(request).results
        _check(f"broker {node_id}", result.error_code)
        return {config.name: config.value for config in result.configs}

    # -- from the leader ---------------------------------------------------------------------------

    def _topic(self, name: str) -> Any:
        (topic,) = self.topics([name])
        return None if topic.error_code else topic

    def _ask_leader(self, view: PartitionTiers) -> None:
        client = self.broker(view.leader)
        view.log_start = _offset(client, view, _EARLIEST)
        view.local_log_start = _offset(client, view, _EARLIEST_LOCAL)
        view.highest_copied = _offset(client, view, _LATEST_TIERED)
        view.high_watermark = _offset(client, view, _LATEST)
        view.epochs, view.log_end = _epochs(client, view)
        _add_local_files(client, view)

    # -- from the metadata topic -------------------------------------------------------------------

    def remote_segments(self, partition: TopicIdPartition) -> list[RemoteSegment]:
        """Return all remote segments that are not deleted, by offset."""
        topic = self._topic(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            return []
        index = metadata_partition(partition.topic_id, partition.partition, len(topic.partitions))
        state = next(one for one in topic.partitions if one.partition_index == index)
        metadata = PartitionMetadata(partition)
        for event in self._read_events(topic.topic_id, state):
            named = event.topic_id_partition
            if (named.topic_id, named.partition) == (partition.topic_id, partition.partition):
                metadata.apply(event)
        return sorted(metadata.segments(), key=lambda one: (one.start_offset, one.end_offset))

    def _read_events(self, topic_id: bytes, state: Any) -> list[MetadataEvent]:
        """Return all events of a metadata partition; earlier ones are not read again."""
        index = state.partition_index
        offset, events = self._events.get(index, (0, []))
        client = self.broker(state.leader_id)
        while True:
            data = _fetch(client, topic_id, index, offset)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < data.log_start_offset:
                offset = data.log_start_offset
                continue
            _check(f"{REMOTE_LOG_METADATA_TOPIC}-{index}", data.error_code)
            before = offset
            for position, header in iter_batches(data.records or b""):
                for record in () if header.is_control else iter_records(data.records, position):
                    if record.offset >= offset and record.value is not None:
                        events += _decoded(record.value)
                offset = header.next_offset
            self._events[index] = (offset, events)
            if offset == before:
                return events


def _decoded(value: bytes) -> list[MetadataEvent]:
    try:
        return [decode(value)]
    except ProtocolError:
        return []  # as brokers do: one unreadable record must not hide the others


def _check(what: str, error_code: int) -> None:
    if error_code:
        raise ClusterError(f"{what}: {error_name(error_code)}")


def _fetch(client: SimpleClient, topic_id: bytes, index: int, offset: int) -> Any:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    topic = FetchRequest.FetchTopic(
        topic=REMOTE_LOG_METADATA_TOPIC, topic_id=topic_id, partitions=[partition]
    )
    answer = client.ask(
        FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_FETCH_BYTES, topics=[topic])
    )
    _check("Fetch", answer.error_code)
    return answer.responses[0].partitions[0]


def _offset(client: SimpleClient, view: PartitionTiers, timestamp: int) -> int:
    """Return the offset of a special timestamp, -1 if the broker does not know it."""
    topic = ListOffsetsRequest.ListOffsetsTopic(
        name=view.topic,
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=view.partition, timestamp=timestamp
            )
        ],
    )
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=30_000))
    found = answer.topics[0].partitions[0]
    if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return -1
    _check(f"{view.topic}-{view.partition}", found.error_code)
    return int(found.offset)


def _epochs(client: SimpleClient, view: PartitionTiers) -> tuple[list[tuple[int, int]], int]:
    """Return the log's epochs, found from the newest to the oldest, and its end."""
    ends: list[tuple[int, int]] = []
    epoch = view.leader_epoch
    while epoch >= 0 and len(ends) < _EPOCHS_MAX:
        entry = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=view.partition, leader_epoch=epoch
        )
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic=view.topic, partitions=[entry]
        )
        answer = client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
        found = answer.topics[0].partitions[0]
        _check(f"{view.topic}-{view.partition}", found.error_code)
        if found.leader_epoch < 0 or found.end_offset < 0:
            break
        ends.append((found.leader_epoch, found.end_offset))
        epoch = found.leader_epoch - 1
    if not ends:
        return [], view.high_watermark
    starts = [*(end for _, end in ends[1:]), view.log_start]
    epochs = [(epoch, start) for (epoch, _), start in zip(ends, starts, strict=True)]
    return [one for one in reversed(epochs) if one[1] >= view.log_start], ends[0][1]


def _add_local_files(client: SimpleClient, view: PartitionTiers) -> None:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic(
        topic=view.topic, partitions=[view.partition]
    )
    for directory in client.ask(DescribeLogDirsRequest(topics=[topic])).results:
        for described in directory.topics:
            for partition in described.partitions:
                if partition.is_future_key:
                    continue  # a future replica: the current one is in another directory
                view.local_bytes = partition.partition_size
                folder = f"{directory.log_dir}/{view.topic}-{view.partition}"
                if os.path.isdir(folder):
                    names = os.listdir(folder)
                    view.local_segments = sum(name.endswith(".log") for name in names)
