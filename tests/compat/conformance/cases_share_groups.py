"""Cases: share groups (KIP-932): members, descriptions, offsets, and what other APIs say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch, records
from compat.conformance.cases_group_offsets import of_topic, part
from compat.conformance.cases_groups import heartbeat, leave, sync
from compat.conformance.cases_groups import join as join_classic
from compat.conformance.cases_groups import stable as stable_classic
from compat.conformance.cases_share_consumers import ACCEPT, REJECT, acknowledge, fetch
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

HEARTBEAT, DESCRIBE = "ShareGroupHeartbeat", "ShareGroupDescribe"
DESCRIBE_OFFSETS, ALTER_OFFSETS = "DescribeShareGroupOffsets", "AlterShareGroupOffsets"
DELETE_OFFSETS = "DeleteShareGroupOffsets"
GROUP_RESOURCE, SET, LEAVING = 32, 0, -1
ONE, TWO = "member-of-one", "member-of-two"


def fields_of(s: Session, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
    return {"group_id": s.name, "member_id": member, "member_epoch": epoch, **changes}


def beat(s: Session, version: int, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
    return s.ask(HEARTBEAT, version, **fields_of(s, member, epoch, **changes))


def join(s: Session, version: int, member: str, *topics: str, **changes: Any) -> dict[str, Any]:
    return beat(s, version, member, 0, **{"subscribed_topic_names": list(topics), **changes})


def has_partitions(answer: dict[str, Any]) -> bool:
    return bool(answer["assignment"] and answer["assignment"]["topic_partitions"])


def assigned(s: Session, version: int, member: str, epoch: int) -> dict[str, Any]:
    """The heartbeat that has the partitions, once their states are initialized."""
    return s.ask_until(HEARTBEAT, version, has_partitions, **fields_of(s, member, epoch))


def prepare(s: Session) -> None:
    """A loaded coordinator, and a group whose assignments don't wait for each other."""
    s.coordinator()
    configs = [{"name": "share.assignment.interval.ms", "config_operation": SET, "value": "0"}]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": s.name, "configs": configs}
    answer = s.quietly("IncrementalAlterConfigs", 1, resources=[resource])
    assert answer["responses"][0]["error_code"] == 0, answer


def joined(s: Session, partitions: int = 2) -> str:
    """A group of one member with all partitions; returns the topic."""
    prepare(s)
    topic = s.topic(partitions)
    join(s, 1, ONE, topic)
    assigned(s, 1, ONE, 2)
    return topic


def described(s: Session) -> None:
    s.ask(DESCRIBE, 1, group_ids=[s.name])


@case(HEARTBEAT)
def life_of_one(s: Session, version: int) -> None:
    topic = joined(s, 3)
    for epoch in (3, 2, 1, 4):
        beat(s, version, ONE, epoch)
    join(s, version, ONE, topic)
    described(s)
    beat(s, version, ONE, LEAVING)
    beat(s, version, ONE, LEAVING)
    beat(s, version, ONE, 3)
    described(s)


@case(HEARTBEAT)
def another_subscription(s: Session, version: int) -> None:
    joined(s)
    other = s.topic()
    beat(s, version, ONE, 3, subscribed_topic_names=[other])
    assigned(s, version, ONE, 4)
    described(s)
    beat(s, version, ONE, 5, subscribed_topic_names=[f"{s.name}.none"])
    described(s)


@case(HEARTBEAT)
def wrong_fields(s: Session, version: int) -> None:
    prepare(s)
    topic = s.topic()
    beat(s, version, ONE, 1)
    beat(s, version, ONE, LEAVING)
    join(s, version, ONE, topic, group_id="")
    join(s, version, "", topic)
    join(s, version, "m" * 37, topic)
    join(s, version, ONE, topic, rack_id="")
    join(s, version, ONE, subscribed_topic_names=None)
    join(s, version, ONE)
    beat(s, version, ONE, -2)
    beat(s, version, "", LEAVING)
    described(s)


@case(HEARTBEAT)
def of_another_type(s: Session, version: int) -> None:
    stable_classic(s)
    topic = s.topic()
    join(s, version, ONE, topic)
    beat(s, version, ONE, 2)
    beat(s, version, ONE, LEAVING)


@case(DESCRIBE)
def groups(s: Session, version: int) -> None:
    joined(s)
    s.ask(DESCRIBE, version, group_ids=[s.name], include_authorized_operations=True)
    for asked in ([f"{s.name}.none"], [""], []):
        s.ask(DESCRIBE, version, group_ids=asked)


@case(DESCRIBE)
def a_classic_group(s: Session, version: int) -> None:
    stable_classic(s)
    s.ask(DESCRIBE, version, group_ids=[s.name])


# ---- offsets -------------------------------------------------------------------------------------


def offsets(s: Session, version: int, *topics: tuple[str, list[int]]) -> None:
    rows = [{"topic_name": name, "partitions": indexes} for name, indexes in topics] or None
    s.ask(DESCRIBE_OFFSETS, version, groups=[{"group_id": s.name, "topics": rows}])


def alter(s: Session, version: int, topic: str, *starts: tuple[int, int], **changes: Any) -> None:
    partitions = [{"partition_index": index, "start_offset": start} for index, start in starts]
    row = {"topic_name": topic, "partitions": partitions}
    s.ask(ALTER_OFFSETS, version, **{"group_id": s.name, "topics": [row], **changes})


@case(DESCRIBE_OFFSETS)
def of_a_group(s: Session, version: int) -> None:
    topic = joined(s)
    offsets(s, version)
    offsets(s, version, (topic, [0, 9]), (f"{s.name}.none", [0]))
    for group_id in (f"{s.name}.none", ""):
        s.ask(DESCRIBE_OFFSETS, version, groups=[{"group_id": group_id, "topics": None}])
    s.ask(DESCRIBE_OFFSETS, version, groups=[])


