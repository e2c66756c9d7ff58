"""Cases: coordinators of groups, and what the brokers say that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_groups import ASSIGNMENT, join_fields
from compat.conformance.cluster.registry import case
from compat.conformance.session import NONE

if TYPE_CHECKING:
    from compat.conformance.cluster.session import ClusterSession


def coordinator_of(s: ClusterSession, node_id: int = 1) -> dict[str, Any]:
    """The group's coordinator as a broker names it, once it is there."""
    return s.wait(
        "a coordinator",
        "FindCoordinator",
        1,
        lambda answer: answer["error_code"] == NONE,
        connection=str(node_id),
        key=s.name,
    )


def settled(s: ClusterSession) -> tuple[str, str]:
    """The connection of the coordinator, which has loaded, and of a broker that is none."""
    node_id = coordinator_of(s)["node_id"]
    s.wait(
        "the coordinator loads",
        "Heartbeat",
        0,
        lambda answer: answer["error_code"] == 25,
        connection=str(node_id),
        group_id=s.name,
        generation_id=1,
        member_id="nobody",
    )
    other = next(one for one in s.alive if one != node_id)
    s.wait(
        "the others know",
        "Heartbeat",
        0,
        lambda answer: answer["error_code"] == 16,
        connection=str(other),
        group_id=s.name,
        generation_id=1,
        member_id="nobody",
    )
    return str(node_id), str(other)


@case("FindCoordinator", 0, 1, 3, 4, 6)
def all_agree(s: ClusterSession, version: int) -> None:
    settled(s)
    found = []
    for node_id in s.alive:
        keys: dict[str, Any] = {"coordinator_keys": [s.name]} if version >= 4 else {"key": s.name}
        answer = s.quietly("FindCoordinator", version, connection=str(node_id), **keys)
        if version >= 4:
            (answer,) = answer["coordinators"]
        address = s.address_of(answer["node_id"])
        is_there = address == f"{answer['host']}:{answer['port']}"
        found.append((answer["node_id"], answer["error_code"], is_there))
    s.record("FindCoordinator", {"same": len(set(found)), "answer": found[0][1:]})


def asked_elsewhere(s: ClusterSession, api: str, version: int, **fields: Any) -> None:
    _, other = settled(s)
    s.ask(api, version, connection=other, **fields)


@case("JoinGroup", 0, 4, 5, 6, 9)
def not_the_coordinator_joins(s: ClusterSession, version: int) -> None:
    asked_elsewhere(s, "JoinGroup", version, **join_fields(s, version))


@case("SyncGroup", 0, 3, 5)
def not_the_coordinator_syncs(s: ClusterSession, version: int) -> None:
    assignments = [{"member_id": "m", "assignment": ASSIGNMENT}]
    fields = {"group_id": s.name, "generation_id": 1, "member_id": "m", "assignments": assignments}
    asked_elsewhere(s, "SyncGroup", version, **fields)


@case("Heartbeat", 0, 4)
def not_the_coordinator_beats(s: ClusterSession, version: int) -> None:
    fields = {"group_id": s.name, "generation_id": 1, "member_id": "m"}
    asked_elsewhere(s, "Heartbeat", version, **fields)


@case("LeaveGroup", 0, 3, 5)
def not_the_coordinator_leaves(s: ClusterSession, version: int) -> None:
    fields: dict[str, Any] = {"group_id": s.name}
    fields |= {"members": [{"member_id": "m"}]} if version >= 3 else {"member_id": "m"}
    asked_elsewhere(s, "LeaveGroup", version, **fields)


@case("OffsetCommit", 2, 5, 8, 9)
def not_the_coordinator_commits(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2, 3])
    rows = [{"partition_index": 0, "committed_offset": 5}]
    topics = [{"name": topic, "partitions": rows}]
    asked_elsewhere(s, "OffsetCommit", version, group_id=s.name, topics=topics)


@case("OffsetFetch", 1, 2, 5, 7, 8, 9)
def not_the_coordinator_fetches(s: ClusterSession, version: int) -> None:
    topics = [{"name": "t", "partition_indexes": [0]}]
    fields: dict[str, Any] = {"group_id": s.name, "topics": topics}
    if version >= 8:
        fields = {"groups": [{"group_id": s.name, "topics": topics}]}
    asked_elsewhere(s, "OffsetFetch", version, **fields)


@case("OffsetDelete")
def not_the_coordinator_forgets(s: ClusterSession, version: int) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    asked_elsewhere(s, "OffsetDelete", version, group_id=s.name, topics=topics)


@case("DescribeGroups", 0, 4, 6)
def not_the_coordinator_describes(s: ClusterSession, version: int) -> None:
    asked_elsewhere(s, "DescribeGroups", version, groups=[s.name])


@case("DeleteGroups", 0, 2)
def not_the_coordinator_deletes(s: ClusterSession, version: int) -> None:
    asked_elsewhere(s, "DeleteGroups", version, groups_names=[s.name])


@case("OffsetCommit", 2, 9)
def committed_at_the_coordinator(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2, 3])
    coordinator, _ = settled(s)
    rows = [{"partition_index": 0, "committed_offset": 5}]
    topics = [{"name": topic, "partitions": rows}]
    s.ask("OffsetCommit", version, connection=coordinator, group_id=s.name, topics=topics)
    asked = [{"name": topic, "partition_indexes": [0]}]
    s.ask("OffsetFetch", 5, connection=coordinator, group_id=s.name, topics=asked)
