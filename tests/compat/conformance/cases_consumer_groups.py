"""Cases: groups of KIP-848: heartbeats, descriptions, and what other APIs say of such a group."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

from compat.brokers import SETTINGS
from compat.conformance.cases_group_offsets import of_topic, part
from compat.conformance.cases_groups import heartbeat, leave, sync
from compat.conformance.cases_groups import stable as stable_classic
from compat.conformance.registry import case
from compat.conformance.session import WAIT_S
from tidelog.replication.internal_topics import partition_for

if TYPE_CHECKING:
    from compat.conformance.session import Session

HEARTBEAT, DESCRIBE = "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"
PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
GROUP_RESOURCE, SET = 32, 0
LEAVING, LEAVING_STATIC = -1, -2
ONE, TWO, THREE = "member-of-one", "member-of-two", "member-of-three"


def prepare(s: Session) -> None:
    """A loaded coordinator, and a group whose assignments don't wait for each other.

    Epochs begin with 2, that of the first member: the empty group was in 1.
    """
    s.coordinator()
    configs = [{"name": "consumer.assignment.interval.ms", "config_operation": SET, "value": "0"}]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": s.name, "configs": configs}
    answer = s.quietly("IncrementalAlterConfigs", 1, resources=[resource])
    assert answer["responses"][0]["error_code"] == 0, answer


def new_topic(s: Session, partitions: int = 1) -> str:
    """A topic that the coordinator of the group knows. The reference may see it a moment later than
    metadata shows it: a group beside this one, of the same coordinator's partition, tells."""
    topic = s.topic(partitions)
    wanted = partition_for(s.name, PARTITIONS)
    beside = (f"{s.name}.{n}" for n in count())
    group = next(each for each in beside if partition_for(each, PARTITIONS) == wanted)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        answer = s.quietly(HEARTBEAT, 1, **join_fields(s, ONE, topic, group_id=group))
        s.quietly(HEARTBEAT, 1, **beat_fields(s, ONE, LEAVING, group_id=group))
        s.quietly("DeleteGroups", 2, groups_names=[group])
        if answer["assignment"]["topic_partitions"]:
            return topic
        time.sleep(0.02)
    raise TimeoutError(f"the coordinator does not know {topic}")


