"""Creating and growing topics; texts and codes are those of a Kafka 4.3.1 for the same requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.metadata import (
    DIRECTORY_ID,
    CountedRng,
    broker_config,
    cluster,
    decide_creation,
    names_of,
    topic,
)
from tidelog.cluster.controller.topics import create_partitions
from tidelog.cluster.metadata.image import BrokerImage
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreatePartitionsRequest, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

Topic = CreateTopicsRequest.CreatableTopic
Assignment = Topic.CreatableReplicaAssignment
Setting = Topic.CreatableTopicConfig


def asked(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    settings: dict[str, str | None] | None = None,
    assignments: list[tuple[int, list[int]]] | None = None,
) -> Topic:
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[Setting(name=key, value=value) for key, value in (settings or {}).items()],
        assignments=[
            Assignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments or []
        ],
    )


def create(*topics: Topic, image: Any = None, validate_only: bool = False, **settings: str) -> Any:
    return decide_creation(
        image or cluster(),
        CreateTopicsRequest(topics=list(topics), validate_only=validate_only),
        broker_config(**settings),
    )


def error(*topics: Topic, **options: Any) -> tuple[ErrorCode, str]:
    decision = create(*topics, **options)
    assert decision.records == []
    result = decision.results[-1]
    assert result.num_partitions == result.replication_factor == -1
    assert result.configs == []
    return result.error_code, result.error_message


def test_records_of_a_new_topic() -> None:
    decision = create(asked("t", 2, settings={"retention.ms": "5", "cleanup.policy": "compact"}))
    assert names_of(decision.records) == [
        "TopicRecord",
        "ConfigRecord",
        "ConfigRecord",
        "PartitionRecord",
        "PartitionRecord",
    ]
    head, retention, _, first, second = decision.records
    topic_id = (1).to_bytes(16, "big")
    assert (head.name, head.topic_id) == ("t", topic_id)
    assert (retention.resource_type, retention.resource_name) == (2, "t")
    assert (retention.name, retention.value) == ("retention.ms", "5")
    assert [first.partition_id, second.partition_id] == [0, 1]
    assert (first.replicas, first.isr, first.leader) == ([1], [1], 1)
    assert (first.leader_epoch, first.partition_epoch) == (0, 0)
    assert first.directories == [DIRECTORY_ID]


def test_answer_describes_the_new_topic() -> None:
    decision = create(
        asked("t", 2, settings={"retention.ms": "5"}),
        log_retention_hours="100",
        message_max_bytes="5000",
    )
    (result,) = decision.results
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    entries = {entry.name: entry for entry in result.configs}
    assert list(entries) == sorted(entries)
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("5", 1)
    assert entries["max.message.bytes"].value == "5000"
    assert entries["max.message.bytes"].config_source == 4
    assert (entries["segment.ms"].value, entries["segment.ms"].config_source) == ("604800000", 5)
    assert entries["min.cleanable.dirty.ratio"].value == "0.5"
    assert entries["follower.replication.throttled.replicas"].value == ""
    assert "internal.segment.bytes" not in entries
    hours = create(asked("t"), log_retention_hours="100").results[0]
    retention = next(entry for entry in hours.configs if entry.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("360000000", 4)


def test_defaults_of_the_broker() -> None:
    decision = create(asked("t", -1, -1), num_partitions="3")
    assert decision.results[0].num_partitions == 3
    assert names_of(decision.records).count("PartitionRecord") == 3


def test_validate_only_writes_nothing() -> None:
    decision = create(asked("t", 3), validate_only=True)
    assert decision.records == []
    assert decision.results[0].num_partitions == 3
    assert decision.results[0].topic_id != bytes(16)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        (
            "x/y",
            "'x/y' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
        (
            "t\u00f6pic",
            "'t\u00f6pic' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
    ],
)
def test_impossible_names(name: str, text: str) -> None:
    expected = (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {text}")
    assert error(asked(name)) == expected


def test_longest_name() -> None:
    assert create(asked("x" * 249)).results[0].error_code == ErrorCode.NONE


def test_existing_and_colliding_names() -> None:
    image = cluster(topic("a.b", 9))
    assert error(asked("a.b"), image=image) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'a.b' already exists.",
    )
    assert error(asked("a_b"), image=image) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b",
    )
    assert create(asked("a-b"), image=image).results[0].error_code == ErrorCode.NONE


def test_many_names_that_may_collide_cost_one_look_at_all_topics() -> None:
    """A CreateTopics of 9,000 names with '.' or '_' compared each with each topic, for 6.7 s."""

    class Topics(dict[str, Any]):
        walks = 0

        def __iter__(self) -> Iterator[str]:
            self.walks += 1
            return super().__iter__()

    image = cluster(topic("a.b", 9), topic("a.c", 8))
    topics = Topics(image.topics)
    image = image._replace(topics=topics)
    decision = create(*(asked(f"a_{letter}") for letter in "bcdefgh"), image=image)
    codes = [result.error_code for result in decision.results]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2 + [ErrorCode.NONE] * 5
    assert topics.walks == 1


def test_duplicates_are_refused_and_the_others_made() -> None:
    decision = create(asked("d"), asked("d"), asked("e"), asked("d"))
    assert [(result.name, result.error_code) for result in decision.results] == [
        ("e", ErrorCode.NONE),
        ("d", ErrorCode.INVALID_REQUEST),
    ]
    assert decision.results[1].error_message == "Duplicate topic name."
    assert names_of(decision.records) == ["TopicRecord", "PartitionRecord"]


def test_the_metadata_topic_cannot_be_created() -> None:
    assert error(asked("__cluster_metadata")) == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )


@pytest.mark.parametrize("partitions", [0, -2])
def test_partition_counts(partitions: int) -> None:
    assert error(asked("t", partitions)) == (
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    )


@pytest.mark.parametrize("replicas", [0, -2])
def test_replication_factors(replicas: int) -> None:
    assert error(asked("t", 0, replicas)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    )


def test_too_few_brokers() -> None:
    assert error(asked("t", 1, 2)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be "
        "reached because only 1 broker(s) are registered or some brokers have all their log "
        "directories cordoned.",
    )


def test_all_fenced() -> None:
    image = cluster(brokers=[BrokerImage(1, "h", 1, fenced=True)])
    code, text = error(asked("t"), image=image)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert text.endswith(
        "All brokers are currently fenced, or have all their log directories cordoned."
    )


def test_excessive_requests() -> None:
    decision = create(asked("a", 6000), asked("b", 4001))
    assert decision.records == []
    assert [result.error_code for result in decision.results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert (
        decision.results[0].error_message == "Excessively large number of partitions per request."
    )


MANUAL = "The manual partition assignment includes"


@pytest.mark.parametrize(
    ("partitions", "replicas", "assignments", "code", "text"),
    [
        (1, 1, [(0, [1])], 42, "replication factor was not set to -1."),
        (-1, 1, [(0, [1])], 42, "replication factor was not set to -1."),
        (1, -1, [(0, [1])], 42, "numPartitions was not set to -1."),
        (-1, -1, [(0, [7])], 39, f"{MANUAL} broker 7, but no such broker is registered."),
        (-1, -1, [(0, [1, 1])], 39, f"{MANUAL} the broker 1 more than once."),
        (-1, -1, [(0, [])], 39, f"{MANUAL} an empty replica list."),
        (
            -1,
            -1,
            [(0, [1]), (2, [1])],
            39,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            -1,
            -1,
            [(0, [1]), (0, [1])],
            39,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            -1,
            -1,
            [(0, [1]), (1, [1, 2])],
            39,
            f"{MANUAL} a partition with 2 replica(s), but this is not consistent with previous "
            "partitions, which have 1 replica(s).",
        ),
        (
            -1,
            -1,
            [(0, [3])],
            39,
            "All brokers specified in the manual partition assignment for partition 0 are fenced "
            "or in controlled shutdown.",
        ),
    ],
)
def test_bad_assignments(
    partitions: int, replicas: int, assignments: Any, code: int, text: str
) -> None:
    brokers = [BrokerImage(1, "h", 1), BrokerImage(2, "h", 2), BrokerImage(3, "h", 3, fenced=True)]
    found = error(
        asked("t", partitions, replicas, assignments=assignments), image=cluster(brokers=brokers)
    )
    assert found[0] == code
    assert found[1].endswith(text)


def test_manual_assignment() -> None:
    brokers = [BrokerImage(1, "h", 1), BrokerImage(2, "h", 2), BrokerImage(3, "h", 3, fenced=True)]
    decision = create(
        asked("t", -1, -1, assignments=[(1, [3, 2]), (0, [2, 1])]), image=cluster(brokers=brokers)
    )
    first, second = decision.records[1:]
    assert (first.replicas, first.isr, first.leader) == ([2, 1], [2, 1], 2)
    assert (second.replicas, second.isr, second.leader) == ([3, 2], [2], 2)
    assert decision.results[0].replication_factor == 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"nope": "1"}, "Unknown topic config name: nope"),
        (
            {"retention.ms": "x"},
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"retention.ms": "-5"},
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"cleanup.policy": "foo"},
            "Invalid value foo for configuration cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            {"retention.ms": None, "flush.ms": None},
            "Null value not supported for topic configs: retention.ms,flush.ms",
        ),
        (
            {"segment.bytes": "3"},
            "Invalid value 3 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        (
            {"preallocate": "yes"},
            "Invalid value yes for configuration preallocate: "
            "Expected value to be either true or false",
        ),
        (
            {"min.cleanable.dirty.ratio": "2"},
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: "
            "Value must be no more than 1",
        ),
        (
            {"min.insync.replicas": "0"},
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        (
            {"segment.bytes": "12345678901"},
            "Invalid value 12345678901 for configuration segment.bytes: Not a number of type INT",
        ),
    ],
)
def test_bad_settings(settings: dict[str, str | None], text: str) -> None:
    assert error(asked("t", settings=settings)) == (ErrorCode.INVALID_CONFIG, text)


# ---- growing ----------------------------------------------------------------------------------

Grown = CreatePartitionsRequest.CreatePartitionsTopic


def grow(*asked_for: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Any:
    topics = [
        Grown(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else [Grown.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
        )
        for name, count, assignments in asked_for
    ]
    image = cluster(topic("a.b", 9, partitions=2), topic("e", 8))
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return create_partitions(image, request, CountedRng())


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "text"),
    [
        ("none", 3, None, 3, None),
        ("a.b", 2, None, 37, "Topic already has 2 partition(s)."),
        (
            "a.b",
            1,
            None,
            37,
            "The topic a.b currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            "e",
            -1,
            None,
            37,
            "The topic e currently has 1 partition(s); -1 would not be an increase.",
        ),
        (
            "a.b",
            4,
            [[1]],
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "a.b",
            3,
            [],
            39,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        ("a.b", 3, [[2]], 39, f"{MANUAL} broker 2, but no such broker is registered."),
        ("a.b", 3, [[1, 1]], 39, f"{MANUAL} the broker 1 more than once."),
        ("a.b", 3, [[]], 39, f"{MANUAL} an empty replica list."),
        ("a.b", 10_003, None, -1, None),
    ],
)
def test_growth_that_is_refused(
    name: str, count: int, assignments: Any, code: int, text: str | None
) -> None:
    decision = grow((name, count, assignments))
    (result,) = decision.results
    assert (result.name, result.error_code, result.error_message) == (name, code, text)
    assert decision.records == []


def test_growth() -> None:
    decision = grow(("a.b", 4, None), ("e", 2, [[1]]))
    assert [result.error_code for result in decision.results] == [0, 0]
    assert [(record.topic_id[-1], record.partition_id) for record in decision.records] == [
        (9, 2),
        (9, 3),
        (8, 1),
    ]
    assert decision.records[0].leader_epoch == 0


def test_growth_of_several_topics_has_one_limit() -> None:
    """1,000 topics grown by 10,000 partitions each were one batch of the metadata log."""
    decision = grow(("a.b", 6002, None), ("e", 4002, None))
    assert [each.error_code for each in decision.results] == [0, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert len(decision.records) == 6000


def test_growth_of_duplicates() -> None:
    decision = grow(("e", 2, None), ("a.b", 3, None), ("e", 3, None))
    assert [(result.name, result.error_code) for result in decision.results] == [
        ("e", ErrorCode.INVALID_REQUEST),
        ("a.b", ErrorCode.NONE),
    ]
    assert decision.results[0].error_message == "Duplicate topic name."


def test_growth_validated_only() -> None:
    decision = grow(("e", 2, None), validate_only=True)
    assert decision.results[0].error_code == ErrorCode.NONE
    assert decision.records == []
