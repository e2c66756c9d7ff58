"""Pure decisions about topics: a request and an image → metadata records and the response.

Each function returns a `Decision` and changes nothing. The records of a decision are one batch of
the metadata log, so that they are all written or none of them. A CreateTopics of many topics has
several decisions (`Creation`): a topic is created as a whole or not at all, the request is not.
Error codes, their order and their texts are Apache Kafka 4.3's (KIP-4, 195, 464, 516, 525, 599).

Not supported: authorization and create-topic policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.configs import validate_topic_configs
from tidelog.cluster.controller.decisions import Decision, RefusedError, repeated
from tidelog.cluster.controller.names import invalid_topic_reason
from tidelog.cluster.controller.placement import (
    PlacementError,
    assignment_problem,
    directory_of,
    place,
)
from tidelog.cluster.controller.tiered_topics import REMOTE_STORAGE_ENABLE, joins_tier
from tidelog.cluster.metadata.describe import effective_topic_configs
from tidelog.cluster.metadata.image import CLUSTER_METADATA_TOPIC, RESOURCE_TOPIC
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
)
from tidelog_protocol.messages.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from tidelog.cluster.controller.decisions import Charge
    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.seams import Rng
    from tidelog_protocol.messages.admin import (
        CreatePartitionsRequest,
        CreateTopicsRequest,
    )
    from tidelog_protocol.schema import Message

PARTITIONS_PER_REQUEST_MAX = 10_000


# ---- create -----------------------------------------------------------------------------------


class Creation:
    """One CreateTopics, decided in steps: between them the caller writes the records of a step.

    Results are as requested, then duplicates, then the prohibited name. A name that another request
    took between two steps is there already, as in Kafka; topics of this request do not collide with
    each other.
    """

    def __init__(
        self,
        request: CreateTopicsRequest,
        config: BrokerConfig,
        rng: Rng,
        charge: Charge | None = None,
    ) -> None:
        names = [topic.name for topic in request.topics]
        self._config, self._rng, self._charge = config, rng, charge
        self._duplicates = repeated(names)
        self._has_prohibited = CLUSTER_METADATA_TOPIC in names
        asked = _partitions_asked(request, config.num_partitions)
        self._is_excessive = asked > PARTITIONS_PER_REQUEST_MAX
        self._left = [
            topic
            for topic in request.topics
            if topic.name not in self._duplicates and topic.name != CLUSTER_METADATA_TOPIC
        ]
        self._last: list[CreateTopicsRequest.CreatableTopic] = []
        self._made: set[str] = set()
        self._configs: dict[
            Any, list[CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs]
        ] = {}
        self._configs_by: object = None  # the settings of brokers that `_configs` are by

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to decide."""
        return not self._left

    def count_within(self, topics_max: int, replicas_max: int) -> int:
        """Return how many of the next topics, at least one, have at most so many replicas."""
        replicas = 0
        for count, topic in enumerate(self._left[:topics_max]):
            partitions = max(len(topic.assignments), topic.num_partitions)
            replicas += partitions * max(topic.replication_factor, 1)
            if count and replicas > replicas_max:
                return count
        return topics_max

    def step(
        self, image: ClusterImage, count: int
    ) -> Decision[CreateTopicsResponse.CreatableTopicResult]:
        """Decide the next topics by the newest image."""
        self._last, self._left = self._left[:count], self._left[count:]
        return self._decide(image, self._charge)

    def again(self, image: ClusterImage) -> Decision[CreateTopicsResponse.CreatableTopicResult]:
        """Decide the topics of the last step again, by another image; they are charged already."""
        self._made -= {topic.name for topic in self._last}
        return self._decide(image, None)

    def _decide(
        self, image: ClusterImage, charge: Charge | None
    ) -> Decision[CreateTopicsResponse.CreatableTopicResult]:
        unified = _unified_names(image, [topic.name for topic in self._last], self._made)
        records: list[Message] = []
        results = []
        for topic in self._last:
            try:
                if self._is_excessive:
                    raise RefusedError(
                        ErrorCode.POLICY_VIOLATION,
                        "Excessively large number of partitions per request.",
                    )
                _check_new_name(image, topic.name, unified)
                new, result = self._create(image, topic, charge)
            except RefusedError as refusal:
                result = _create_error(topic.name, refusal.code, refusal.message)
            else:
                records += new
                self._made.add(topic.name)
            results.append(result)
        return Decision(records, results)

    def _create(
        self, image: ClusterImage, topic: CreateTopicsRequest.CreatableTopic, charge: Charge | None
    ) -> tuple[list[Message], CreateTopicsResponse.CreatableTopicResult]:
        overrides = _creation_configs(topic.configs)
        if joins_tier(topic.name, overrides, self._config):
            overrides[REMOTE_STORAGE_ENABLE] = "true"
        error = validate_topic_configs(self._config, image, overrides)
        if error is not None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, error)
        replicas = _new_replicas(image, topic, self._config, self._rng)
        if charge is not None:
            charge.take(len(replicas))
        topic_id = self._rng.uuid()
        records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        records += [
            ConfigRecord(
                resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value
            )
            for name, value in overrides.items()
        ]
        records += _partition_records(image, topic_id, 0, replicas)
        result = CreateTopicsResponse.CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            num_partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=self._described(image, overrides),
        )
        return records, result

    def _described(
        self, image: ClusterImage, overrides: Mapping[str, str]
    ) -> list[CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs]:
        """Return the settings of a new topic. Those with the same ones share the list."""
        if image.broker_configs is not self._configs_by:
            self._configs_by = image.broker_configs
            self._configs.clear()
        key = tuple(overrides.items())
        if key not in self._configs:
            self._configs[key] = [
                CreateTopicsResponse.CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=False,
                    config_source=entry.source,
                    is_sensitive=False,
                )
                for entry in effective_topic_configs(self._config, image, overrides)
            ]
        return self._configs[key]

    def refusals(self) -> list[CreateTopicsResponse.CreatableTopicResult]:
        """Return the results of names that are not looked at."""
        results = [
            _create_error(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            for name in self._duplicates
        ]
        if self._has_prohibited and CLUSTER_METADATA_TOPIC not in self._duplicates:
            message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            code = ErrorCode.INVALID_REQUEST
            results.append(_create_error(CLUSTER_METADATA_TOPIC, code, message))
        return results


def _check_new_name(image: ClusterImage, name: str, unified: Mapping[str, str]) -> None:
    if name in image.topics:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    reason = invalid_topic_reason(name)
    if reason is not None:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    other = unified.get(name.replace(".", "_"))
    if other is not None:
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _unified_names(
    image: ClusterImage, names: Iterable[str], without: AbstractSet[str]
) -> dict[str, str]:
    """Return the topics by the names that their metrics have. Kafka replaces '.' by '_' there, so
    two such topics would be one. Empty if no new name has either."""
    if not any("." in name or "_" in name for name in names):
        return {}
    unified: dict[str, str] = {}
    for name in image.topics:
        if name not in without:
            unified.setdefault(name.replace(".", "_"), name)
    return unified


def _creation_configs(
    configs: Sequence[CreateTopicsRequest.CreatableTopic.CreatableTopicConfig],
) -> dict[str, str]:
    nulls = [entry.name for entry in configs if entry.value is None]
    if nulls:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    return {entry.name: entry.value for entry in configs if entry.value is not None}


def _new_replicas(
    image: ClusterImage,
    topic: CreateTopicsRequest.CreatableTopic,
    config: BrokerConfig,
    rng: Rng,
) -> list[tuple[int, ...]]:
    """Return the replicas by partition, from the request's assignment or by `place`."""
    if topic.assignments:
        return _assigned_replicas(image, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    partitions = topic.num_partitions if topic.num_partitions != -1 else config.num_partitions
    factor = (
        topic.replication_factor
        if topic.replication_factor != -1
        else config.default_replication_factor
    )
    try:
        return place(image.brokers.values(), partitions, factor, rng)
    except PlacementError as error:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): {error}",
        ) from None


