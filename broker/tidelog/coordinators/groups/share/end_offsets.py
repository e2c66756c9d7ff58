"""The end offsets of partitions, for the lag of share groups: here, or from the leaders.

Kafka's NetworkPartitionMetadataClient. All here is work for `awaiting.drive`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import all_of
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ListOffsetsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.share.driven import DrivenTasks
    from tidelog.network.peers import Channels
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog_protocol.messages.data import ListOffsetsResponse
    from tidelog_storage.types import TopicPartition

    Ends = dict[TopicPartition, int | ErrorCode]

__all__ = ["EndOffsets"]

_LATEST = -1
_CONSUMER = -1  # not a replica
_TIMEOUT_MS = 30_000


class EndOffsets:
    """Offsets of the next record that consumers will see."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: Callable[[], ClusterImage],
        channels: Channels | None,
        tasks: DrivenTasks,
    ) -> None:
        """`channels` go to other brokers' client listeners, None for a lone broker."""
        self._replicas = replicas
        self._image = image
        self._channels = channels
        self._tasks = tasks

    async def of(self, partitions: Sequence[TopicPartition]) -> Ends:
        """Return an offset or an error for each partition."""
        ends: Ends = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            leader = self._leader_of(one)
            if leader == self._replicas.node_id:
                partition = self._replicas.hosted(one)
                ends[one] = (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                    if partition is None
                    else partition.log.high_watermark
                )
            elif leader < 0 or self._channels is None:
                ends[one] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(one)
        asking = [
            self._tasks.answer_of(partial(self._ask, leader, asked))
            for leader, asked in by_leader.items()
        ]
        for found in await all_of(asking) if asking else ():
            ends.update(found)
        return ends

    def _leader_of(self, one: TopicPartition) -> int:
        topic = self._image().topics.get(one.topic)
        if topic is None or one.partition >= len(topic.partitions):
            return -1
        return topic.partitions[one.partition].leader

    async def _ask(self, leader: int, partitions: Sequence[TopicPartition]) -> Ends:
        assert self._channels is not None
        try:
            response = await self._channels.to(leader).ask(_request_of(partitions))
        except PeerError:
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return _ends_of(partitions, response)


def _request_of(partitions: Iterable[TopicPartition]) -> ListOffsetsRequest:
    by_topic: dict[str, list[int]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one.partition)
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=each, timestamp=_LATEST)
                    for each in numbers
                ],
            )
            for name, numbers in by_topic.items()
        ],
        timeout_ms=_TIMEOUT_MS,
    )


def _ends_of(partitions: Sequence[TopicPartition], response: ListOffsetsResponse) -> Ends:
    found = {
        (topic.name, each.partition_index): ErrorCode(each.error_code) or each.offset
        for topic in response.topics
        for each in topic.partitions
    }
    return {one: found.get(one, ErrorCode.UNKNOWN_SERVER_ERROR) for one in partitions}
