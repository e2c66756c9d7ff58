"""Cases: streams groups (KIP-1071) as they are described, and what other APIs say of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_consumer_groups import join_fields as consumer_fields
from compat.conformance.cases_consumer_groups import new_topic
from compat.conformance.cases_group_offsets import part
from compat.conformance.cases_groups import heartbeat as classic_heartbeat
from compat.conformance.cases_groups import join as classic_join
from compat.conformance.cases_groups import leave as classic_leave
from compat.conformance.cases_groups import stable as stable_classic
from compat.conformance.cases_groups import sync as classic_sync
from compat.conformance.cases_streams_groups import (
    DESCRIBE,
    HEARTBEAT,
    ONE,
    TWO,
    beat_fields,
    commit,
    commit_fields,
    described,
    internal,
    join,
    join_fields,
    joined,
    known_topics,
    leave,
    lines_of,
    one_of,
    owning,
    prepare,
    simple,
    subtopology,
)
from compat.conformance.registry import case
from compat.conformance.transactional import Producer

if TYPE_CHECKING:
    from compat.conformance.session import Session


# ---- StreamsGroupDescribe ------------------------------------------------------------------------


@case(DESCRIBE)
def groups(s: Session, version: int) -> None:
    topology = joined(s)
    s.quietly(HEARTBEAT, 0, **join_fields(s, TWO, topology, rack_id="r"))
    none = f"{s.name}.none"
    s.ask(DESCRIBE, version, group_ids=[s.name])
    s.ask(DESCRIBE, version, group_ids=[s.name], include_authorized_operations=True)
    s.ask(DESCRIBE, version, group_ids=[none, s.name])
    s.ask(DESCRIBE, version, group_ids=[none], include_authorized_operations=True)
    s.ask(DESCRIBE, version, group_ids=[s.name, s.name])
    s.ask(DESCRIBE, version, group_ids=[])
    leave(s, ONE, TWO)
    s.ask(DESCRIBE, version, group_ids=[s.name])
    s.quietly("DeleteGroups", 2, groups_names=[s.name])
    s.ask(DESCRIBE, version, group_ids=[s.name])


@case(DESCRIBE)
def a_topology_in_full(s: Session, version: int) -> None:
    """Settings, partitions and replicas of internal topics as they were asked for."""
    prepare(s)
    lines, words, counts = known_topics(s, 2, 4, 4)
    configs = [{"key": "b", "value": "2"}, {"key": "a", "value": "1"}]
    changes = {"replication_factor": 1, "topic_configs": configs}
    sinks = {"repartition_sink_topics": [words, f"{s.name}.sink"]}
    topology = one_of(
        subtopology(
            "z",
            repartition_source_topics=[internal(words, partitions=4, **changes)],
            state_changelog_topics=[internal(counts, **changes)],
        ),
        subtopology("a", source_topics=[lines], **sinks),
        epoch=5,
    )
    join(s, ONE, topology)
    s.ask(DESCRIBE, version, group_ids=[s.name])


@case(DESCRIBE)
def no_name(s: Session, version: int) -> None:
    s.coordinator()
    s.ask(DESCRIBE, version, group_ids=[""])


@case(DESCRIBE)
def groups_of_other_types(s: Session, version: int) -> None:
    stable_classic(s)
    s.ask(DESCRIBE, version, group_ids=[s.name])


# ---- other APIs ----------------------------------------------------------------------------------


@case("ConsumerGroupDescribe")
def of_streams(s: Session, version: int) -> None:
    joined(s)
    s.ask("ConsumerGroupDescribe", version, group_ids=[s.name])


@case("ConsumerGroupHeartbeat")
def to_streams(s: Session, version: int) -> None:
    topology = joined(s)
    fields = consumer_fields(s, TWO, lines_of(topology))
    s.ask("ConsumerGroupHeartbeat", version, **fields)
    leave(s, ONE)
    s.ask("ConsumerGroupHeartbeat", version, **fields)
    described(s)


@case("DescribeGroups")
def of_streams_described(s: Session, version: int) -> None:
    joined(s)
    s.ask("DescribeGroups", version, groups=[s.name])
    leave(s, ONE)
    s.ask("DescribeGroups", version, groups=[s.name])


@case("ListGroups")
def with_streams(s: Session, version: int) -> None:
    topology = joined(s)

    def ask(**fields: Any) -> None:
        answer = s.quietly("ListGroups", version, **fields)
        mine = [group for group in answer["groups"] if group["group_id"] == s.name]
        s.record("ListGroups", {**answer, "groups": mine})

    ask()
    if version >= 4:
        for states in (["Stable"], ["stable"], ["Empty"], ["NotReady"], ["Reconciling"]):
            ask(states_filter=states)
    if version >= 5:
        for types in (["classic"], ["streams"], ["Streams"], ["share", "none"]):
            ask(types_filter=types)
    s.quietly(HEARTBEAT, 0, **join_fields(s, TWO, topology))
    ask()
    if version >= 4:
        ask(states_filter=["reconciling"])
    leave(s, ONE, TWO)
    ask()
    if version >= 4:
        ask(states_filter=["Empty"])
        missing = simple(f"{s.name}.none")
        s.quietly("DeleteGroups", 2, groups_names=[s.name])
        s.quietly(HEARTBEAT, 0, **join_fields(s, ONE, missing))
        ask()
        ask(states_filter=["NotReady"])
        for states in (["notready"], ["not_ready"], ["Not_Ready"]):
            ask(states_filter=states)


@case("DeleteGroups")
def of_streams_deleted(s: Session, version: int) -> None:
    topology = joined(s)
    commit(s, lines_of(topology), ONE, 2)
    s.ask("DeleteGroups", version, groups_names=[s.name])
    leave(s, ONE)
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.ask("DescribeGroups", 6, groups=[s.name])
    described(s)


@case("Heartbeat")
def of_a_classic_member_to_streams(s: Session, version: int) -> None:
    joined(s)
    for member in (ONE, "nobody"):
        classic_heartbeat(s, version, {"generation_id": 2, "member_id": member})


@case("JoinGroup")
def joining_streams(s: Session, version: int) -> None:
    joined(s)
    classic_join(s, version)
    classic_join(s, version, protocol_type="streams")
    leave(s, ONE)
    classic_join(s, version)
    described(s)


@case("SyncGroup")
def syncing_with_streams(s: Session, version: int) -> None:
    joined(s)
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    for member in (ONE, "nobody"):
        classic_sync(s, version, {"generation_id": 2, "member_id": member}, **names)


@case("LeaveGroup")
def leaving_streams(s: Session, version: int) -> None:
    joined(s)
    for member in ("nobody", ONE):
        classic_leave(s, version, member)
    described(s)


@case("OffsetCommit")
def of_streams_committed(s: Session, version: int) -> None:
    topology = joined(s)
    lines, words = lines_of(topology), topology["subtopologies"][0]["repartition_sink_topics"][0]
    other = new_topic(s)

    def ask(topic: str, member: str, epoch: int, *numbers: int) -> None:
        s.ask("OffsetCommit", version, **commit_fields(s, version, topic, member, epoch, numbers))

    for member, epoch in ((ONE, 2), (ONE, 3), (ONE, 1), (ONE, 0), (ONE, -1), ("nobody", 2)):
        ask(lines, member, epoch)
    ask(lines, "", -1)
    ask(lines, "", 2)
    s.quietly(HEARTBEAT, 0, **join_fields(s, TWO, topology))
    answer = s.quietly(HEARTBEAT, 0, **beat_fields(s, ONE, 2))
    kept = {name: answer[f"{name}_tasks"] for name in ("active", "standby", "warmup")}
    s.quietly(HEARTBEAT, 0, **beat_fields(s, ONE, 2, **owning(**kept)))
    s.quietly(HEARTBEAT, 0, **beat_fields(s, TWO, 3))
    for epoch in (2, 3):
        for topic in (lines, words, other):
            ask(topic, ONE, epoch, 0)
        for topic in (lines, words):
            ask(topic, ONE, epoch, 0, 1)
    for epoch in (2, 3):
        ask(lines, TWO, epoch, 0, 1)
    leave(s, ONE, TWO)
    ask(lines, ONE, 3)
    ask(lines, "", -1)
    s.ask("OffsetFetch", 9, groups=[{"group_id": s.name, "topics": None}])


@case("TxnOffsetCommit", first=3)
def of_streams_in_a_transaction(s: Session, version: int) -> None:
    topology = joined(s)
    one = Producer(s)
    answer = s.quietly("AddOffsetsToTxn", 3, **one.who(), group_id=s.name)
    assert not answer["error_code"], answer
    for member, epoch in ((ONE, 2), (ONE, 3), (ONE, 1), (ONE, -1), ("nobody", 2), ("", -1)):
        fields = {"group_id": s.name, **one.who(), "member_id": member, "generation_id": epoch}
        topics = [{"name": lines_of(topology), "partitions": [part(10 + epoch)]}]
        s.ask("TxnOffsetCommit", version, **fields, topics=topics)


@case("OffsetFetch", first=8)
def of_streams_fetched(s: Session, version: int) -> None:
    topology = joined(s)
    commit(s, lines_of(topology), ONE, 2)
    s.ask("OffsetFetch", version, groups=[{"group_id": s.name, "topics": None}])
    if version >= 9:
        for member, epoch in ((ONE, 2), (ONE, 1), (ONE, 0), (ONE, 3), (ONE, -1), ("nobody", 2)):
            row = {"group_id": s.name, "member_id": member, "member_epoch": epoch, "topics": None}
            s.ask("OffsetFetch", version, groups=[row])


@case("OffsetDelete")
def of_streams_deleted_offsets(s: Session, version: int) -> None:
    topology = joined(s)
    lines, other = lines_of(topology), new_topic(s)
    for name in (lines, other):
        commit(s, name, ONE, 2)
    rows = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (lines, other)]
    s.ask("OffsetDelete", version, group_id=s.name, topics=rows)
    s.ask("OffsetFetch", 8, groups=[{"group_id": s.name, "topics": None}])
    leave(s, ONE)
    s.ask("OffsetDelete", version, group_id=s.name, topics=rows)
