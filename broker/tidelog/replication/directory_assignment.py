"""Report the log directory of a replica to the controller (AssignReplicasToDirs, KIP-858).

The controller knows the directories of replicas whose broker had only one when they were created,
and elects no replica whose directory is gone. So a replica is reported before it leaves its
directory: afterwards the operator may remove the directory. Only the broker knows the directories
of its other replicas; Kafka's brokers report all. `log_dir_moves.py` and `lost_replicas.py` call
it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog_storage.types import TopicPartition

__all__ = ["assign", "is_elsewhere"]

_log = logging.getLogger(__name__)


def is_elsewhere(replicas: ReplicaManager, partition: Partition, directory_id: bytes) -> bool:
    """Return whether the metadata has another directory for this broker's replica."""
    if replicas.ask_controller is None or replicas.image is None:
        return False  # a lone broker's metadata does not need the directories
    state = replicas.image.partition(*partition.topic_partition)
    if state is None:
        return False
    known = dict(zip(state.replicas, state.directories, strict=False))
    return known.get(replicas.node_id, ZERO_UUID) not in (ZERO_UUID, directory_id)


async def assign(
    replicas: ReplicaManager, key: TopicPartition, topic_id: bytes, directory_id: bytes
) -> bool:
    """Report where the replica is, or is about to be; return whether the controller recorded it."""
    from tidelog_protocol.messages.controller import (  # noqa: PLC0415 - few replicas move so
        AssignReplicasToDirsRequest,
    )

    assert replicas.ask_controller is not None
    assert replicas.image is not None
    broker = replicas.image.brokers.get(replicas.node_id)
    directory = AssignReplicasToDirsRequest.DirectoryData
    index = directory.TopicData.PartitionData(partition_index=key.partition)
    topic = directory.TopicData(topic_id=topic_id, partitions=[index])
    request = AssignReplicasToDirsRequest(
        broker_id=replicas.node_id,
        broker_epoch=-1 if broker is None else broker.epoch,
        directories=[directory(id=directory_id, topics=[topic])],
    )
    try:
        response = await replicas.ask_controller(request)
        error = response.error_code or response.directories[0].topics[0].partitions[0].error_code
    except Exception as failure:  # noqa: BLE001 - whatever it is, it is asked again
        _log.debug("cannot send AssignReplicasToDirs: %s", failure)
        return False
    if error:
        _log.info("%s: the controller refused its directory: %s", key, error)
    return not error
