"""Cases: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import TIME, batch, records
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session


def list_offsets(
    s: Session, version: int, topic: str, *partitions: dict[str, Any], **more: Any
) -> Any:
    topics = [{"name": topic, "partitions": list(partitions)}]
    return s.ask("ListOffsets", version, replica_id=-1, topics=topics, **more)


def at(timestamp: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition_index": partition, "timestamp": timestamp, **more}


@case("ListOffsets")
def specials(s: Session, version: int) -> None:
    topic = s.topic()
    for special in (-1, -2, -3, -4, -5, -6, -7, -8):
        list_offsets(s, version, topic, at(special))
    s.produce(topic, batch(), batch(records(2, timestamp=TIME - 500)))
    for special in (-1, -2, -3, -4, -5, -6, -7, -8):
        list_offsets(s, version, topic, at(special))


@case("ListOffsets")
def timestamps(s: Session, version: int) -> None:
    topic = s.topic()
    for start in (0, 2000, 1000, 5000):
        s.produce(topic, batch(records(3, timestamp=TIME + start)))
    s.produce(topic, batch(records(3, timestamp=TIME + 6000), codec=3))
    for shift in (-1, 0, 1, 2, 3, 999, 1001, 2001, 2003, 5002, 5003, 6001, 6003):
        list_offsets(s, version, topic, at(TIME + shift))
    list_offsets(s, version, topic, at(0))


@case("ListOffsets")
def unknown(s: Session, version: int) -> None:
    topic = s.topic()
    list_offsets(s, version, topic, at(-1, 5), at(-1, 0))
    list_offsets(s, version, f"{s.name}.none", at(-1))
    list_offsets(s, version, topic, at(-1), at(-1))
    s.ask("ListOffsets", version, replica_id=-1, topics=[])


@case("ListOffsets", first=4)
def epochs(s: Session, version: int) -> None:
    topic = s.topic()
    for epoch in (0, 1, -1):
        list_offsets(s, version, topic, at(-1, current_leader_epoch=epoch))


@case("ListOffsets", first=2)
def isolation(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    for special in (-1, -2, TIME):
        list_offsets(s, version, topic, at(special), isolation_level=1)


@case("OffsetForLeaderEpoch")
def end_offsets(s: Session, version: int) -> None:
    topic = s.topic()

    def ask(*partitions: dict[str, Any], name: str = topic) -> None:
        topics = [{"topic": name, "partitions": list(partitions)}]
        s.ask("OffsetForLeaderEpoch", version, topics=topics)

    ask({"partition": 0, "leader_epoch": 0})
    s.produce(topic, batch())
    for epoch in (-1, 0, 1, 7):
        ask({"partition": 0, "leader_epoch": epoch})
    for epoch in (0, 1):
        ask({"partition": 0, "leader_epoch": 0, "current_leader_epoch": epoch})
    ask({"partition": 6, "leader_epoch": 0})
    ask({"partition": 0, "leader_epoch": 0}, name=f"{s.name}.none")


@case("DeleteRecords")
def deleted(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch(), batch(records(2)))

    def ask(offset: int, partition: int = 0, name: str = topic) -> None:
        partitions = [{"partition_index": partition, "offset": offset}]
        wanted = [{"name": name, "partitions": partitions}]
        s.ask("DeleteRecords", version, topics=wanted, timeout_ms=5000)

    for offset in (0, 2, 1, 6, -2, -1, 5):
        ask(offset)
    ask(0, partition=4)
    ask(0, name=f"{s.name}.none")
    list_offsets(s, 5, topic, at(-2), at(-1))
    s.ask("DeleteRecords", version, topics=[], timeout_ms=1000)


@case("DeleteRecords")
def compacted_is_refused(s: Session, version: int) -> None:
    for policy in ("compact", "compact,delete", ""):
        topic = s.topic(cleanup_policy=policy)
        s.produce(topic, batch(records(2)))
        partitions = [{"partition_index": 0, "offset": 1}]
        wanted = [{"name": topic, "partitions": partitions}]
        s.ask("DeleteRecords", version, topics=wanted, timeout_ms=5000)


@case("DeleteRecords")
def internal_topic(s: Session, version: int) -> None:
    s.coordinator()
    partitions = [{"partition_index": 0, "offset": 0}]
    wanted = [{"name": "__consumer_offsets", "partitions": partitions}]
    s.ask("DeleteRecords", version, topics=wanted, timeout_ms=5000)