def beat_fields(s: Session, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
    return {"group_id": s.name, "member_id": member, "member_epoch": epoch, **changes}


def beat(s: Session, version: int, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
    return s.ask(HEARTBEAT, version, **beat_fields(s, member, epoch, **changes))


def join_fields(s: Session, member: str, *topics: str, **changes: Any) -> dict[str, Any]:
    fields = beat_fields(s, member, 0, rebalance_timeout_ms=60_000, topic_partitions=[])
    return {**fields, "subscribed_topic_names": list(topics), **changes}


def join(s: Session, version: int, member: str, *topics: str, **changes: Any) -> dict[str, Any]:
    return s.ask(HEARTBEAT, version, **join_fields(s, member, *topics, **changes))


def owned(s: Session, topic: str, *partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id": s.topic_id(topic), "partitions": list(partitions)}]


def described(s: Session) -> None:
    s.ask(DESCRIBE, 1, group_ids=[s.name])


def joined(s: Session, partitions: int = 2) -> str:
    """A group of one member with all partitions, without a record of it; returns the topic."""
    prepare(s)
    topic = new_topic(s, partitions)
    answer = s.quietly(HEARTBEAT, 1, **join_fields(s, ONE, topic))
    assert (answer["error_code"], answer["member_epoch"]) == (0, 2), answer
    return topic


# ---- ConsumerGroupHeartbeat ----------------------------------------------------------------------


@case(HEARTBEAT)
def life_of_one(s: Session, version: int) -> None:
    prepare(s)
    topic = new_topic(s, 3)
    mine = owned(s, topic, 0, 1, 2)
    join(s, version, ONE, topic)
    beat(s, version, ONE, 2)
    beat(s, version, ONE, 2, topic_partitions=mine)
    whole = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic]}
    beat(s, version, ONE, 2, topic_partitions=mine, **whole)
    join(s, version, ONE, topic)
    described(s)
    beat(s, version, ONE, LEAVING)
    beat(s, version, ONE, LEAVING)
    beat(s, version, ONE, 2)
    described(s)


@case(HEARTBEAT)
def two_share(s: Session, version: int) -> None:
    """One revokes before two gets its part; one goes on with what two leaves."""
    topic = joined(s, 4)
    join(s, version, TWO, topic)
    described(s)
    beat(s, version, TWO, 3)
    beat(s, version, ONE, 2, topic_partitions=owned(s, topic, 0, 1, 2, 3))
    described(s)
    beat(s, version, ONE, 2, topic_partitions=owned(s, topic, 0, 1, 2))
    beat(s, version, ONE, 2, topic_partitions=owned(s, topic, 0, 1))
    beat(s, version, TWO, 3)
    beat(s, version, TWO, 3, topic_partitions=owned(s, topic, 2, 3))
    described(s)
    beat(s, version, TWO, LEAVING)
    described(s)
    beat(s, version, ONE, 3)
    described(s)


@case(HEARTBEAT)
def three_share_unevenly(s: Session, version: int) -> None:
    """Members with different subscriptions; one changes its own."""
    prepare(s)
    first, second = new_topic(s, 3), new_topic(s, 2)
    join(s, version, ONE, first)
    join(s, version, TWO, first, second)
    beat(s, version, ONE, 2, topic_partitions=owned(s, first, 0))
    beat(s, version, ONE, 2, topic_partitions=owned(s, first, 0, 1, 2))
    join(s, version, THREE, second)
    described(s)
    beat(s, version, TWO, 3, subscribed_topic_names=[first])
    described(s)
    beat(s, version, ONE, 3, subscribed_topic_names=[])
    described(s)


@case(HEARTBEAT)
def wrong_fields(s: Session, version: int) -> None:
    prepare(s)
    topic = new_topic(s)
    join(s, version, ONE, topic, group_id="")
    join(s, version, ONE, topic, instance_id="")
    join(s, version, ONE, topic, rack_id="")
    join(s, version, ONE, topic, rebalance_timeout_ms=-1)
    join(s, version, ONE, topic, rebalance_timeout_ms=0)
    join(s, version, ONE, topic, topic_partitions=None)
    join(s, version, ONE, topic, topic_partitions=owned(s, topic, 0))
    join(s, version, ONE, subscribed_topic_names=None)
    join(s, version, ONE, topic, server_assignor="none")
    join(s, version, ONE, topic, server_assignor="")
    beat(s, version, ONE, -3)
    beat(s, version, ONE, LEAVING_STATIC)
    beat(s, version, "", LEAVING)
    beat(s, version, "", 2)
    beat(s, version, ONE, 2, instance_id="")
    beat(s, version, ONE, 2, rack_id="")
    beat(s, version, ONE, 2, server_assignor="none")
    s.ask("DescribeGroups", 6, groups=[s.name])


@case(HEARTBEAT, first=1)
def without_a_member_id(s: Session, version: int) -> None:
    prepare(s)
    join(s, version, "", new_topic(s))


@case(HEARTBEAT)
def odd_subscriptions(s: Session, version: int) -> None:
    prepare(s)
    topic = new_topic(s)
    join(s, version, ONE)
    described(s)
    join(s, version, TWO, topic, f"{s.name}.none", topic)
    join(s, version, THREE, "", "no such topic!")
    described(s)


@case(HEARTBEAT, last=0)
def a_member_id_of_the_coordinator(s: Session, version: int) -> None:
    prepare(s)
    answer = join(s, version, "", new_topic(s))
    beat(s, version, answer["member_id"], 2)
    beat(s, version, answer["member_id"], LEAVING)


@case(HEARTBEAT)
def unknown_members(s: Session, version: int) -> None:
    prepare(s)
    for epoch in (2, LEAVING):
        beat(s, version, ONE, epoch)
    beat(s, version, ONE, LEAVING_STATIC, instance_id="i")
    beat(s, version, ONE, 2, instance_id="i")
    topic = new_topic(s)
    join(s, version, ONE, topic)
    for epoch in (2, LEAVING):
        beat(s, version, "nobody", epoch)
        beat(s, version, "nobody", epoch, instance_id="i")
    beat(s, version, "nobody", LEAVING_STATIC, instance_id="i")
    beat(s, version, ONE, 2, instance_id="i")


@case(HEARTBEAT)
def epochs(s: Session, version: int) -> None:
    topic = joined(s, 4)
    join(s, version, TWO, topic)
    beat(s, version, ONE, 2)
    beat(s, version, ONE, 2, topic_partitions=owned(s, topic, 0, 1))
    beat(s, version, ONE, 2)
    beat(s, version, ONE, 2, topic_partitions=owned(s, topic, 0, 1, 2))
    beat(s, version, ONE, 2, topic_partitions=owned(s, topic, 0))
    beat(s, version, ONE, 3)
    beat(s, version, ONE, 4)
    beat(s, version, TWO, 2, topic_partitions=[])
    beat(s, version, TWO, 2)
    described(s)


@case(HEARTBEAT)
def static_members(s: Session, version: int) -> None:
    prepare(s)
    topic = new_topic(s, 2)
    fixed = {"instance_id": "fixed"}
    join(s, version, ONE, topic, **fixed)
    join(s, version, TWO, topic, **fixed)
    beat(s, version, ONE, 2, **fixed)
    beat(s, version, TWO, 2, **fixed)
    beat(s, version, ONE, 2, instance_id="other")
    beat(s, version, ONE, 3, **fixed)
    beat(s, version, ONE, LEAVING_STATIC, **fixed)
    described(s)
    beat(s, version, ONE, 2, **fixed)
    join(s, version, TWO, topic, **fixed)
    beat(s, version, ONE, 2, **fixed)
    beat(s, version, ONE, LEAVING_STATIC, **fixed)
    beat(s, version, TWO, 2, **fixed)
    described(s)
    beat(s, version, TWO, LEAVING, **fixed)
    described(s)
    beat(s, version, TWO, 2, **fixed)


@case(HEARTBEAT)
def a_static_member_comes_back_with_another_subscription(s: Session, version: int) -> None:
    prepare(s)
    first, second = new_topic(s, 2), new_topic(s)
    join(s, version, ONE, first, instance_id="fixed")
    join(s, version, TWO, first, second)
    beat(s, version, ONE, LEAVING_STATIC, instance_id="fixed")
    join(s, version, THREE, second, instance_id="fixed", rack_id="r", rebalance_timeout_ms=1000)
    described(s)


@case(HEARTBEAT)
def assignors(s: Session, version: int) -> None:
    prepare(s)
    first, second = new_topic(s, 3), new_topic(s, 4)
    join(s, version, ONE, first, second, server_assignor="range")
    described(s)
    join(s, version, TWO, first, second, server_assignor="range")
    described(s)
    join(s, version, THREE, first, second, server_assignor="uniform")
    described(s)
    beat(s, version, TWO, 3, server_assignor="uniform")
    described(s)


@case(HEARTBEAT, first=1)
def regular_expressions(s: Session, version: int) -> None:
    """The reference looks for topics beside its heartbeats: epochs may differ, not the result."""
    prepare(s)
    topic = new_topic(s, 2)
    own = {"subscribed_topic_names": None}
    for regex in ("(", "*", "(?<=a)b", "[[:foo:]]", "\\"):
        join(s, version, ONE, **own, subscribed_topic_regex=regex)
    join(s, version, ONE, **own, subscribed_topic_regex="")
    beat(s, version, ONE, LEAVING)
    pattern = topic.replace(".", "\\.")
    fields = join_fields(s, TWO, **own, subscribed_topic_regex=pattern)
    s.quietly(HEARTBEAT, version, **fields)

    def assigned() -> Any:
        answer = s.quietly(DESCRIBE, 1, group_ids=[s.name])
        epoch = answer["groups"][0]["members"][0]["member_epoch"]
        s.quietly(HEARTBEAT, version, **beat_fields(s, TWO, epoch))
        return answer["groups"][0]["members"][0]

    member = assigned()
    for _ in range(200):
        if member["assignment"]["topic_partitions"]:
            break
        member = assigned()
    s.record(DESCRIBE, {**member, "member_epoch": "any"})
    s.ask(HEARTBEAT, version, **beat_fields(s, TWO, member["member_epoch"] + 5))
    beat(s, version, TWO, LEAVING)


@case(HEARTBEAT)
def settings_of_the_group(s: Session, version: int) -> None:
    topic = joined(s)
    configs = [
        {"name": f"consumer.{name}.ms", "config_operation": SET, "value": value}
        for name, value in (("heartbeat.interval", "6000"), ("session.timeout", "50000"))
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": s.name, "configs": configs}
    s.quietly("IncrementalAlterConfigs", 1, resources=[resource])
    s.ask_until(
        HEARTBEAT,
        version,
        lambda answer: answer["heartbeat_interval_ms"] == 6000,
        **beat_fields(s, ONE, 2),
    )
    join(s, version, TWO, topic)


# ---- ConsumerGroupDescribe -----------------------------------------------------------------------


@case(DESCRIBE)
def groups(s: Session, version: int) -> None:
    topic = joined(s)
    s.quietly(
        HEARTBEAT,
        1,
        **join_fields(s, TWO, topic, instance_id="i", rack_id="r", server_assignor="range"),
    )
    s.ask(DESCRIBE, version, group_ids=[s.name])
    s.ask(DESCRIBE, version, group_ids=[s.name], include_authorized_operations=True)
    s.ask(DESCRIBE, version, group_ids=[f"{s.name}.none", s.name])
    s.ask(DESCRIBE, version, group_ids=[f"{s.name}.none"], include_authorized_operations=True)
    s.ask(DESCRIBE, version, group_ids=[])
    for member in (ONE, TWO):
        s.quietly(HEARTBEAT, 1, **beat_fields(s, member, LEAVING))
    s.ask(DESCRIBE, version, group_ids=[s.name])
    s.quietly("DeleteGroups", 2, groups_names=[s.name])
    s.ask(DESCRIBE, version, group_ids=[s.name])


@case(DESCRIBE)
def no_name(s: Session, version: int) -> None:
    s.coordinator()
    s.ask(DESCRIBE, version, group_ids=[""])


@case(DESCRIBE)
def a_classic_group(s: Session, version: int) -> None:
    stable_classic(s)
    s.ask(DESCRIBE, version, group_ids=[s.name])


# ---- other APIs ----------------------------------------------------------------------------------


@case("DescribeGroups")
def of_consumers(s: Session, version: int) -> None:
    joined(s)
    s.ask("DescribeGroups", version, groups=[s.name])
    s.quietly(HEARTBEAT, 1, **beat_fields(s, ONE, LEAVING))
    s.ask("DescribeGroups", version, groups=[s.name])


@case("ListGroups")
def with_types(s: Session, version: int) -> None:
    topic = joined(s)

    def ask(**fields: Any) -> None:
        answer = s.quietly("ListGroups", version, **fields)
        mine = [group for group in answer["groups"] if group["group_id"] == s.name]
        s.record("ListGroups", {**answer, "groups": mine})

    ask()
    if version >= 4:
        for states in (["Stable"], ["stable"], ["Empty", "Dead"], ["Assigning"], ["Reconciling"]):
            ask(states_filter=states)
    if version >= 5:
        for types in (["classic"], ["consumer"], ["Consumer"], ["consumer", "none"], ["share"]):
            ask(types_filter=types)
    s.quietly(HEARTBEAT, 1, **join_fields(s, TWO, topic))
    ask()
    if version >= 4:
        for states in (["Stable"], ["reconciling"], ["PreparingRebalance"]):
            ask(states_filter=states)
    s.quietly(HEARTBEAT, 1, **beat_fields(s, ONE, LEAVING))
    ask()
    s.quietly(HEARTBEAT, 1, **beat_fields(s, TWO, LEAVING))
    ask()


@case("DeleteGroups")
def of_consumers_deleted(s: Session, version: int) -> None:
    joined(s)
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.quietly(HEARTBEAT, 1, **beat_fields(s, ONE, LEAVING))
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.ask("DescribeGroups", 6, groups=[s.name])


@case("Heartbeat")
def to_consumers(s: Session, version: int) -> None:
    joined(s)
    for member in (ONE, "nobody"):
        heartbeat(s, version, {"generation_id": 2, "member_id": member})


@case("SyncGroup")
def syncing_with_consumers(s: Session, version: int) -> None:
    joined(s)
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    for member in (ONE, "nobody"):
        sync(s, version, {"generation_id": 2, "member_id": member}, **names)


@case("LeaveGroup")
def leaving_consumers(s: Session, version: int) -> None:
    joined(s)
    for member in ("nobody", ONE):
        leave(s, version, member)
    described(s)


def commit(
    s: Session, version: int, topic: str, member: str, epoch: int, *numbers: int, **changes: Any
) -> None:
    parts = [part(10 + number, number) for number in numbers or (0,)]
    fields = {"group_id": s.name, "generation_id_or_member_epoch": epoch, "member_id": member}
    fields |= {"topics": [of_topic(s, version, topic, *parts)], **changes}
    s.ask("OffsetCommit", version, **fields)


@case("OffsetCommit")
def of_consumers_committed(s: Session, version: int) -> None:
    topic = joined(s, 4)
    for member, epoch in (
        (ONE, 2),
        (ONE, 3),
        (ONE, 1),
        (ONE, 0),
        (ONE, -1),
        ("nobody", 2),
        ("", -1),
    ):
        commit(s, version, topic, member, epoch)
    commit(s, version, topic, "", 2)
    if version >= 7:
        commit(s, version, topic, ONE, 2, group_instance_id="none")
    s.quietly(HEARTBEAT, 1, **join_fields(s, TWO, topic))
    s.quietly(HEARTBEAT, 1, **beat_fields(s, ONE, 2))
    mine = owned(s, topic, 0, 1)
    s.quietly(HEARTBEAT, 1, **beat_fields(s, ONE, 2, topic_partitions=mine))
    s.quietly(HEARTBEAT, 1, **beat_fields(s, TWO, 3))
    commit(s, version, topic, ONE, 2, 0, 1)
    commit(s, version, topic, ONE, 2, 0, 3)
    commit(s, version, topic, TWO, 2, 3)
    commit(s, version, topic, TWO, 3, 3)
    for member in (ONE, TWO):
        s.quietly(HEARTBEAT, 1, **beat_fields(s, member, LEAVING))
    commit(s, version, topic, ONE, 3)
    commit(s, version, topic, "", -1)
    row = {"group_id": s.name, "topics": None}
    s.ask("OffsetFetch", 9, groups=[row])


@case("OffsetFetch", first=8)
def of_consumers_fetched(s: Session, version: int) -> None:
    topic = joined(s)
    s.quietly(
        "OffsetCommit",
        9,
        group_id=s.name,
        generation_id_or_member_epoch=2,
        member_id=ONE,
        topics=[of_topic(s, 9, topic, part(3))],
    )
    s.ask("OffsetFetch", version, groups=[{"group_id": s.name, "topics": None}])
    if version >= 9:
        for member, epoch in (
            (ONE, 2),
            (ONE, 1),
            (ONE, 0),
            (ONE, 3),
            (ONE, -1),
            ("nobody", 2),
        ):
            row = {"group_id": s.name, "member_id": member, "member_epoch": epoch, "topics": None}
            s.ask("OffsetFetch", version, groups=[row])


@case("OffsetDelete")
def of_consumers_deleted_offsets(s: Session, version: int) -> None:
    topic = joined(s)
    other = new_topic(s)
    for name in (topic, other):
        s.quietly(
            "OffsetCommit",
            9,
            group_id=s.name,
            generation_id_or_member_epoch=2,
            member_id=ONE,
            topics=[of_topic(s, 9, name, part(3))],
        )
    rows = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (topic, other)]
    s.ask("OffsetDelete", version, group_id=s.name, topics=rows)
    s.ask("OffsetFetch", 8, groups=[{"group_id": s.name, "topics": None}])
