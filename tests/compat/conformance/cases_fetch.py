"""Cases: Fetch, with and without sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch, records
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

UNKNOWN_ID = bytes(range(16))
MAX_BYTES = 1_000_000


def part(partition: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": MAX_BYTES,
        **more,
    }


def of_topic(s: Session, version: int, topic: str, *parts: dict[str, Any]) -> dict[str, Any]:
    if version >= 13:
        return {"topic_id": s.topic_id(topic), "partitions": list(parts)}
    return {"topic": topic, "partitions": list(parts)}


def fetch(s: Session, version: int, *topics: dict[str, Any], **more: Any) -> Any:
    fields = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": MAX_BYTES, **more}
    return s.ask("Fetch", version, topics=list(topics), **fields)


@case("Fetch", last=16)
def stored_bytes(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    s.produce(topic, batch(), batch(records(2)))
    s.produce(topic, batch(records(1), codec=1), partition=1)
    fetch(s, version, of_topic(s, version, topic, part(0), part(1)))
    fetch(s, version, of_topic(s, version, topic, part(1), part(0, offset=3)))
    fetch(s, version, of_topic(s, version, topic, part(0, offset=4)))
    fetch(s, version, of_topic(s, version, topic, part(0, offset=5)))


@case("Fetch", last=16)
def out_of_range(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    for offset in (4, -1, -5):
        fetch(s, version, of_topic(s, version, topic, part(0, offset=offset)))


@case("Fetch", last=16)
def below_log_start(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch(), batch())
    before = {"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}
    s.quietly("DeleteRecords", 1, topics=[before], timeout_ms=1000)
    fetch(s, version, of_topic(s, version, topic, part(0, offset=1)))
    fetch(s, version, of_topic(s, version, topic, part(0, offset=2)))


@case("Fetch", last=16)
def unknown(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    fetch(s, version, of_topic(s, version, topic, part(7), part(0)))
    if version >= 13:
        fetch(s, version, {"topic_id": UNKNOWN_ID, "partitions": [part(0)]})
        fetch(s, version, {"topic_id": bytes(16), "partitions": [part(0)]})
    else:
        fetch(s, version, {"topic": f"{s.name}.none", "partitions": [part(0)]})


@case("Fetch", first=9, last=16)
def leader_epochs(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    for epoch in (0, 1, 5, -1):
        known = part(0, current_leader_epoch=epoch)
        fetch(s, version, of_topic(s, version, topic, known))


@case("Fetch", first=12, last=16)
def last_fetched_epoch(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    for epoch, offset in ((0, 0), (0, 3), (1, 3), (5, 1)):
        known = part(0, offset=offset, last_fetched_epoch=epoch)
        fetch(s, version, of_topic(s, version, topic, known))


@case("Fetch", last=16)
def limits(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    for partition in (0, 1):
        s.produce(topic, *[batch() for _ in range(4)], partition=partition)
    size = len(batch())
    both = [part(0), part(1)]
    for limit in (1, size, size + 1, 5 * size):
        fetch(s, version, of_topic(s, version, topic, *both), max_bytes=limit)
    for limit in (1, size, 2 * size + 5):
        narrow = [part(one, partition_max_bytes=limit) for one in (0, 1)]
        fetch(s, version, of_topic(s, version, topic, *narrow))
    fetch(s, version, of_topic(s, version, topic, *both), max_bytes=0)


@case("Fetch", last=16)
def waits(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    fetch(s, version, of_topic(s, version, topic, part(0)), min_bytes=100_000)
    fetch(s, version, of_topic(s, version, topic, part(0, offset=3)), max_wait_ms=0)
    fetch(s, version, of_topic(s, version, topic, part(0, offset=3)), min_bytes=0)
    fetch(s, version)


@case("Fetch", last=16)
def woken_by_produce(s: Session, version: int) -> None:
    topic = s.topic()
    fields: dict[str, Any] = {"max_wait_ms": 10_000, "min_bytes": 1}
    topics = [of_topic(s, version, topic, part(0))]
    sent = s.send("Fetch", version, topics=topics, connection="parked", **fields)
    s.produce(topic, batch())
    s.receive("Fetch", version, sent)


@case("Fetch", last=16)
def isolation(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    for level in (1, 0, 3):
        fetch(s, version, of_topic(s, version, topic, part(0)), isolation_level=level)


@case("Fetch", first=7, last=16)
def session_of_a_consumer(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    both = of_topic(s, version, topic, part(0), part(1))
    first = fetch(s, version, both, session_id=0, session_epoch=0)
    session = first["session_id"]
    fetch(s, version, session_id=session, session_epoch=1)
    s.produce(topic, batch(), partition=1)
    fetch(s, version, session_id=session, session_epoch=2)
    moved = of_topic(s, version, topic, part(1, offset=3))
    fetch(s, version, moved, session_id=session, session_epoch=3)
    gone = {"partitions": [1]}
    gone |= {"topic_id": s.topic_id(topic)} if version >= 13 else {"topic": topic}
    fetch(s, version, session_id=session, session_epoch=4, forgotten_topics_data=[gone])
    s.produce(topic, batch(), partition=1)
    s.produce(topic, batch(), partition=0)
    fetch(s, version, session_id=session, session_epoch=5)
    fetch(s, version, session_id=session, session_epoch=-1)
    fetch(s, version, session_id=session, session_epoch=6)


@case("Fetch", first=7, last=16)
def session_errors(s: Session, version: int) -> None:
    topic = s.topic()
    one = of_topic(s, version, topic, part(0))
    fetch(s, version, one, session_id=0, session_epoch=5)
    fetch(s, version, one, session_id=123456, session_epoch=1)
    session = fetch(s, version, one, session_id=0, session_epoch=0)["session_id"]
    fetch(s, version, session_id=session, session_epoch=7)
    fetch(s, version, session_id=session, session_epoch=1)
    fetch(s, version, one, session_id=session, session_epoch=0)


@case("Fetch", first=7, last=16)
def session_with_unknown_topic(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(topic, batch())
    one = of_topic(s, version, topic, part(0), part(9))
    session = fetch(s, version, one, session_id=0, session_epoch=0)["session_id"]
    fetch(s, version, session_id=session, session_epoch=1)
    if version >= 13:
        none: dict[str, Any] = {"topic_id": UNKNOWN_ID, "partitions": [part(0)]}
    else:
        none = {"topic": f"{s.name}.none", "partitions": [part(0)]}
    fetch(s, version, none, session_id=session, session_epoch=2)


@case("Fetch", last=16)
def as_a_replica(s: Session, version: int) -> None:
    """Followers must be in the replica set."""
    topic = s.topic()
    s.produce(topic, batch())
    who: dict[str, Any] = {"replica_id": 9}
    if version >= 15:
        who = {"replica_state": {"replica_id": 9, "replica_epoch": 1}}
    fetch(s, version, of_topic(s, version, topic, part(0)), **who)
