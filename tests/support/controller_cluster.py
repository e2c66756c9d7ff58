"""A cluster as its controller sees it: images of several brokers, and requests put short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.metadata import CLUSTER_ID, NODE_ID, broker_config
from tidelog.cluster.metadata.features import supported_levels
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.cluster.metadata.replay import replay
from tidelog_protocol.messages.controller import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.schema import Message

TOPIC_ID = b"topic-of-a-test-"
CONFIG: BrokerConfig = broker_config()


def directory(node_id: int) -> bytes:
    """The only log directory of a broker."""
    return b"directory-of-%03d" % node_id


def incarnation(number: int) -> bytes:
    return b"incarnation-%04d" % number


def broker(node_id: int, **changes: Any) -> BrokerImage:
    """A living broker with the epoch 100 + id."""
    return BrokerImage(
        node_id,
        "127.0.0.1",
        9090 + node_id,
        epoch=100 + node_id,
        incarnation_id=incarnation(node_id),
        log_dirs=(directory(node_id),),
    )._replace(**changes)


def partition(
    replicas: Sequence[int] = (1, 2, 3),
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    index: int = 0,
    **changes: Any,
) -> PartitionImage:
    """A partition led by the first of its ISR, in leader epoch 5 and partition epoch 7."""
    isr = tuple(replicas if isr is None else isr)
    return PartitionImage(
        partition=index,
        leader=isr[0] if leader is None else leader,
        leader_epoch=5,
        partition_epoch=7,
        replicas=tuple(replicas),
        isr=isr,
        directories=tuple(directory(node_id) for node_id in replicas),
    )._replace(**changes)


def image_of(
    *partitions: PartitionImage,
    brokers: Iterable[BrokerImage] = (broker(1), broker(2), broker(3)),
    topic_config: Mapping[str, str] | None = None,
    features: Mapping[str, int] | None = None,
) -> ClusterImage:
    """A cluster with one topic `t` of these partitions."""
    numbered = tuple(one._replace(partition=index) for index, one in enumerate(partitions))
    return ClusterImage(
        cluster_id=CLUSTER_ID,
        controller_id=NODE_ID,
        brokers={one.node_id: one for one in brokers},
        topics={"t": TopicImage("t", TOPIC_ID, numbered)} if numbered else {},
        topic_names={TOPIC_ID: "t"} if numbered else {},
        topic_configs={"t": topic_config} if topic_config else {},
        features={"metadata.version": 30, **(features or {})},
        offset=200,
    )


def apply(image: ClusterImage, records: Sequence[Message]) -> ClusterImage:
    """The image after these records."""
    return replay(
        image,
        records,
        offset=image.offset + len(records),
        leader_epoch=image.leader_epoch,
        controller_id=image.controller_id,
    )


def state(image: ClusterImage, index: int = 0) -> tuple[int, int, tuple[int, ...], int]:
    """Leader, leader epoch, ISR and partition epoch of a partition of `t`."""
    found = image.topics["t"].partitions[index]
    return found.leader, found.leader_epoch, found.isr, found.partition_epoch


def registration(node_id: int, life: int | None = None, **changes: Any) -> Any:
    """A BrokerRegistration as brokers send it; `life` tells its incarnations apart."""
    request = BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation(node_id if life is None else life),
        listeners=[
            BrokerRegistrationRequest.Listener(
                name="PLAINTEXT", host="127.0.0.1", port=9090 + node_id, security_protocol=0
            )
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in supported_levels().items()
        ],
        rack=None,
        log_dirs=[directory(node_id)],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def beat(node_id: int, epoch: int, offset: int = 1 << 40, **wishes: Any) -> BrokerHeartbeatRequest:
    """A BrokerHeartbeat of a broker that has applied all metadata."""
    return BrokerHeartbeatRequest(
        broker_id=node_id, broker_epoch=epoch, current_metadata_offset=offset, **wishes
    )


def isr_change(
    isr: Sequence[int] | Sequence[tuple[int, int]],
    *,
    sender: int = 1,
    sender_epoch: int | None = None,
    index: int = 0,
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    recovery: int = 0,
    topic_id: bytes = TOPIC_ID,
) -> AlterPartitionRequest:
    """An AlterPartition v3 for one partition; members are ids or (id, broker epoch)."""
    data = AlterPartitionRequest.TopicData.PartitionData
    members = [member if isinstance(member, tuple) else (member, -1) for member in isr]
    return AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=100 + sender if sender_epoch is None else sender_epoch,
        topics=[
            AlterPartitionRequest.TopicData(
                topic_id=topic_id,
                partitions=[
                    data(
                        partition_index=index,
                        leader_epoch=leader_epoch,
                        partition_epoch=partition_epoch,
                        leader_recovery_state=recovery,
                        new_isr_with_epochs=[
                            data.BrokerState(broker_id=node_id, broker_epoch=epoch)
                            for node_id, epoch in members
                        ],
                    )
                ],
            )
        ],
    )
