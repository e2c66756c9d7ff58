"""What a reader of `__remote_log_metadata` knows: values, and the segments of topics asked for.

Values of other topics are kept as bytes and not decoded: a cluster's metadata has those of all its
topics, of years. Each value is read once, and decoded once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.metadata_records import decode

if TYPE_CHECKING:
    from uuid import UUID

    from tidelog_protocol.schema import Buffer
    from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.metadata_records import MetadataEvent

__all__ = ["MetadataLog"]


@dataclass(slots=True)
class _Topic:
    """What the first `read` values say of one topic, by partition."""

    read: int = 0
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)


class MetadataLog:
    """One partition of the metadata topic, from its start to `next_offset`."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._values: list[bytes] = []
        self._topics: dict[UUID, _Topic] = {}

    def add(self, records: Buffer) -> None:
        """Take the batches of a Fetch from `next_offset`."""
        start = self.next_offset
        for position, header in iter_batches(records):
            for record in () if header.is_control else iter_records(records, position):
                if record.offset >= start and record.value is not None:
                    self._values.append(bytes(record.value))
            self.next_offset = header.next_offset

    def segments(self, partition: TopicIdPartition) -> list[RemoteSegment]:
        """All segments of a partition that are not deleted, by offset."""
        found = self._of_topic(partition.topic_id).get(partition.partition)
        if found is None:
            return []
        return sorted(found.segments(), key=lambda one: (one.start_offset, one.end_offset))

    def _of_topic(self, topic_id: UUID) -> dict[int, PartitionMetadata]:
        topic = self._topics.setdefault(topic_id, _Topic())
        for value in self._values[topic.read :]:
            event = _decoded(value) if topic_id.bytes in value else None
            if event is not None and event.topic_id_partition.topic_id == topic_id:
                name = event.topic_id_partition
                if name.partition not in topic.partitions:
                    topic.partitions[name.partition] = PartitionMetadata(name)
                topic.partitions[name.partition].apply(event)
        topic.read = len(self._values)
        return topic.partitions


def _decoded(value: bytes) -> MetadataEvent | None:
    try:
        return decode(value)
    except ProtocolError:
        return None  # as brokers do: one unreadable record must not hide the others
