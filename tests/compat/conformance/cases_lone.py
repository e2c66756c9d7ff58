"""Cases: what a broker that is its own controller answers to whoever administers several:
DescribeQuorum, ElectLeaders, reassignments, UnregisterBroker, UpdateFeatures, voters (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.quorum import described, quorum_fields
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

PREFERRED, UNCLEAN = 0, 1
UPGRADE, SAFE, UNSAFE = 1, 2, 3  # types of updates of features


@case("DescribeQuorum")
def quorum(s: Session, version: int) -> None:
    answer = s.quietly("DescribeQuorum", version, **quorum_fields())
    s.record("DescribeQuorum", described(answer))
    for topic, partition in (("__cluster_metadata", 1), ("t", 0)):
        s.ask("DescribeQuorum", version, **quorum_fields(topic, partition))


@case("ElectLeaders")
def elections(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)

    def ask(kind: int, name: str, *partitions: int) -> None:
        fields: dict[str, Any] = {} if version == 0 else {"election_type": kind}
        rows = [{"topic": name, "partitions": list(partitions)}]
        s.ask("ElectLeaders", version, topic_partitions=rows, timeout_ms=5000, **fields)

    for kind in (PREFERRED, UNCLEAN):
        ask(kind, topic, 0, 1, 7)
    ask(PREFERRED, f"{s.name}.none", 0)
    if version:
        ask(9, topic, 0)


@case("AlterPartitionReassignments")
def nowhere_to_go(s: Session, version: int) -> None:
    topic = s.topic()
    for replicas in ([1], [2], [1, 2], [], [1, 1], None):
        rows = [{"partition_index": 0, "replicas": replicas}]
        topics = [{"name": topic, "partitions": rows}]
        s.ask("AlterPartitionReassignments", version, topics=topics, timeout_ms=5000)
    rows = [{"partition_index": 5, "replicas": [1]}]
    for name in (topic, f"{s.name}.none"):
        topics = [{"name": name, "partitions": rows}]
        s.ask("AlterPartitionReassignments", version, topics=topics, timeout_ms=5000)


@case("ListPartitionReassignments")
def nothing_moves(s: Session, version: int) -> None:
    rows = [{"name": s.topic(), "partition_indexes": [0, 3]}]
    for topics in (rows, None, []):
        s.ask("ListPartitionReassignments", version, topics=topics, timeout_ms=5000)


@case("UnregisterBroker")
def unknown_brokers(s: Session, version: int) -> None:
    for broker in (7, -1):
        s.ask("UnregisterBroker", version, broker_id=broker)


@case("UpdateFeatures")
def features(s: Session, version: int) -> None:
    """What is accepted is only validated: other cases need the levels. v0 cannot."""

    def ask(*updates: tuple[str, int, int], validate_only: bool = False) -> None:
        fields: dict[str, Any] = {"validate_only": validate_only} if version else {}
        rows = [
            {"feature": name, "max_version_level": level}
            | ({"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE})
            for name, level, kind in updates
        ]
        s.ask("UpdateFeatures", version, feature_updates=rows, **fields)

    ask()
    ask(("none", 0, SAFE))
    ask(("none", 1, UPGRADE))
    ask(("", 1, UPGRADE))
    ask(("group.version", 9, UPGRADE))
    ask(("group.version", -1, SAFE))
    ask(("group.version", 0, UPGRADE))
    ask(("metadata.version", 1000, UPGRADE))
    ask(("metadata.version", 0, SAFE))
    if not version:
        return
    ask(("group.version", 0, 0))
    ask(("group.version", 0, 4))
    ask(("group.version", 2, UNSAFE))
    ask(("metadata.version", 29, SAFE))
    ask(("metadata.version", 29, UNSAFE))
    ask(("group.version", 0, SAFE), ("none", 1, UPGRADE))
    for kind in (SAFE, UNSAFE):
        ask(("group.version", 0, kind), ("transaction.version", 1, kind), validate_only=True)
    ask(("group.version", 1, UPGRADE), ("group.version", 1, SAFE), validate_only=True)
    ask(("kraft.version", 0, SAFE), ("streams.version", 0, SAFE), validate_only=True)


DIRECTORY = bytes(15) + b"\x07"
CONTROLLER = {"name": "CONTROLLER", "host": "somewhere", "port": 9}


@case("AddRaftVoter")
def voter_to_add(s: Session, version: int) -> None:
    """The voters are those of the settings: each refusal comes before the one for that."""

    def ask(**fields: Any) -> None:
        asked = {"timeout_ms": 5000, "voter_id": 7, "voter_directory_id": DIRECTORY}
        s.ask("AddRaftVoter", version, **{**asked, "listeners": [CONTROLLER], **fields})

    for voter_id in (7, 1, -1):
        ask(cluster_id=None, voter_id=voter_id)
    ask(cluster_id=None, voter_directory_id=bytes(16))
    ask(cluster_id=None, voter_directory_id=bytes(16), listeners=[])
    for name in ("controller", "OTHER"):
        ask(cluster_id=None, listeners=[{**CONTROLLER, "name": name}])
    ask(cluster_id=None, listeners=[])
    ask(cluster_id=None, timeout_ms=-1)
    if version:
        ask(cluster_id=None, ack_when_committed=False)
    s.record("AddRaftVoter", _elsewhere(s, "AddRaftVoter", version, listeners=[], timeout_ms=1))


@case("RemoveRaftVoter")
def voter_to_remove(s: Session, version: int) -> None:
    for voter_id, directory in ((7, DIRECTORY), (1, DIRECTORY), (-1, DIRECTORY), (1, bytes(16))):
        fields = {"voter_id": voter_id, "voter_directory_id": directory}
        s.ask("RemoveRaftVoter", version, cluster_id=None, **fields)
    s.record("RemoveRaftVoter", _elsewhere(s, "RemoveRaftVoter", version))


def _elsewhere(s: Session, api: str, version: int, **fields: Any) -> dict[str, Any]:
    """The answer to a request for another cluster, without the id of this one."""
    voter = {"voter_id": -1, "voter_directory_id": bytes(16)}
    answer = s.quietly(api, version, cluster_id="another", **voter, **fields)
    return {
        **answer,
        "error_message": answer["error_message"].rpartition('"')[0].rpartition('"')[0],
    }
