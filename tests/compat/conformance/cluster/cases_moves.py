"""Cases: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cluster.registry import case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat.conformance.cluster.session import ClusterSession

PREFERRED, UNCLEAN = 0, 1
LATER_TYPES = 1  # ElectLeaders v0 knows no types


def elect(
    s: ClusterSession, version: int, kind: int, *topics: tuple[str, list[int]], node: str = "1"
) -> Any:
    rows = [{"topic": name, "partitions": partitions} for name, partitions in topics]
    fields: dict[str, Any] = {"topic_partitions": rows, "timeout_ms": 60_000}
    if version >= LATER_TYPES:
        fields["election_type"] = kind
    return s.ask("ElectLeaders", version, connection=node, **fields)


def reassign(
    s: ClusterSession,
    version: int,
    topic: str,
    replicas: Sequence[int] | None,
    *,
    partition: int = 0,
    node: str = "1",
    **more: Any,
) -> Any:
    row = {"partition_index": partition, "replicas": None if replicas is None else list(replicas)}
    topics = [{"name": topic, "partitions": [row]}]
    fields: dict[str, Any] = {"topics": topics, "timeout_ms": 60_000, **more}
    return s.ask("AlterPartitionReassignments", version, connection=node, **fields)


def list_moves(s: ClusterSession, topic: str, *partitions: int, node: str = "1") -> Any:
    rows = [{"name": topic, "partition_indexes": list(partitions)}]
    fields: dict[str, Any] = {"topics": rows, "timeout_ms": 60_000}
    return s.ask("ListPartitionReassignments", 0, connection=node, **fields)


def arrived(s: ClusterSession, topic: str, replicas: Sequence[int]) -> None:
    """Wait until partition 0 has these replicas, all in sync, and record it."""
    s.await_partition(topic, replica_nodes=replicas, isr_nodes=replicas)
    seen = s.partition(topic)
    # The order in which replicas came in is a matter of time.
    s.record("Metadata", {**seen, "isr_nodes": sorted(seen["isr_nodes"])})


@case("ElectLeaders")
def not_needed(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2], [2, 3])
    for kind in (PREFERRED, UNCLEAN):
        elect(s, version, kind, (topic, [0, 1]))
    elect(s, version, PREFERRED, (topic, [0]), node="3")


@case("ElectLeaders")
def unknown(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    elect(s, version, PREFERRED, (topic, [7, -1, 0]), (f"{s.name}.none", [0]))
    elect(s, version, UNCLEAN, (topic, [7]), (f"{s.name}.none", [0]))
    elect(s, version, PREFERRED)
    elect(s, version, PREFERRED, (topic, []))
    if version >= LATER_TYPES:
        elect(s, version, 7, (topic, [0]))


@case("ElectLeaders")
def preferred(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2, 3], [2, 3, 1])
    s.quietly(
        "AlterPartitionReassignments",
        0,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "replicas": [2, 3, 1]}]}],
        timeout_ms=60_000,
    )
    s.await_partition(topic, replica_nodes=[2, 3, 1])
    s.record("Metadata", s.partition(topic))
    elect(s, version, PREFERRED, (topic, [0, 1]), node="2")
    s.await_partition(topic, leader_id=2)
    s.record("Metadata", s.partition(topic))
    elect(s, version, PREFERRED, (topic, [0, 1]))


@case("ElectLeaders", first=1)
def of_all_partitions(s: ClusterSession, version: int) -> None:
    """Only what was elected is listed; nothing of other cases' topics is due."""
    topic = s.replicated([1, 2])
    fields: dict[str, Any] = {"topic_partitions": None, "timeout_ms": 60_000}
    answer = s.quietly("ElectLeaders", version, **fields, election_type=PREFERRED)
    codes = {
        one["error_code"]
        for result in answer["replica_election_results"]
        for one in result["partition_result"]
    }
    mine = [one for one in answer["replica_election_results"] if one["topic"] == topic]
    s.record(
        "ElectLeaders", {"error_code": answer["error_code"], "mine": mine, "codes": len(codes)}
    )


@case("AlterPartitionReassignments")
def refused(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    for replicas in ([], [1, 1], [1, 7], [-1], [1, 2, 3, 4], None):
        reassign(s, version, topic, replicas)
    reassign(s, version, topic, [1, 2], partition=7)
    reassign(s, version, topic, [1, 2], partition=-1)
    reassign(s, version, topic, None, partition=7)
    reassign(s, version, f"{s.name}.none", [1, 2])
    reassign(s, version, f"{s.name}.none", None)
    s.ask("AlterPartitionReassignments", version, topics=[], timeout_ms=60_000)
    list_moves(s, topic, 0)


@case("AlterPartitionReassignments")
def replicas_move(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    for node, replicas in (("1", [1, 3]), ("2", [3, 2]), ("3", [2, 3])):
        reassign(s, version, topic, replicas, node=node)
        arrived(s, topic, replicas)
    reassign(s, version, topic, [2, 3])  # as it is
    list_moves(s, topic, 0)


@case("AlterPartitionReassignments")
def more_and_fewer(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    for replicas in ([1, 2, 3], [3], [3, 1]):
        reassign(s, version, topic, replicas)
        arrived(s, topic, replicas)


@case("AlterPartitionReassignments", first=1)
def the_same_number(s: ClusterSession, version: int) -> None:
    """KIP-860: a client may insist on as many replicas as there are."""
    topic = s.replicated([1, 2])
    for replicas in ([1, 2, 3], [1], [], [1, 1]):
        reassign(s, version, topic, replicas, allow_replication_factor_change=False)
    reassign(s, version, topic, [3, 2], allow_replication_factor_change=False)
    arrived(s, topic, [3, 2])


@case("AlterPartitionReassignments")
def several_at_once(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2], [2, 3])
    rows = [
        {"partition_index": 0, "replicas": [2, 1]},
        {"partition_index": 1, "replicas": [2, 9]},
        {"partition_index": 0, "replicas": [1, 2]},
    ]
    topics = [{"name": topic, "partitions": rows}]
    s.ask("AlterPartitionReassignments", version, topics=topics, timeout_ms=60_000)
    twice = [{"name": topic, "partitions": rows[:1]}, {"name": topic, "partitions": rows[1:2]}]
    s.ask("AlterPartitionReassignments", version, topics=twice, timeout_ms=60_000)


@case("ListPartitionReassignments")
def nothing_moves(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    list_moves(s, topic, 0, 7, -1, node="1")
    list_moves(s, topic, 0, node="2")
    list_moves(s, f"{s.name}.none", 0, node="3")
    s.ask("ListPartitionReassignments", version, topics=[], timeout_ms=60_000)
    s.ask("ListPartitionReassignments", version, topics=None, timeout_ms=60_000)
