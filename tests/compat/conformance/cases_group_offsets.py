"""Cases: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_groups import stable, who
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

UNKNOWN_ID = bytes(range(16))


def part(offset: int, partition: int = 0, metadata: str | None = "meta") -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }


def of_topic(s: Session, version: int, topic: str, *parts: dict[str, Any]) -> dict[str, Any]:
    if version >= 10:
        return {"topic_id": s.topic_id(topic) or UNKNOWN_ID, "partitions": list(parts)}
    return {"name": topic, "partitions": list(parts)}


def commit(s: Session, version: int, *topics: dict[str, Any], **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": s.name,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": list(topics),
    }
    return s.ask("OffsetCommit", version, **{**fields, **changes})


def fetched(s: Session, topic: str, *partitions: int) -> None:
    asked = [{"name": topic, "partition_indexes": list(partitions)}]
    s.ask("OffsetFetch", 5, group_id=s.name, topics=asked)


@case("OffsetCommit")
def standalone(s: Session, version: int) -> None:
    s.coordinator()
    topic = s.topic(partitions=2)
    commit(s, version, of_topic(s, version, topic, part(5), part(6, 1, None)))
    commit(s, version, of_topic(s, version, topic, part(3, metadata="")))
    commit(s, version, of_topic(s, version, topic, part(-5, 1), part(1, 7)))
    commit(s, version, of_topic(s, version, topic, part(9, metadata="m" * 5000)))
    commit(s, version)
    fetched(s, topic, 0, 1)


@case("OffsetCommit")
def unknown_topic(s: Session, version: int) -> None:
    s.coordinator()
    name = {"topic_id": UNKNOWN_ID} if version >= 10 else {"name": f"{s.name}.none"}
    commit(s, version, {**name, "partitions": [part(1)]})


@case("OffsetCommit")
def with_members(s: Session, version: int) -> None:
    joined = stable(s)
    topic = s.topic()
    mine = of_topic(s, version, topic, part(5))
    member = {
        "generation_id_or_member_epoch": joined["generation_id"],
        "member_id": joined["member_id"],
    }
    commit(s, version, mine, **member)
    commit(s, version, mine, **{**member, "generation_id_or_member_epoch": 9})
    commit(s, version, mine, **{**member, "member_id": "nobody"})
    commit(s, version, mine)
    commit(s, version, mine, group_id="")
    commit(s, version, mine, **member, group_id=f"{s.name}.none")
    if version >= 7:
        commit(s, version, mine, **member, group_instance_id="none")
    fetched(s, topic, 0)


def committed(s: Session) -> str:
    """A topic with committed offsets."""
    s.coordinator()
    topic = s.topic(partitions=3)
    rows = [part(5), part(7, 1, "")]
    topics = [{"name": topic, "partitions": rows}]
    fields: dict[str, Any] = {"group_id": s.name, "generation_id_or_member_epoch": -1}
    s.quietly("OffsetCommit", 3, **fields, member_id="", topics=topics)
    return topic


@case("OffsetFetch", last=7)
def of_one_group(s: Session, version: int) -> None:
    topic = committed(s)

    def ask(topics: Any, group: str = s.name, **more: Any) -> None:
        s.ask("OffsetFetch", version, group_id=group, topics=topics, **more)

    ask([{"name": topic, "partition_indexes": [0, 1, 2, 9]}])
    ask([{"name": f"{s.name}.none", "partition_indexes": [0]}])
    ask([{"name": topic, "partition_indexes": [0]}], group=f"{s.name}.none")
    ask([{"name": topic, "partition_indexes": [0]}], group="")
    ask([])
    if version >= 2:
        ask(None)
        ask(None, group=f"{s.name}.none")
    if version >= 7:
        ask(None, require_stable=True)


@case("OffsetFetch", first=8)
def of_several_groups(s: Session, version: int) -> None:
    topic = committed(s)
    ids = {"topic_id": s.topic_id(topic)} if version >= 10 else {"name": topic}
    unknown = {"topic_id": UNKNOWN_ID} if version >= 10 else {"name": f"{s.name}.none"}
    mine = {**ids, "partition_indexes": [0, 1, 2, 9]}

    def ask(*groups: tuple[str, Any], **more: Any) -> None:
        rows = [{"group_id": name, "topics": topics} for name, topics in groups]
        s.ask("OffsetFetch", version, groups=rows, **more)

    ask((s.name, [mine]))
    ask((s.name, None), (f"{s.name}.none", None))
    ask((s.name, [{**unknown, "partition_indexes": [0]}]), ("", [mine]))
    ask((s.name, []), require_stable=True)
    ask()


@case("OffsetFetch", first=9)
def of_members(s: Session, version: int) -> None:
    joined = stable(s)
    for member, epoch in (("nobody", 1), (joined["member_id"], joined["generation_id"])):
        row = {"group_id": s.name, "member_id": member, "member_epoch": epoch, "topics": None}
        s.ask("OffsetFetch", version, groups=[row])


@case("OffsetDelete")
def deleted(s: Session, version: int) -> None:
    topic = committed(s)

    def ask(name: str, *partitions: int, group: str = s.name) -> None:
        rows = [{"partition_index": index} for index in partitions]
        s.ask("OffsetDelete", version, group_id=group, topics=[{"name": name, "partitions": rows}])

    ask(topic, 1, 2, 9)
    ask(f"{s.name}.none", 0)
    ask(topic, 0, group=f"{s.name}.none")
    ask(topic, 0, group="")
    fetched(s, topic, 0, 1)


@case("OffsetDelete")
def of_a_live_group(s: Session, version: int) -> None:
    topic = s.topic()
    joined = stable(s)
    fields = {
        "group_id": s.name,
        "generation_id_or_member_epoch": who(joined)["generation_id"],
        "member_id": joined["member_id"],
    }
    topics = [{"name": topic, "partitions": [part(4)]}]
    s.quietly("OffsetCommit", 3, **fields, topics=topics)
    rows = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    s.ask("OffsetDelete", version, group_id=s.name, topics=rows)
    fetched(s, topic, 0)
