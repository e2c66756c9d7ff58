"""Pure decision about the log directories of replicas: AssignReplicasToDirs (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.partitions import Changes, check_broker_epoch
from tidelog.cluster.metadata.features import has_directories
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.controller import AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from tidelog.cluster.controller.changes import PartitionDraft
    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.controller import AssignReplicasToDirsRequest
    from tidelog_protocol.schema import Message

__all__ = ["assign_replicas_to_dirs"]

_Directory = AssignReplicasToDirsResponse.DirectoryData
_Topic = _Directory.TopicData


def assign_replicas_to_dirs(
    image: ClusterImage, config: BrokerConfig, request: AssignReplicasToDirsRequest
) -> tuple[list[Message], AssignReplicasToDirsResponse]:
    """Record the directories of a broker's replicas; each has its own result, in order.

    A replica in a directory that the broker does not have is not in sync. RefusedError
    STALE_BROKER_EPOCH if the sender's registration is not the current one, UNSUPPORTED_VERSION
    before metadata version 3.7-IV2.
    """
    if not has_directories(image.features):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet."
        )
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    changes = Changes(image, config)
    node_id = request.broker_id
    directories = []
    for directory in request.directories:
        topics = []
        for asked in directory.topics:
            topic = image.topic_by_id(asked.topic_id)
            partitions = [
                _Topic.PartitionData(
                    partition_index=one.partition_index,
                    error_code=_assign(changes, topic, one.partition_index, node_id, directory.id),
                )
                for one in asked.partitions
            ]
            topics.append(_Topic(topic_id=asked.topic_id, partitions=partitions))
        directories.append(_Directory(id=directory.id, topics=topics))
    lost = {one.id for one in request.directories} - set(image.brokers[node_id].log_dirs)
    if lost:
        changes.without(node_id, sorted(lost))
    return changes.records, AssignReplicasToDirsResponse(directories=directories)


def _assign(
    changes: Changes, topic: TopicImage | None, index: int, node_id: int, directory_id: bytes
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = changes.partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if node_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fill(draft: PartitionDraft) -> None:
        draft.assigned[node_id] = directory_id

    changes.change(topic, partition, fill)
    return ErrorCode.NONE
