"""Cases: requests to the controller that leave it no time, which change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

UNKNOWN_ID = bytes(range(16))


def asks(s: Session, api: str, version: int, *requests: dict[str, Any]) -> None:
    """Each request with no time and with less."""
    for fields in requests:
        for timeout_ms in (0, -1):
            s.ask(api, version, timeout_ms=timeout_ms, **fields)


@case("CreateTopics")
def creation_in_no_time(s: Session, version: int) -> None:
    rows = [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in (f"{s.name}.a", f"{s.name}.a b")
    ]
    asks(s, "CreateTopics", version, {"topics": rows}, {"topics": []})
    names = [{"name": f"{s.name}.a"}]
    s.ask("Metadata", 8, topics=names, allow_auto_topic_creation=False)


@case("DeleteTopics")
def deletion_in_no_time(s: Session, version: int) -> None:
    name = s.topic()
    names = [name, f"{s.name}.none"]
    if version < 6:
        asks(s, "DeleteTopics", version, {"topic_names": names}, {"topic_names": []})
    else:
        rows = [*({"name": one} for one in names), {"name": None, "topic_id": UNKNOWN_ID}]
        asks(s, "DeleteTopics", version, {"topics": rows}, {"topics": []})
    s.ask("Metadata", 8, topics=[{"name": name}], allow_auto_topic_creation=False)


@case("CreatePartitions")
def growth_in_no_time(s: Session, version: int) -> None:
    name = s.topic()
    rows = [{"name": one, "count": 2, "assignments": None} for one in (name, f"{s.name}.none")]
    asks(s, "CreatePartitions", version, {"topics": rows}, {"topics": []})
    s.ask("Metadata", 8, topics=[{"name": name}], allow_auto_topic_creation=False)


@case("ElectLeaders")
def election_in_no_time(s: Session, version: int) -> None:
    kind: dict[str, Any] = {} if version == 0 else {"election_type": 0}
    rows = [{"topic": s.topic(), "partitions": [0, 5]}]
    asks(s, "ElectLeaders", version, *({"topic_partitions": of, **kind} for of in (rows, None, [])))


@case("AlterPartitionReassignments")
def move_in_no_time(s: Session, version: int) -> None:
    rows = [{"partition_index": index, "replicas": [1]} for index in (0, 5)]
    topics = [{"name": s.topic(), "partitions": rows}]
    asks(s, "AlterPartitionReassignments", version, {"topics": topics}, {"topics": []})
    s.ask("AlterPartitionReassignments", version, topics=[], timeout_ms=5000)


@case("ListPartitionReassignments")
def moves_listed_in_no_time(s: Session, version: int) -> None:
    rows = [{"name": s.topic(), "partition_indexes": [0, 3]}]
    asks(s, "ListPartitionReassignments", version, *({"topics": of} for of in (rows, None)))


@case("UpdateFeatures")
def features_in_no_time(s: Session, version: int) -> None:
    kind = {} if version == 0 else {"validate_only": True}
    asks(s, "UpdateFeatures", version, {"feature_updates": [], **kind})
