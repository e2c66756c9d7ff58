"""Metadata (API 3), DescribeCluster (60) and DescribeTopicPartitions (75).

Behaviour. All responses come from the published image, so they only show durable state. Metadata
answers a missing topic with INVALID_TOPIC_EXCEPTION if its name is invalid. Otherwise, if the
client and `auto.create.topics.enable` allow it, the topic is created in the background, and until
it exists the answer is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka's KRaft mode (internal topics get
their own settings). Known topics come first, then unknown ones. There is no authorizer, so the
"authorized operations" are all of them.

Addresses of brokers are those of the listener on which the client connected; a broker without it is
left out.

Version notes, Metadata. 0: no topics means all; 1: null means all, an empty list none. 4: clients
may forbid creation. 8 (KIP-430): authorized operations; 11 (KIP-700): no longer the cluster's. 10
(KIP-516): topic ids, from 12 also in requests, where the name is then ignored; 10 and 11 refuse
ids. 13: error code for the whole answer. DescribeCluster. 1 (KIP-919): endpoint type. 2 (KIP-1073):
fenced brokers on request. DescribeTopicPartitions 0 (KIP-966): topics by name in order, cut after a
number of partitions, with a cursor to continue from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.describe_controllers import (
    ENDPOINT_BROKERS,
    asked_operations,
    refused_endpoint,
)
from tidelog.cluster.controller.names import invalid_topic_reason
from tidelog.cluster.metadata.image import is_internal_topic
from tidelog.network.wide_requests import PART_MAX, in_turns
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import (
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
    MetadataResponse,
)
from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence

    from tidelog.cluster.auto_topics import AutoTopics
    from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.cluster import (
        DescribeClusterRequest,
        DescribeTopicPartitionsRequest,
        MetadataRequest,
    )

__all__ = ["MetadataApi"]

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition
_DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_DescribedPartition = _DescribedTopic.DescribeTopicPartitionsResponsePartition

# Bits of AclOperation (KIP-430): all that exist for a topic, because there is no authorizer.
TOPIC_OPERATIONS = (
    0b1101_1111_1000  # read write create delete alter describe (describe|alter)_configs
)
_TOPIC_IDS_SINCE = 12


class MetadataApi:
    """Handlers of requests about the cluster."""

    def __init__(self, metadata: MetadataLog, topics: AutoTopics, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._auto_topics = topics
        self._config = config

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
        }

    # ---- Metadata -----------------------------------------------------------------------------

    def metadata(
        self, context: RequestContext, request: MetadataRequest
    ) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
        """Answer a Metadata request."""
        asked = request.topics
        if asked is not None:
            error = _refusal(asked, context.api_version)
            if error is not None:
                return _refused(asked, error)
        answer: MetadataResponse | Coroutine[Any, Any, MetadataResponse] = in_turns(
            self._answer(context, request), context
        )
        return answer

    def _answer(
        self, context: RequestContext, request: MetadataRequest
    ) -> Generator[None, None, MetadataResponse]:
        """Answer by one image, with a `yield` between parts of `PART_MAX` topics and partitions."""
        version = context.api_version
        image = self._metadata.image
        topics: list[_Topic] = []
        room = PART_MAX
        for topic, partitions in self._topics(image, request, version):
            topics.append(topic)
            room -= 1
            for start in range(0, len(partitions), PART_MAX):
                if room <= 0:
                    yield
                    room = PART_MAX
                part = partitions[start : start + PART_MAX]
                topic.partitions += [_partition(image, each, version) for each in part]
                room -= len(part)
        if request.include_topic_authorized_operations:
            for topic in topics:
                if topic.name is not None:  # of an unknown id
                    topic.topic_authorized_operations = TOPIC_OPERATIONS
        listener = context.listener
        alive = image.alive_brokers()
        brokers = [
            MetadataResponse.MetadataResponseBroker(
                node_id=broker.node_id, host=address[0], port=address[1], rack=broker.rack
            )
            for broker in alive
            if (address := broker.address(listener)) is not None
        ]
        if len(brokers) < len(alive):
            _hide_leaders({broker.node_id for broker in brokers}, topics, version)
        return MetadataResponse(
            brokers=brokers,
            cluster_id=image.cluster_id,
            controller_id=_controller_id(image, [broker.node_id for broker in brokers]),
            topics=topics,
            cluster_authorized_operations=asked_operations(request),
        )

    def _topics(
        self, image: ClusterImage, request: MetadataRequest, version: int
    ) -> Iterator[tuple[_Topic, Sequence[PartitionImage]]]:
        """Yield the topics of the answer, still without partitions, each with its partitions."""
        asked = request.topics
        if asked is None or (version == 0 and not asked):
            for topic in list(image.topics.values()):
                yield _topic(topic), topic.partitions
            return
        ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
        names = dict.fromkeys(topic.name or "" for topic in asked)
        if ids:
            for topic_id in ids:
                if topic_id not in image.topic_names:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                    yield _Topic(error_code=error, name=None, topic_id=topic_id, partitions=[]), ()
            names = dict.fromkeys(
                image.topic_names[topic_id] for topic_id in ids if topic_id in image.topic_names
            )
        for name in names:
            if name in image.topics:
                yield _topic(image.topics[name]), image.topics[name].partitions
        create = request.allow_auto_topic_creation and self._config.auto_create_topics_enable
        for name in names:
            if name not in image.topics:
                yield self._missing_topic(name, create=create), ()

    def _missing_topic(self, name: str, *, create: bool) -> _Topic:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if invalid_topic_reason(name) is not None:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif create:
            self._auto_topics.start_auto_creation(name)
        return _Topic(error_code=error, name=name, is_internal=is_internal_topic(name))

    # ---- DescribeCluster ------------------------------------------------------------------------

    def describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Answer a DescribeCluster request."""
        refused = refused_endpoint(request, context.api_version, ENDPOINT_BROKERS)
        if refused is not None:
            return refused
        image = self._metadata.image
        brokers = [
            _described_broker(broker, address)
            for _, broker in sorted(image.brokers.items())
            if (request.include_fenced_brokers or not broker.fenced)
            and (address := broker.address(context.listener)) is not None
        ]
        alive = [each.broker_id for each in brokers if image.is_alive(each.broker_id)]
        return DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=_controller_id(image, alive),
            brokers=brokers,
            cluster_authorized_operations=asked_operations(request),
        )

    # ---- DescribeTopicPartitions ----------------------------------------------------------------

    def describe_topic_partitions(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> Any:
        """Answer a DescribeTopicPartitions request."""
        return in_turns(self._described(request), context)

    def _described(
        self, request: DescribeTopicPartitionsRequest
    ) -> Generator[None, None, DescribeTopicPartitionsResponse]:
        """Answer by one image, with a `yield` between parts of `PART_MAX` topics."""
        image = self._metadata.image
        cursor = request.cursor
        first = "" if cursor is None else cursor.topic_name
        every = not request.topics
        names = set(image.topics) if every else {topic.name for topic in request.topics}
        if "" in names:  # Kafka's code fails on it
            return _refused_description(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if cursor is not None and (
            cursor.partition_index < 0 or (not every and cursor.topic_name not in names)
        ):
            return _refused_description(request, ErrorCode.INVALID_REQUEST)
        limit = min(self._config.max_request_partition_size_limit, request.response_partition_limit)
        room = max(limit, 1)
        response = DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
        for number, name in enumerate(sorted(name for name in names if name >= first), 1):
            if number % PART_MAX == 0:
                yield
            start = cursor.partition_index if cursor is not None and name == first else 0
            topic = image.topics.get(name)
            if room == 0:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=name, partition_index=0
                )
                break
            if topic is None:
                response.topics.append(_unknown_description(name))
                continue
            described = topic.partitions[start : start + room]
            response.topics.append(_described_topic(image, topic, described))
            if start + room < len(topic.partitions):
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=name, partition_index=start + room
                )
                break
            room -= len(described)
        return response


