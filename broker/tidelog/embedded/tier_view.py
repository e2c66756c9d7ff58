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
from tidelog.embedded.tier_metadata import MetadataLog
from tidelog_protocol.errors import ErrorCode, error_name
from tidelog_protocol.messages.admin import DescribeLogDirsRequest
from tidelog_protocol.messages.data import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tidelog_storage.remote.api import TopicIdPartition
from tidelog_storage.remote.metadata_records import metadata_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tidelog.embedded.client_security import ClientSecurity
    from tidelog.embedded.simple_client import SimpleClient
    from tidelog_storage.remote.api import RemoteSegment

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
    """Connections to the brokers of one cluster; ClusterError or OSError if they do not answer.

    A broker is asked for all partitions that it leads at once: a topic may have thousands.
    """

    def __init__(self, bootstrap_server: str, security: ClientSecurity | None = None) -> None:
        super().__init__(bootstrap_server, security)
        self._metadata: dict[int, MetadataLog] = {}  # by metadata partition

    def look(self, topic: str, partitions: Collection[int] | None = None) -> list[PartitionTiers]:
        """Return the tiers of these partitions of a topic now, of all without a choice."""
        described = self._topic(topic)
        if described is None:
            raise ClusterError(f"there is no topic {topic}")
        wanted = None if partitions is None else set(partitions)
        views = [
            PartitionTiers(topic, state.partition_index, state.leader_id, state.leader_epoch)
            for state in sorted(described.partitions, key=lambda one: one.partition_index)
            if wanted is None or state.partition_index in wanted
        ]
        for leader, led in _grouped(views, lambda view: view.leader).items():
            with self._troubles(led):
                if leader < 0:
                    raise ClusterError("there is no leader")
                _ask_leader(self.broker(leader), led)
        self._add_remote(UUID(bytes=described.topic_id), views)
        return views

    @contextmanager
    def _troubles(self, views: Sequence[PartitionTiers]) -> Iterator[None]:
        """Note an error instead of raising it: if a broker is away, the rest is still shown."""
        try:
            yield
        except (ClusterError, OSError) as error:
            for view in views:
                view.trouble = view.trouble or str(error)
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

    def _topic(self, name: str) -> Any:
        (topic,) = self.topics([name])
        return None if topic.error_code else topic

    # -- from the metadata topic -------------------------------------------------------------------

    def remote_segments(self, partition: TopicIdPartition) -> list[RemoteSegment]:
        """Return all remote segments that are not deleted, by offset."""
        topic = self._topic(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            return []
        index = metadata_partition(partition.topic_id, partition.partition, len(topic.partitions))
        return self._read(topic, index).segments(partition)

    def _add_remote(self, topic_id: UUID, views: Sequence[PartitionTiers]) -> None:
        try:
            topic = self._topic(REMOTE_LOG_METADATA_TOPIC)
        except (ClusterError, OSError) as error:
            with self._troubles(views):
                raise error
            return
        count = 0 if topic is None else len(topic.partitions)

        def index_of(view: PartitionTiers) -> int:
            return metadata_partition(topic_id, view.partition, count) if count else -1

        for index, own in _grouped(views, index_of).items():
            with self._troubles(own):
                log = self._read(topic, index) if count else MetadataLog()
                for view in own:
                    name = TopicIdPartition(topic_id, view.topic, view.partition)
                    view.remote = log.segments(name)
                    view.knows_remote = True

    def _read(self, topic: Any, index: int) -> MetadataLog:
        """A metadata partition up to its end; what was read before is not read again."""
        log = self._metadata.setdefault(index, MetadataLog())
        state = next(one for one in topic.partitions if one.partition_index == index)
        client = self.broker(state.leader_id)
        while True:
            data = _fetch(client, topic.topic_id, index, log.next_offset)
            is_below = log.next_offset < data.log_start_offset
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and is_below:
                log.next_offset = data.log_start_offset
                continue
            _check(f"{REMOTE_LOG_METADATA_TOPIC}-{index}", data.error_code)
            before = log.next_offset
            log.add(data.records or b"")
            if log.next_offset == before:
                return log


def _grouped(
    views: Iterable[PartitionTiers], key: Callable[[PartitionTiers], int]
) -> dict[int, list[PartitionTiers]]:
    found: dict[int, list[PartitionTiers]] = {}
    for view in views:
        found.setdefault(key(view), []).append(view)
    return found


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


# ---- from the leader -----------------------------------------------------------------------------


def _ask_leader(client: SimpleClient, views: Sequence[PartitionTiers]) -> None:
    """Fill in what a leader knows of its partitions. An error of one is its own trouble."""
    for name, timestamp in (
        ("log_start", _EARLIEST),
        ("local_log_start", _EARLIEST_LOCAL),
        ("highest_copied", _LATEST_TIERED),
        ("high_watermark", _LATEST),
    ):
        for view, offset in _offsets(client, _sound(views), timestamp):
            setattr(view, name, offset)
    _add_epochs(client, _sound(views))
    _add_local_files(client, _sound(views))


def _sound(views: Iterable[PartitionTiers]) -> dict[int, PartitionTiers]:
    """Those without trouble, by partition."""
    return {view.partition: view for view in views if view.trouble is None}


def _is_sound(view: PartitionTiers, error_code: int) -> bool:
    """Whether a partition's answer is none of an error; the error is noted."""
    if error_code:
        view.trouble = f"{view.topic}-{view.partition}: {error_name(error_code)}"
    return not error_code


def _offsets(
    client: SimpleClient, views: Mapping[int, PartitionTiers], timestamp: int
) -> Iterator[tuple[PartitionTiers, int]]:
    """The offset of a special timestamp, -1 if the broker does not know it."""
    if not views:
        return
    asked = ListOffsetsRequest.ListOffsetsTopic(
        name=_topic_of(views),
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=each, timestamp=timestamp)
            for each in views
        ],
    )
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked], timeout_ms=30_000))
    for found in answer.topics[0].partitions:
        view = views[found.partition_index]
        if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
            yield view, -1
        elif _is_sound(view, found.error_code):
            yield view, int(found.offset)