def _assigned_replicas(
    image: ClusterImage, topic: CreateTopicsRequest.CreatableTopic
) -> list[tuple[int, ...]]:
    for asked, what in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if asked != -1:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    replicas: dict[int, tuple[int, ...]] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in replicas:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        factor = _check_assignment(image, index, assignment.broker_ids, factor)
        replicas[index] = tuple(assignment.broker_ids)
    if any(index not in replicas for index in range(len(replicas))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [replicas[index] for index in range(len(replicas))]


def _check_assignment(
    image: ClusterImage, partition: int, brokers: Sequence[int], factor: int | None
) -> int:
    """Check one partition's assignment and return its replication factor."""
    problem = assignment_problem(image, brokers)
    if problem is None and factor is not None and len(brokers) != factor:
        problem = (
            f"The manual partition assignment includes a partition with {len(brokers)} "
            "replica(s), but this is not consistent "
            f"with previous partitions, which have {factor} replica(s)."
        )
    if problem is None and not any(image.is_active(broker) for broker in brokers):
        problem = (
            "All brokers specified in the manual partition assignment for partition "
            f"{partition} are fenced or in controlled shutdown."
        )
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return len(brokers)


def _partition_records(
    image: ClusterImage, topic_id: bytes, first: int, assigned: Sequence[tuple[int, ...]]
) -> Iterator[PartitionRecord]:
    """Yield the records of new partitions, `first` and those after it, by their replicas."""
    in_sync = {each: [one for one in each if image.is_active(one)] for each in set(assigned)}
    directories = {each: [directory_of(image, one) for one in each] for each in in_sync}
    for index, replicas in enumerate(assigned, first):
        isr = in_sync[replicas]
        assert isr, "a partition has at least one active broker"
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=directories[replicas],
        )


