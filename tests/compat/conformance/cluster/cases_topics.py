"""Cases: what is where in a cluster, and CreateTopics and CreatePartitions of several replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_admin import configs, create, wanted
from compat.conformance.cluster.registry import case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat.conformance.cluster.session import ClusterSession

SPREAD = ([1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1])


def assigned(*replicas: Sequence[int], first: int = 0) -> list[dict[str, Any]]:
    return [
        {"partition_index": index, "broker_ids": list(ids)}
        for index, ids in enumerate(replicas, first)
    ]


def manual(name: str, *replicas: Sequence[int], **more: Any) -> dict[str, Any]:
    return wanted(name, -1, -1, assignments=assigned(*replicas), **more)


@case("Metadata", 0, 1, 5, 7, 9, 12, 13)
def replicated(s: ClusterSession, version: int) -> None:
    topics = [{"name": s.replicated(*SPREAD)}, {"name": s.replicated([2], [3])}]
    s.at_each("Metadata", version, topics=topics)


@case("Metadata", first=12)
def by_id(s: ClusterSession, version: int) -> None:
    topic_id = s.topic_id(s.replicated([3, 2]))
    s.at_each("Metadata", version, topics=[{"topic_id": topic_id, "name": None}])


@case("Metadata", 4, 9, 13)
def no_topics(s: ClusterSession, version: int) -> None:
    s.at_each("Metadata", version, topics=[])


@case("DescribeCluster")
def cluster(s: ClusterSession, version: int) -> None:
    s.at_each("DescribeCluster", version)
    if version >= 2:
        s.ask("DescribeCluster", version, include_fenced_brokers=True)


@case("DescribeTopicPartitions")
def described(s: ClusterSession, version: int) -> None:
    topics = [{"name": s.replicated(*SPREAD)}]
    s.at_each("DescribeTopicPartitions", version, topics=topics)


@case("CreateTopics", 2, 4, 5, 7)
def factors(s: ClusterSession, version: int) -> None:
    for factor in (1, 2, 3):
        create(s, version, wanted(f"{s.name}.{factor}", 2, factor))
    for factor in (4, 0, -2, 100):
        create(s, version, wanted(f"{s.name}.x", 1, factor))
    if version >= 4:
        create(s, version, wanted(f"{s.name}.default", -1, -1))


@case("CreateTopics", 2, 7)
def at_any_broker(s: ClusterSession, version: int) -> None:
    """Whoever is asked, the active controller decides and the asked one knows."""
    for node_id in s.alive:
        name = f"{s.name}.{node_id}"
        at = {"connection": str(node_id), "timeout_ms": 60_000}
        s.ask("CreateTopics", version, topics=[wanted(name, 1, 3)], **at)
        s.ask("CreateTopics", version, topics=[wanted(name, 1, 3)], **at)


@case("CreateTopics", 7)
def replicas_are_spread(s: ClusterSession, version: int) -> None:
    """Not which broker gets which, but how: each replica elsewhere, the first of them leads."""
    for factor in (1, 2, 3):
        name = f"{s.name}.{factor}"
        s.quietly("CreateTopics", version, topics=[wanted(name, 6, factor)], timeout_ms=60_000)
        s.await_partition(name, 5, error_code=0)
        rows = s.await_topic_known(name)["partitions"]
        s.record(
            "Metadata",
            {
                "partitions": len(rows),
                "replicas": sorted({len(set(one["replica_nodes"])) for one in rows}),
                "first leads": all(one["replica_nodes"][0] == one["leader_id"] for one in rows),
                "brokers": sorted({node for one in rows for node in one["replica_nodes"]}),
            },
        )


@case("CreateTopics", 2, 4, 5, 7)
def assignments(s: ClusterSession, version: int) -> None:
    for name, replicas in {
        "good": ([3, 1, 2], [2, 3, 1]),
        "two": ([3, 1], [1, 2]),
        "twice": ([1, 1],),
        "unknown": ([1, 7],),
        "all-unknown": ([7, 8],),
        "negative": ([-1, 1],),
        "uneven": ([1, 2], [1]),
        "uneven-later": ([1], [2], [1, 2, 3]),
        "empty": ([1], []),
    }.items():
        create(s, version, manual(f"{s.name}.{name}", *replicas))
    topic = s.await_topic_known(f"{s.name}.good")
    s.record("Metadata", topic["partitions"])


@case("CreateTopics", 2, 4, 5, 7)
def assignments_and_numbers(s: ClusterSession, version: int) -> None:
    for partitions, factor in ((1, -1), (-1, 1), (1, 2), (2, 1)):
        name = f"{s.name}.{partitions}.{factor}"
        row = wanted(name, partitions, factor, assignments=assigned([1, 2]))
        create(s, version, row)
    later = wanted(f"{s.name}.later", -1, -1, assignments=assigned([1, 2], first=1))
    create(s, version, later)


@case("CreateTopics", 5)
def too_many_in_sync(s: ClusterSession, version: int) -> None:
    """More in-sync replicas asked for than there are replicas: that is for the producer to see."""
    create(s, version, manual(f"{s.name}.a", [1, 2], configs=configs(min_insync_replicas="3")))


@case("CreatePartitions")
def more_partitions(s: ClusterSession, version: int) -> None:
    name = s.replicated([1, 2], [2, 3])

    def ask(count: int, *replicas: Sequence[int], **more: Any) -> None:
        rows = [{"broker_ids": list(ids)} for ids in replicas] or None
        row = {"name": name, "count": count, "assignments": rows}
        s.ask("CreatePartitions", version, topics=[row], timeout_ms=60_000, **more)

    ask(3, [1])
    ask(3, [1, 2, 3])
    ask(3, [1, 1])
    ask(3, [1, 7])
    ask(3, [7, 8])
    ask(3, [])
    ask(3, [1, 2], [2, 3])
    ask(5, [1, 2])
    ask(4, [1, 2], [2, 1, 3])
    ask(4, [3, 1], [2, 1], validate_only=True)
    ask(4, [3, 1], [2, 1], connection="2")
    s.await_partition(name, 3, leader_id=2)
    s.record("Metadata", s.await_topic_known(name)["partitions"])
    ask(5, connection="3")


@case("DeleteTopics", 1, 5)
def at_each_broker(s: ClusterSession, version: int) -> None:
    for node_id in s.alive:
        names = [s.replicated([1, 2, 3])]
        at = {"connection": str(node_id), "timeout_ms": 60_000}
        s.ask("DeleteTopics", version, topic_names=names, **at)
        asked: dict[str, Any] = {"topics": [{"name": names[0]}], "allow_auto_topic_creation": False}
        s.ask_until(
            "Metadata",
            8,
            lambda answer: answer["topics"][0]["error_code"] == 3,
            connection=str(node_id),
            **asked,
        )
