"""Cases: tiered topics as a whole: copying switched off, the tier left, deletion, the internal
topic of the remote metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import CRC_POSITION, patched
from compat.conformance.cases_configs import SET, TOPIC
from compat.conformance.tiered.cases_fetch import fetch, part
from compat.conformance.tiered.cases_offsets import NODES, borders
from compat.conformance.tiered.registry import case
from compat.conformance.tiered.session import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    one,
    several,
)

if TYPE_CHECKING:
    from compat.conformance.tiered.session import TieredSession

ON, OFF = "true", "false"
METADATA_TOPIC = "__remote_log_metadata"
UNKNOWN_TOPIC = 3


def alter(s: TieredSession, version: int, topic: str, **values: str) -> None:
    rows = [
        {"name": key.replace("_", "."), "config_operation": SET, "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": rows}
    s.ask("IncrementalAlterConfigs", version, resources=[resource])


@case("IncrementalAlterConfigs", 1)
def copying_stopped(s: TieredSession, version: int) -> None:
    """KIP-950: what is remote stays to be read; nothing new is copied until it may be again."""
    topic = s.tiered()
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    alter(s, version, topic, remote_log_copy_disable=ON)
    alter(s, version, topic, remote_log_copy_disable=ON, local_retention_bytes="-2")
    s.await_configs(topic, remote_log_copy_disable=ON)
    s.produce_at(1, topic, *several(5, 9))
    for node in NODES:
        s.await_offset(topic, LATEST, 9, node=node)
        borders(s, topic, node)
    for offset in (0, 3, 4, 8):
        fetch(s, 12, topic, part(offset=offset))
    alter(s, version, topic, remote_log_copy_disable=OFF, local_retention_bytes="1")
    s.await_tier(topic, local=8, tiered=7)
    borders(s, topic)


@case("IncrementalAlterConfigs", 1)
def expired_while_copying_is_stopped(s: TieredSession, version: int) -> None:
    """KIP-950: what was never copied goes as well, and copying goes on behind the hole."""
    topic = s.tiered()
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    alter(s, version, topic, remote_log_copy_disable=ON, local_retention_bytes="-2")
    s.await_configs(topic, remote_log_copy_disable=ON)
    s.produce_at(1, topic, *several(5, 9))
    alter(s, version, topic, retention_bytes="1")
    for node in NODES:
        s.await_offset(topic, EARLIEST, 8, node=node)
        borders(s, topic, node)
    for offset in (0, 3, 4, 7, 8):
        fetch(s, 12, topic, part(offset=offset))
    again = {"remote_log_copy_disable": OFF, "local_retention_bytes": "1", "retention_bytes": "-1"}
    alter(s, version, topic, **again)
    s.produce_at(1, topic, *several(9, 12))
    s.await_tier(topic, local=10, tiered=9)
    borders(s, topic)
    for offset in (7, 8, 9, 10):
        fetch(s, 12, topic, part(offset=offset))


@case("IncrementalAlterConfigs", 1)
def tier_left_and_joined_again(s: TieredSession, version: int) -> None:
    """KIP-950: with what is remote the log start goes; later only what is local then is copied."""
    topic = s.tiered()
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    alter(s, version, topic, remote_storage_enable=OFF)
    alter(s, version, topic, remote_storage_enable=OFF, remote_log_delete_on_disable=ON)
    for node in NODES:
        s.await_offset(topic, EARLIEST, 4, node=node)
        s.await_offset(topic, LATEST_TIERED, -1, node=node)
        borders(s, topic, node)
    for offset in (0, 3, 4, 5):
        fetch(s, 12, topic, part(offset=offset))
    alter(s, version, topic, remote_storage_enable=ON)
    s.await_configs(topic, remote_storage_enable=ON)
    s.produce_at(1, topic, *several(5, 7))
    s.await_tier(topic, local=6, tiered=5)
    borders(s, topic)
    for offset in (3, 4, 5, 6):
        fetch(s, 12, topic, part(offset=offset))


@case("IncrementalAlterConfigs", 1)
def joined_later(s: TieredSession, version: int) -> None:
    """A topic that was there before goes to the tier as far as it is sealed."""
    topic = s.small_segments()
    s.produce_at(1, topic, *several(0, 5))
    alter(s, version, topic, remote_storage_enable=ON, local_retention_bytes="1")
    s.await_tier(topic, local=4, tiered=3)
    borders(s, topic)
    fetch(s, 12, topic, part(offset=1))


@case("DeleteTopics", 6)
def deleted_and_created_again(s: TieredSession, version: int) -> None:
    """A topic of the same name has nothing of the one that was deleted."""
    topic = s.tiered()
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    old = s.topic_id(topic)
    s.ask("DeleteTopics", version, topics=[{"name": topic}], timeout_ms=60_000)
    for node in NODES:
        s.wait(
            "it is gone",
            "Metadata",
            12,
            lambda answer: answer["topics"][0]["error_code"] == UNKNOWN_TOPIC,
            connection=node,
            topics=[{"name": topic}],
            allow_auto_topic_creation=False,
        )
    borders(s, topic)
    s._topics -= 1  # the same name again
    assert s.tiered() == topic
    borders(s, topic)
    s.produce_at(1, topic, *several(0, 3))
    s.await_tier(topic, local=2, tiered=1)
    borders(s, topic)
    fetch(s, 12, topic, part(offset=3))
    fetch(s, 12, topic, part(offset=0))
    row = {"topic_id": old, "partitions": [part()]}
    s.ask("Fetch", 13, topics=[row], max_wait_ms=50, min_bytes=1, max_bytes=1000)


@case("AlterPartitionReassignments", 1)
def replica_added(s: TieredSession, version: int) -> None:
    """It takes over only what is local, and leads with all that is remote."""
    topic = s.tiered([1])
    s.produce_at(1, topic, *several(0, 5))
    s.await_offset(topic, LATEST_TIERED, 3)
    s.await_offset(topic, EARLIEST_LOCAL, 4)
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [2, 1]}]}]
    s.ask("AlterPartitionReassignments", version, topics=rows, timeout_ms=60_000)
    s.await_partition(topic, replica_nodes=[2, 1], isr_nodes=[1, 2])
    s.await_tier(topic, local=4, tiered=3)
    borders(s, topic, "2")
    s.at_each("DescribeLogDirs", 4, topics=[{"topic": topic, "partitions": [0]}])
    s.prefer(topic)
    s.await_partition(topic, leader_id=2)
    s.await_leaders(topic, [[2, 1]], 2)
    borders(s, topic, "2")
    for offset in (0, 3, 4, 5):
        fetch(s, 12, topic, part(offset=offset), connection="2")
    s.produce_at(2, topic, *several(5, 7))
    s.await_tier(topic, local=6, tiered=5)
    borders(s, topic, "2")
    for epoch in (0, 1):
        row = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": -1}
        asked: dict[str, Any] = {"topics": [{"topic": topic, "partitions": [row]}]}
        s.ask("OffsetForLeaderEpoch", 4, connection="2", replica_id=-1, **asked)


@case("AlterPartitionReassignments", 1)
def replica_added_that_has_nothing(s: TieredSession, version: int) -> None:
    """All is remote: it has no record of its own, and tells what is copied as its leader does."""
    topic = s.all_tiered([1])
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}]
    s.ask("AlterPartitionReassignments", version, topics=rows, timeout_ms=60_000)
    s.await_partition(topic, replica_nodes=[1, 2], isr_nodes=[1, 2])
    s.await_tier(topic, local=3, tiered=2)
    for node in NODES:
        borders(s, topic, node)


@case("DescribeLogDirs", first=2)
def local_sizes(s: TieredSession, version: int) -> None:
    """What a partition takes here is its local part; the remote one has no field."""
    for name in ("spread", "untiered"):
        topics = [{"topic": s.layouts[name], "partitions": [0]}]
        s.at_each("DescribeLogDirs", version, topics=topics)


@case("DescribeTopicPartitions")
def described(s: TieredSession, version: int) -> None:
    s.ask("DescribeTopicPartitions", version, topics=[{"name": s.layouts["spread"]}])


def internal(s: TieredSession) -> dict[str, Any]:
    """The topic of the remote metadata; some tiered topic was made before."""
    assert s.layouts["spread"]
    return s.await_topic_known(METADATA_TOPIC)


@case("Metadata", 1, 4, 8, 12)
def of_remote_metadata(s: TieredSession, version: int) -> None:
    internal(s)
    topics = [{"name": METADATA_TOPIC}]
    more: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    answer = s.quietly("Metadata", version, topics=topics, **more)
    (topic,) = answer["topics"]
    rows = topic.pop("partitions")
    s.record("Metadata", topic)
    s.record("Metadata", sorted(len(row["replica_nodes"]) for row in rows))


@case("DescribeTopicPartitions")
def of_remote_metadata_described(s: TieredSession, version: int) -> None:
    internal(s)
    answer = s.quietly("DescribeTopicPartitions", version, topics=[{"name": METADATA_TOPIC}])
    (topic,) = answer["topics"]
    s.record("DescribeTopicPartitions", [len(topic.pop("partitions")), topic])


@case("DescribeConfigs", 4)
def of_remote_metadata_configured(s: TieredSession, version: int) -> None:
    """Its own settings, and those of the tier."""
    internal(s)
    resource = {"resource_type": TOPIC, "resource_name": METADATA_TOPIC, "configuration_keys": None}
    fields: dict[str, Any] = {"include_synonyms": True}
    answer = s.quietly("DescribeConfigs", version, resources=[resource], **fields)
    dynamic = 1  # said of the topic itself
    listed = answer["results"][0]["configs"]
    s.record(
        "DescribeConfigs",
        {
            each["name"]: each
            for each in listed
            if each["config_source"] == dynamic or each["name"].startswith(("remote.", "local."))
        },
    )


@case("Produce", 9)
def into_remote_metadata(s: TieredSession, version: int) -> None:
    """Whether clients may: what they send here has a wrong checksum, so nothing is appended."""
    internal(s)
    wrong = patched(one(0), CRC_POSITION, b"\0\0\0\0")
    data = [{"name": METADATA_TOPIC, "partition_data": [{"index": 0, "records": wrong}]}]
    leader = next(
        row["leader_id"] for row in internal(s)["partitions"] if row["partition_index"] == 0
    )
    s.ask(
        "Produce",
        version,
        connection=str(leader),
        acks=-1,
        timeout_ms=60_000,
        topic_data=data,
    )


@case("DeleteRecords", 2)
def of_remote_metadata_records(s: TieredSession, version: int) -> None:
    rows = internal(s)["partitions"]
    leader = next(row["leader_id"] for row in rows if row["partition_index"] == 0)
    partitions = [{"partition_index": 0, "offset": 0}]
    topics = [{"name": METADATA_TOPIC, "partitions": partitions}]
    s.ask("DeleteRecords", version, connection=str(leader), topics=topics, timeout_ms=60_000)


@case("IncrementalAlterConfigs", 1)
def of_remote_metadata_altered(s: TieredSession, version: int) -> None:
    internal(s)
    for key, value in (
        ("remote.storage.enable", ON),
        ("cleanup.policy", "compact"),
        ("retention.ms", "1000"),
        ("local.retention.ms", "1000"),
    ):
        rows = [{"name": key, "config_operation": SET, "value": value}]
        resource = {"resource_type": TOPIC, "resource_name": METADATA_TOPIC, "configs": rows}
        fields: dict[str, Any] = {"resources": [resource], "validate_only": True}
        s.ask("IncrementalAlterConfigs", version, **fields)


@case("CreatePartitions", 3)
def more_of_remote_metadata(s: TieredSession, version: int) -> None:
    internal(s)
    row = {"name": METADATA_TOPIC, "count": 6, "assignments": None}
    s.ask("CreatePartitions", version, topics=[row], timeout_ms=60_000, validate_only=True)


@case("CreateTopics", 7)
def remote_metadata_again(s: TieredSession, version: int) -> None:
    internal(s)
    row = {"name": METADATA_TOPIC, "num_partitions": 5, "replication_factor": 2}
    s.ask("CreateTopics", version, topics=[row], timeout_ms=60_000, validate_only=True)
