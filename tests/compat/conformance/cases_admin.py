"""Cases: CreateTopics, DeleteTopics, CreatePartitions, DescribeLogDirs, AlterReplicaLogDirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

UNKNOWN_ID = bytes(range(16))
NONE = 0


def wanted(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


def configs(**values: str | None) -> list[dict[str, Any]]:
    return [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]


def create(s: Session, version: int, *topics: dict[str, Any], **more: Any) -> Any:
    return s.ask("CreateTopics", version, topics=list(topics), timeout_ms=10_000, **more)


@case("CreateTopics")
def created(s: Session, version: int) -> None:
    name = s.name
    create(s, version, wanted(f"{name}.a"), wanted(f"{name}.b", partitions=3))
    create(s, version, wanted(f"{name}.a"), wanted(f"{name}.c"))
    create(s, version)


@case("CreateTopics", first=4)
def defaults(s: Session, version: int) -> None:
    create(s, version, wanted(f"{s.name}.a", partitions=-1, replicas=-1))


@case("CreateTopics")
def validated_only(s: Session, version: int) -> None:
    create(s, version, wanted(f"{s.name}.a"), validate_only=True)
    create(s, version, wanted(f"{s.name}.a", partitions=0), validate_only=True)
    topics = [{"name": f"{s.name}.a"}]
    s.ask("Metadata", 4, topics=topics, allow_auto_topic_creation=False)


@case("CreateTopics")
def bad_names(s: Session, version: int) -> None:
    s.coordinator()  # __consumer_offsets is there
    for name in ("", ".", "..", "a b", "a/b", "x" * 250, "é", "__consumer_offsets"):
        answer = create(s, version, wanted(name), validate_only=True)
        assert answer["topics"]


@case("CreateTopics")
def colliding_names(s: Session, version: int) -> None:
    create(s, version, wanted(f"{s.name}.x_y"))
    create(s, version, wanted(f"{s.name}.x.y"))
    create(s, version, wanted(f"{s.name}.twice"), wanted(f"{s.name}.twice"))


@case("CreateTopics")
def bad_numbers(s: Session, version: int) -> None:
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (100_000, 1)):
        create(s, version, wanted(f"{s.name}.a", partitions, replicas), validate_only=True)


@case("CreateTopics")
def assignments(s: Session, version: int) -> None:
    def ask(name: str, partitions: int, replicas: int, *assigned: tuple[int, list[int]]) -> None:
        rows = [{"partition_index": index, "broker_ids": ids} for index, ids in assigned]
        create(s, version, wanted(f"{s.name}.{name}", partitions, replicas, assignments=rows))

    ask("good", -1, -1, (0, [1]), (1, [1]))
    ask("gap", -1, -1, (0, [1]), (2, [1]))
    ask("twice", -1, -1, (0, [1, 1]))
    ask("unknown", -1, -1, (0, [7]))
    ask("uneven", -1, -1, (0, [1]), (1, [1, 7]))
    ask("empty", -1, -1, (0, []))
    ask("count", 2, -1, (0, [1]))
    ask("replicas", -1, 1, (0, [1]))


@case("CreateTopics")
def with_configs(s: Session, version: int) -> None:
    good = configs(cleanup_policy="compact", retention_ms="1000", min_cleanable_dirty_ratio="0.2")
    create(s, version, wanted(f"{s.name}.good", configs=good))
    for name, values in {
        "unknown": configs(no_such_key="1"),
        "number": configs(retention_ms="soon"),
        "range": configs(segment_bytes="5"),
        "choice": configs(cleanup_policy="throw"),
        "null": configs(retention_ms=None),
        "boolean": configs(preallocate="maybe"),
        "list": configs(cleanup_policy="delete,,compact"),
        "codec": configs(compression_type="rar"),
        "long": configs(retention_ms="99999999999999999999"),
        "float": configs(min_cleanable_dirty_ratio="1.5"),
        "lag": configs(min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
    }.items():
        create(s, version, wanted(f"{s.name}.{name}", configs=values))


@case("DeleteTopics", last=5)
def by_name(s: Session, version: int) -> None:
    names = [s.topic(), s.topic()]
    s.ask("DeleteTopics", version, topic_names=[*names, f"{s.name}.none"], timeout_ms=5000)
    s.ask("DeleteTopics", version, topic_names=names[:1], timeout_ms=5000)
    s.ask("DeleteTopics", version, topic_names=[], timeout_ms=5000)
    fields: dict[str, Any] = {"allow_auto_topic_creation": False}
    s.ask_until(
        "Metadata",
        8,
        lambda answer: answer["topics"][0]["error_code"] == 3,
        topics=[{"name": names[0]}],
        **fields,
    )


@case("DeleteTopics", first=6)
def by_name_or_id(s: Session, version: int) -> None:
    one, other, third = s.topic(), s.topic(), s.topic()

    def ask(*topics: dict[str, Any]) -> None:
        s.ask("DeleteTopics", version, topics=list(topics), timeout_ms=5000)

    identity = s.topic_id(other)
    ask({"name": one}, {"name": None, "topic_id": identity})
    ask({"name": None, "topic_id": identity})
    ask({"name": None, "topic_id": UNKNOWN_ID}, {"name": f"{s.name}.none"})
    ask({"name": None})
    ask({"name": third, "topic_id": s.topic_id(third)})
    ask({"name": third}, {"name": third})
    ask({"name": third})


@case("DeleteTopics", first=4)
def created_again(s: Session, version: int) -> None:
    """A topic of the same name is another topic: new id, empty log."""
    name = s.topic()
    s.produce(name, batch())
    fields: dict[str, Any] = {"topics": [{"name": name}]} if version >= 6 else {}
    s.ask("DeleteTopics", version, timeout_ms=5000, **(fields or {"topic_names": [name]}))
    s.ask_until(
        "CreateTopics",
        7,
        lambda answer: answer["topics"][0]["error_code"] == NONE,
        topics=[wanted(name)],
        timeout_ms=5000,
    )
    s.await_topic(name)
    latest = [{"partition_index": 0, "timestamp": -1}]
    s.ask("ListOffsets", 5, replica_id=-1, topics=[{"name": name, "partitions": latest}])


@case("CreatePartitions")
def more_partitions(s: Session, version: int) -> None:
    name = s.topic(partitions=2)

    def ask(count: int, topic: str = name, assigned: Any = None, **more: Any) -> None:
        row = {"name": topic, "count": count}
        row["assignments"] = None if assigned is None else [{"broker_ids": ids} for ids in assigned]
        s.ask("CreatePartitions", version, topics=[row], timeout_ms=5000, **more)

    ask(3, validate_only=True)
    ask(4)
    for count in (4, 1, 0, -1):
        ask(count)
    ask(100_000, validate_only=True)
    ask(5, topic=f"{s.name}.none")
    ask(6, assigned=[[1]])
    ask(6, assigned=[[1], [7]])
    ask(6, assigned=[[1], [1, 1]])
    ask(6, assigned=[[1], []])
    ask(6, assigned=[[1], [1]])
    s.await_topic(name, 6)
    twice = [{"name": name, "count": 7}, {"name": name, "count": 8}]
    s.ask("CreatePartitions", version, topics=twice, timeout_ms=5000)


@case("DescribeLogDirs")
def log_dirs(s: Session, version: int) -> None:
    name = s.topic(partitions=2)
    s.produce(name, batch())
    s.ask("DescribeLogDirs", version, topics=[{"topic": name, "partitions": [0, 1, 7]}])
    s.ask("DescribeLogDirs", version, topics=[{"topic": f"{s.name}.none", "partitions": [0]}])
    s.ask("DescribeLogDirs", version, topics=[])


@case("AlterReplicaLogDirs")
def log_dirs_altered(s: Session, version: int) -> None:
    name = s.topic(partitions=2)
    here = s.quietly("DescribeLogDirs", 1, topics=[])["results"][0]["log_dir"]
    for path, topic, *partitions in (
        (here, name, 0, 1),
        (here, name, 0, 7),
        ("/nowhere", name, 0, 7),
        (f"{here}/", name, 0),
        ("relative", name, 0),
        ("", name, 0),
        (here, f"{s.name}.none", 0),
        (here, "l" * 215, 0),
        ("/nowhere", "l" * 215, 0),
        (here, "l" * 214, 0),
        (here, name),
    ):
        topics = [{"name": topic, "partitions": partitions}]
        s.ask("AlterReplicaLogDirs", version, dirs=[{"path": path, "topics": topics}])
    s.ask("AlterReplicaLogDirs", version, dirs=[])
    s.ask("AlterReplicaLogDirs", version, dirs=[{"path": here, "topics": []}])