# ---- parts of answers -------------------------------------------------------------------------


def _topic(topic: TopicImage) -> _Topic:
    return _Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[],
    )


def _partition(image: ClusterImage, partition: PartitionImage, version: int) -> _Partition:
    has_leader = image.is_alive(partition.leader)
    replicas = list(partition.replicas)
    isr = list(partition.isr)
    error = ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE
    if version == 0:  # v0 has no field for offline replicas: it omits them and sets the error
        replicas = [node_id for node_id in replicas if image.is_alive(node_id)]
        isr = [node_id for node_id in isr if image.is_alive(node_id)]
        cut = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
        if has_leader and cut:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return _Partition(
        error_code=error,
        partition_index=partition.partition,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=_offline(image, partition),
    )


def _controller_id(image: ClusterImage, alive: Sequence[int]) -> int:
    """Return the broker that clients ask for what the controller decides, -1 if there is none.

    Kafka's brokers name any broker that is alive, as each of them forwards. Clients wait for ever
    for a controller that is not among the brokers of the answer.
    """
    if image.controller_id in alive:
        return image.controller_id
    return next(iter(alive), -1)


def _hide_leaders(reachable: set[int], topics: Iterable[_Topic], version: int) -> None:
    """Hide leaders without a listener of the client's name."""
    unreachable = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id >= 0 and partition.leader_id not in reachable:
                partition.error_code = unreachable
                partition.leader_id = -1


def _offline(image: ClusterImage, partition: PartitionImage) -> list[int]:
    return [node_id for node_id in partition.replicas if not image.has_online(partition, node_id)]


def _refusal(
    asked: Sequence[MetadataRequest.MetadataRequestTopic], version: int
) -> ErrorCode | None:
    """Return the error of a request's topics, if any."""
    for topic in asked:
        if version < _TOPIC_IDS_SINCE and (topic.name is None or topic.topic_id != ZERO_UUID):
            return ErrorCode.INVALID_REQUEST
    if any(topic.name is None and topic.topic_id == ZERO_UUID for topic in asked) and all(
        topic.topic_id == ZERO_UUID for topic in asked
    ):
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka, which fails on the missing name
    return None


def _refused(
    asked: Sequence[MetadataRequest.MetadataRequestTopic], error: ErrorCode
) -> MetadataResponse:
    return MetadataResponse(
        error_code=error,
        topics=[
            _Topic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in asked
        ],
    )


def _described_broker(
    broker: BrokerImage, address: tuple[str, int]
) -> DescribeClusterResponse.DescribeClusterBroker:
    return DescribeClusterResponse.DescribeClusterBroker(
        broker_id=broker.node_id,
        host=address[0],
        port=address[1],
        rack=broker.rack,
        is_fenced=broker.fenced,
    )


def _described_topic(
    image: ClusterImage, topic: TopicImage, partitions: Sequence[PartitionImage]
) -> _DescribedTopic:
    return _DescribedTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _DescribedPartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.partition,
                leader_id=partition.leader if image.is_alive(partition.leader) else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.eligible_leader_replicas),
                last_known_elr=list(partition.last_known_eligible_leader_replicas),
                offline_replicas=_offline(image, partition),
            )
            for partition in partitions
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _unknown_description(name: str) -> _DescribedTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if invalid_topic_reason(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _DescribedTopic(
        error_code=error,
        name=name,
        is_internal=is_internal_topic(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _refused_description(
    request: DescribeTopicPartitionsRequest, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[_DescribedTopic(error_code=error, name=topic.name) for topic in request.topics],
        next_cursor=None,
    )