@case(ALTER_OFFSETS)
def altered(s: Session, version: int) -> None:
    topic = joined(s)
    alter(s, version, topic, (0, 1))
    s.quietly(HEARTBEAT, 1, **fields_of(s, ONE, LEAVING))
    alter(s, version, topic, (0, 0), (1, 5), (9, 1))
    alter(s, version, f"{s.name}.none", (0, 0))
    alter(s, version, topic, topics=[])
    alter(s, version, topic, (0, 0), group_id="")
    alter(s, version, topic, (0, 3), group_id=f"{s.name}.new")
    offsets(s, 1)
    described(s)


@case(DELETE_OFFSETS)
def deleted_offsets(s: Session, version: int) -> None:
    topic = joined(s)

    def delete(*topics: str, **changes: Any) -> None:
        rows = [{"topic_name": name} for name in topics]
        s.ask(DELETE_OFFSETS, version, **{"group_id": s.name, "topics": rows, **changes})

    delete(topic)
    s.quietly(HEARTBEAT, 1, **fields_of(s, ONE, LEAVING))
    delete(f"{s.name}.none", topic)
    delete(topic)
    delete()
    delete(topic, group_id="")
    delete(topic, group_id=f"{s.name}.none")
    offsets(s, 1)


# ---- other APIs ----------------------------------------------------------------------------------


@case("DescribeGroups", first=5)
def of_shares(s: Session, version: int) -> None:
    joined(s)
    s.ask("DescribeGroups", version, groups=[s.name])


@case("ListGroups", first=5)
def with_share_groups(s: Session, version: int) -> None:
    joined(s)
    for fields in ({}, {"types_filter": ["Share"]}, {"states_filter": ["stable"]}):
        answer = s.quietly("ListGroups", version, **fields)
        mine = [group for group in answer["groups"] if group["group_id"] == s.name]
        s.record("ListGroups", {**answer, "groups": mine})


@case("DeleteGroups", first=2)
def of_shares_deleted(s: Session, version: int) -> None:
    joined(s)
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.quietly(HEARTBEAT, 1, **fields_of(s, ONE, LEAVING))
    s.ask("DeleteGroups", version, groups_names=[s.name])
    described(s)


@case("ConsumerGroupHeartbeat")
def of_a_share_group(s: Session, version: int) -> None:
    topic = joined(s)
    fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    s.ask(
        "ConsumerGroupHeartbeat",
        version,
        **fields_of(s, TWO, 0, subscribed_topic_names=[topic], **fields),
    )
    s.ask("ConsumerGroupDescribe", version, group_ids=[s.name])


@case("JoinGroup", first=9)
def into_a_share_group(s: Session, version: int) -> None:
    """The classic protocol, with a share group in its place."""
    joined(s)
    join_classic(s, version)
    one = {"generation_id": 2, "member_id": ONE}
    sync(s, 5, one, protocol_type="consumer", protocol_name="range")
    heartbeat(s, 4, one)
    leave(s, 5, ONE)
    described(s)


@case("OffsetCommit", first=9)
def of_a_share_group_committed(s: Session, version: int) -> None:
    topic = joined(s)
    for member, epoch in ((ONE, 2), ("", -1)):
        rows = [of_topic(s, version, topic, part(3))]
        fields = {"generation_id_or_member_epoch": epoch, "member_id": member, "topics": rows}
        s.ask("OffsetCommit", version, group_id=s.name, **fields)
    s.ask("OffsetFetch", 9, groups=[{"group_id": s.name, "topics": None}])
    of_member = {"group_id": s.name, "member_id": ONE, "member_epoch": 2, "topics": None}
    s.ask("OffsetFetch", 9, groups=[of_member])
    rows = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    s.ask("OffsetDelete", 0, group_id=s.name, topics=rows)
    s.quietly(HEARTBEAT, 1, **fields_of(s, ONE, LEAVING))
    s.ask("OffsetDelete", 0, group_id=s.name, topics=rows)


@case(HEARTBEAT)
def two_of_a_group(s: Session, version: int) -> None:
    """Both get the one partition; racks and names of clients are described."""
    topic = joined(s, 1)
    join(s, version, TWO, topic, rack_id="r")
    beat(s, version, ONE, 3)
    described(s)
    beat(s, version, ONE, 4, subscribed_topic_names=[])
    beat(s, version, TWO, 4, rack_id="")
    beat(s, version, TWO, LEAVING)
    beat(s, version, ONE, 5)
    described(s)


@case(DESCRIBE_OFFSETS)
def of_a_reader(s: Session, version: int) -> None:
    """The start offset and the lag (version 1) of a group that reads."""
    prepare(s)
    topic = s.topic()
    s.produce(topic, batch(records(4)), batch(records(2)))
    from_the_first = {"name": "share.auto.offset.reset", "config_operation": SET}
    configs = [{**from_the_first, "value": "earliest"}]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": s.name, "configs": configs}
    s.quietly("IncrementalAlterConfigs", 1, resources=[resource])
    join(s, 1, ONE, topic)
    assigned(s, 1, ONE, 2)
    topic_id = s.topic_id(topic)
    fetch(s, 1, 0, topic_id)
    offsets(s, version)
    for epoch, row in enumerate(((0, 1, [ACCEPT]), (4, 5, [ACCEPT]), (2, 3, [REJECT])), 1):
        acknowledge(s, 1, epoch, topic_id, row)
        offsets(s, version)
    acknowledge(s, 1, -1, None)
    s.quietly(HEARTBEAT, 1, **fields_of(s, ONE, LEAVING))
    alter(s, 0, topic, (0, 2))
    offsets(s, version)
