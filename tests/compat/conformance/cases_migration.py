"""Cases: groups that change between the classic and the consumer protocol, with members in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_consumer_groups import (
    LEAVING,
    ONE,
    TWO,
    beat,
    described,
    join,
    new_topic,
    owned,
    prepare,
)
from compat.conformance.registry import case
from support.mixed_groups import assignment_of, subscription_bytes

if TYPE_CHECKING:
    from compat.conformance.session import Session

MEMBER_ID_REQUIRED = 79
JOIN, SYNC, CLASSIC = "JoinGroup", "SyncGroup", "range"
VERSION = 9
Partitions = list[tuple[str, int]]


def classic_fields(s: Session, member: str, topic: str, **changes: Any) -> dict[str, Any]:
    has: Partitions = changes.pop("has", [])
    metadata = subscription_bytes(topic, owned=has)
    return {
        "group_id": s.name,
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": CLASSIC, "metadata": metadata}],
        **changes,
    }


def classic_join(s: Session, member: str, topic: str, **changes: Any) -> dict[str, Any]:
    return s.ask(JOIN, VERSION, **classic_fields(s, member, topic, **changes))


def classic_sync(s: Session, joined: dict[str, Any], *changes: Any, **fields: Any) -> Any:
    given = [{"member_id": joined["member_id"], "assignment": each} for each in changes]
    return s.ask(
        SYNC,
        5,
        **{
            "group_id": s.name,
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "protocol_type": "consumer",
            "protocol_name": CLASSIC,
            "assignments": given,
            **fields,
        },
    )


def classic_beat(s: Session, joined: dict[str, Any], **changes: Any) -> Any:
    fields = {"generation_id": joined["generation_id"], "member_id": joined["member_id"]}
    return s.ask("Heartbeat", 4, **{"group_id": s.name, **fields, **changes})


def classic_leave(s: Session, *members: dict[str, Any]) -> None:
    s.ask("LeaveGroup", 5, group_id=s.name, members=list(members))


def stable(s: Session, topic: str, assignment: bytes, **changes: Any) -> dict[str, Any]:
    """A classic group of one member with this assignment."""
    joined = classic_join(s, "", topic, **changes)
    if joined["error_code"] == MEMBER_ID_REQUIRED:
        joined = classic_join(s, joined["member_id"], topic, **changes)
    kind = changes.get("protocol_type", "consumer")
    classic_sync(s, joined, assignment, protocol_type=kind)
    return joined


def mixed(s: Session, partitions: int = 2) -> tuple[str, dict[str, Any]]:
    """A group with `ONE`, which has all partitions, and a classic member, which waits for some."""
    prepare(s)
    topic = new_topic(s, partitions)
    join(s, 1, ONE, topic)
    asked = classic_join(s, "", topic)
    joined = classic_join(s, asked["member_id"], topic)
    return topic, joined


@case(JOIN, VERSION)
def migration_a_classic_group_changes_and_changes_back(s: Session, _version: int) -> None:
    prepare(s)
    topic = new_topic(s, 3)
    every = [(topic, n) for n in range(3)]
    old = stable(s, topic, assignment_of(every))
    join(s, 1, ONE, topic)
    described(s)
    listed = s.quietly("ListGroups", 5, types_filter=["consumer"], states_filter=[])
    mine = [group for group in listed["groups"] if group["group_id"] == s.name]
    s.record("ListGroups", {**listed, "groups": mine})
    classic_beat(s, old)
    classic_sync(s, old)
    old = classic_join(s, old["member_id"], topic, has=every)
    classic_sync(s, old)
    classic_beat(s, old)
    described(s)
    old = classic_join(s, old["member_id"], topic, has=every[:2])
    classic_sync(s, old)
    classic_beat(s, old)
    classic_beat(s, old, generation_id=9)
    beat(s, 1, ONE, 2)
    beat(s, 1, ONE, 2, topic_partitions=owned(s, topic, 2))
    described(s)
    beat(s, 1, ONE, LEAVING)
    classic_beat(s, old)
    s.ask("DescribeGroups", 6, groups=[s.name])
    again = classic_join(s, old["member_id"], topic)
    classic_sync(s, again, assignment_of(every))
    classic_beat(s, again)
    s.ask("DescribeGroups", 6, groups=[s.name])
    beat(s, 1, ONE, 2)
    classic_leave(s, {"member_id": again["member_id"]})


@case(JOIN, VERSION)
def migration_a_parked_join_is_answered(s: Session, _version: int) -> None:
    prepare(s)
    topic = new_topic(s, 3)  # a partition for each: which member gets more depends on their ids
    old = stable(s, topic, assignment_of([(topic, n) for n in range(3)]))
    asked = s.quietly(JOIN, VERSION, **classic_fields(s, "", topic))
    fields = classic_fields(s, asked["member_id"], topic)
    parked = s.send(JOIN, VERSION, connection="second", **fields)
    s.ask_until(
        "Heartbeat",
        4,
        lambda answer: answer["error_code"],
        group_id=s.name,
        generation_id=old["generation_id"],
        member_id=old["member_id"],
    )
    join(s, 1, ONE, topic)
    s.receive(JOIN, VERSION, parked)
    described(s)
    classic_join(s, asked["member_id"], topic)
    described(s)


@case(JOIN, VERSION)
def migration_bytes_that_do_not_fit(s: Session, _version: int) -> None:
    prepare(s)
    topic = new_topic(s, 2)
    old = stable(s, topic, b"all")
    join(s, 1, ONE, topic)
    again = classic_join(s, old["member_id"], topic)
    classic_sync(s, again, b"\xff\xff")
    join(s, 1, ONE, topic)
    again = classic_join(s, old["member_id"], topic)
    classic_sync(s, again, assignment_of([(topic, 0)], b"own"))
    join(s, 1, ONE, topic)
    again = classic_join(s, old["member_id"], topic)
    classic_sync(s, again, b"")
    join(s, 1, ONE, topic)
    described(s)


@case(JOIN, VERSION)
def migration_a_group_of_another_type(s: Session, _version: int) -> None:
    prepare(s)
    topic = new_topic(s, 1)
    stable(s, topic, b"", protocol_type="connect")
    join(s, 1, ONE, topic)


@case(JOIN, VERSION)
def migration_classic_requests_of_a_consumer_group(s: Session, _version: int) -> None:
    topic, old = mixed(s)
    classic_join(s, "", topic, protocol_type="connect")
    classic_join(s, "", topic, protocols=[])
    other = [{"name": "other", "metadata": subscription_bytes(topic)}]
    classic_join(s, "", topic, protocols=other)
    classic_join(s, "x", topic, protocols=[{"name": CLASSIC, "metadata": b"\0"}])
    classic_join(s, "x", topic, group_instance_id="i")
    classic_beat(s, old)
    classic_beat(s, old, member_id="nobody")
    classic_beat(s, old, member_id=ONE, generation_id=2)
    classic_beat(s, old, group_instance_id="i")
    classic_sync(s, old)
    classic_sync(s, old, generation_id=9)
    classic_sync(s, old, protocol_type="connect")
    classic_sync(s, old, protocol_name="other")
    classic_sync(s, old, member_id=ONE)
    beat(s, 1, ONE, 2)
    beat(s, 1, ONE, 2, topic_partitions=owned(s, topic, 0))
    classic_beat(s, old)
    again = classic_join(s, old["member_id"], topic)
    classic_sync(s, again)
    described(s)
    s.ask("DescribeGroups", 6, groups=[s.name])


@case(JOIN, VERSION)
def migration_static_members_swap_the_protocol(s: Session, _version: int) -> None:
    prepare(s)
    topic = new_topic(s, 2)
    every = [(topic, 0), (topic, 1)]
    old = stable(s, topic, assignment_of(every), group_instance_id="i")
    join(s, 1, ONE, topic, instance_id="i")
    described(s)
    classic_beat(s, old, group_instance_id="i")
    classic_join(s, old["member_id"], topic, group_instance_id="i")
    beat(s, 1, ONE, 1, instance_id="i", topic_partitions=owned(s, topic, 0, 1))
    back = classic_join(s, "", topic, group_instance_id="i")
    classic_sync(s, back, group_instance_id="i")
    classic_beat(s, back, group_instance_id="i")
    s.ask("DescribeGroups", 6, groups=[s.name])
    beat(s, 1, ONE, 1, instance_id="i")


@case(JOIN, VERSION)
def migration_members_of_both_protocols_leave(s: Session, _version: int) -> None:
    topic, old = mixed(s)
    join(s, 1, TWO, topic, instance_id="i")
    classic_leave(
        s,
        {"member_id": "nobody"},
        {"member_id": "x", "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "j"},
        {"member_id": "", "group_instance_id": "i"},
    )
    described(s)
    classic_leave(s, {"member_id": ONE})
    classic_beat(s, old)
    classic_leave(s, {"member_id": old["member_id"]})
    s.ask("DescribeGroups", 6, groups=[s.name])