def _topic_of(views: Mapping[int, PartitionTiers]) -> str:
    return next(iter(views.values())).topic


def _add_epochs(client: SimpleClient, views: Mapping[int, PartitionTiers]) -> None:
    """Add each log's epochs, found from the newest to the oldest, and its end."""
    ends: dict[int, list[tuple[int, int]]] = {each: [] for each in views}
    epochs = {each: view.leader_epoch for each, view in views.items() if view.leader_epoch >= 0}
    for _ in range(_EPOCHS_MAX):
        if not epochs:
            break
        answered = _epoch_ends(client, _topic_of(views), epochs)
        epochs = {}
        for found in answered:
            view = views[found.partition]
            is_known = found.leader_epoch >= 0 and found.end_offset >= 0
            if _is_sound(view, found.error_code) and is_known:
                ends[found.partition].append((found.leader_epoch, found.end_offset))
                if found.leader_epoch:
                    epochs[found.partition] = found.leader_epoch - 1
    for view in _sound(views.values()).values():
        view.epochs, view.log_end = _epochs(view, ends[view.partition])


def _epoch_ends(client: SimpleClient, topic: str, epochs: Mapping[int, int]) -> list[Any]:
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
        topic=topic,
        partitions=[
            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=each, leader_epoch=epoch)
            for each, epoch in epochs.items()
        ],
    )
    answer = client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked]))
    return list(answer.topics[0].partitions)


def _epochs(
    view: PartitionTiers, ends: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], int]:
    if not ends:
        return [], view.high_watermark
    starts = [*(end for _, end in ends[1:]), view.log_start]
    epochs = [(epoch, start) for (epoch, _), start in zip(ends, starts, strict=True)]
    return [one for one in reversed(epochs) if one[1] >= view.log_start], ends[0][1]


def _add_local_files(client: SimpleClient, views: Mapping[int, PartitionTiers]) -> None:
    if not views:
        return
    topic = DescribeLogDirsRequest.DescribableLogDirTopic(
        topic=_topic_of(views), partitions=list(views)
    )
    for directory in client.ask(DescribeLogDirsRequest(topics=[topic])).results:
        for described in directory.topics:
            for partition in described.partitions:
                if partition.is_future_key:
                    continue  # a future replica: the current one is in another directory
                view = views[partition.partition_index]
                view.local_bytes = partition.partition_size
                folder = f"{directory.log_dir}/{view.topic}-{view.partition}"
                if os.path.isdir(folder):
                    names = os.listdir(folder)
                    view.local_segments = sum(name.endswith(".log") for name in names)