def _partitions_asked(request: CreateTopicsRequest, partitions_default: int) -> int:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += (
                partitions_default if topic.num_partitions == -1 else max(topic.num_partitions, 0)
            )
    return total


def _create_error(
    name: str, code: ErrorCode, message: str | None
) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=code, error_message=message, configs=[]
    )


# ---- grow -------------------------------------------------------------------------------------


def create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, rng: Rng, charge: Charge | None = None
) -> Decision[CreatePartitionsResponse.CreatePartitionsTopicResult]:
    """Decide a CreatePartitions. Results: duplicates first, then as requested."""
    duplicates = repeated(topic.name for topic in request.topics)
    results = [
        _grow_result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name in duplicates
    ]
    records: list[Message] = []
    for topic in request.topics:
        if topic.name in duplicates:
            continue
        try:
            room = PARTITIONS_PER_REQUEST_MAX - len(records)
            records += _grow(image, topic, rng, charge, room)
        except RefusedError as refusal:
            results.append(_grow_result(topic.name, refusal.code, refusal.message))
        else:
            results.append(_grow_result(topic.name, ErrorCode.NONE, None))
    return Decision([] if request.validate_only else records, results)


def _grow(
    image: ClusterImage,
    topic: CreatePartitionsRequest.CreatePartitionsTopic,
    rng: Rng,
    charge: Charge | None,
    room: int,
) -> list[Message]:
    known = image.topics.get(topic.name)
    if known is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    count = len(known.partitions)
    if topic.count == count:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if topic.count < count:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {count} partition(s); "
            f"{topic.count} would not be an increase.",
        )
    additional = topic.count - count
    if additional > room:
        # Kafka's list of a request's records is too long then (BoundedListTooLongException), which
        # it does not expect here.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    replicas = _grown_replicas(image, known, topic, additional, rng)
    if charge is not None:
        charge.take(additional)
    return [*_partition_records(image, known.topic_id, count, replicas)]


def _grown_replicas(
    image: ClusterImage,
    known: TopicImage,
    topic: CreatePartitionsRequest.CreatePartitionsTopic,
    additional: int,
    rng: Rng,
) -> list[tuple[int, ...]]:
    factor = len(known.partitions[0].replicas)
    if topic.assignments is None:
        try:
            return place(image.brokers.values(), additional, factor, rng)
        except PlacementError as error:
            raise RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None
    if len(topic.assignments) != additional:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(topic.assignments)} assignment(s) were specified.",
        )
    for index, assignment in enumerate(topic.assignments, len(known.partitions)):
        _check_assignment(image, index, assignment.broker_ids, factor)
    return [tuple(assignment.broker_ids) for assignment in topic.assignments]


def _grow_result(
    name: str, code: ErrorCode, message: str | None
) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(
        name=name, error_code=code, error_message=message
    )
