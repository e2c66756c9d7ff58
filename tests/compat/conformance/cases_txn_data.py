"""Cases: transactions at the leaders of partitions and of groups: Produce, Fetch, ListOffsets,
TxnOffsetCommit, OffsetFetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import NOW, TIME, batch
from compat.conformance.cases_groups import stable
from compat.conformance.registry import case
from compat.conformance.transactional import (
    Producer,
    group_in,
    log_of,
    new_topic,
    offsets_pending,
    shown,
)
from tidelog_protocol.records import Record

if TYPE_CHECKING:
    from compat.conformance.session import Session

UNKNOWN_ID = bytes(range(16))
UNSTABLE_OFFSET_COMMIT = 88
SOON_MS = 1_800_000

# ---- Produce ------------------------------------------------------------------------------------


def produce(
    s: Session, version: int, name: str | None, topic: str, *batches: tuple[int, bytes]
) -> None:
    rows = [{"index": index, "records": data} for index, data in batches]
    where = {"topic_id": s.topic_id(topic)} if version >= 13 else {"name": topic}
    s.ask(
        "Produce",
        version,
        transactional_id=name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{**where, "partition_data": rows}],
    )


@case("Produce", first=3)
def in_a_transaction(s: Session, version: int) -> None:
    topic = new_topic(s, 3)
    one = Producer(s)
    one.init()

    def send(sequence: int, partition: int = 0, name: str | None = None, **changes: Any) -> None:
        data = one.batch(b"a", b"b", sequence=sequence, **changes)
        produce(s, version, name or one.transactional_id, topic, (partition, data))

    send(0)  # not added
    one.added(topic, 0, 1)
    send(0)
    send(0)  # repeated
    send(2)
    send(9)  # gap
    send(4, producer_epoch=one.epoch + 1)
    send(4, producer_epoch=one.epoch - 1)
    send(4, transactional=False)
    send(5, partition=1)  # does not begin with 0
    send(0, partition=2, name=f"{s.name}.none")
    send(0, partition=2, producer_id=one.producer_id + 1000)
    send(0, partition=2, producer_epoch=one.epoch + 1)
    send(0, partition=2, producer_epoch=one.epoch - 1)
    produce(s, version, one.transactional_id, topic, (7, one.batch(b"a")))
    one.ended(commit=False)
    send(4)
    send(4, transactional=False)
    log_of(s, topic)
    log_of(s, topic, 2)


@case("Produce", first=3)
def several_partitions_and_producers(s: Session, version: int) -> None:
    topic = new_topic(s, 3)
    one, two = Producer(s, ".one"), Producer(s, ".two")
    one.added(topic, 0, 1, 2)
    two.added(topic, 0, 1, 2)
    name = one.transactional_id
    produce(s, version, name, topic, (0, one.batch(b"a")), (1, two.batch(b"b")))
    plain = two.batch(b"c", transactional=False)
    produce(s, version, name, topic, (0, one.batch(b"a")), (1, plain))
    produce(s, version, name, topic, (1, one.batch(b"d")), (2, one.batch(b"e")))
    produce(s, version, name, topic, (2, two.batch(b"f")))
    for partition in range(3):
        log_of(s, topic, partition)


@case("Produce", first=9)
def epochs_of_both_protocols(s: Session, version: int) -> None:
    topic = new_topic(s)
    one = Producer(s)
    for protocol in (4, 5, 5):
        one.added(topic, 0)
        produce(s, version, one.transactional_id, topic, (0, one.batch(b"a")))
        one.ended(commit=True, version=protocol)
    produce(s, version, one.transactional_id, topic, (0, one.batch(b"late")))
    old = one.batch(b"old", producer_epoch=one.epoch - 1)
    produce(s, version, one.transactional_id, topic, (0, old))
    log_of(s, topic)


@case("Produce", first=12)
def odd_ones(s: Session, version: int) -> None:
    topic = new_topic(s, 2)
    one = Producer(s)
    name = one.transactional_id
    good = one.batch(b"a")
    produce(s, version, "", topic, (0, good))
    produce(s, version, name, topic, (0, good[:40]))
    produce(s, version, name, topic, (0, good + good))
    produce(s, version, name, topic, (0, one.batch(b"a", sequence=3)), (1, good))
    nobody = one.batch(b"a", producer_id=-1, producer_epoch=-1, sequence=-1)
    produce(s, version, name, topic, (0, nobody))
    s.record("DescribeTransactions", one.state())


# ---- Fetch, ListOffsets -------------------------------------------------------------------------


def mixed(s: Session) -> str:
    """Two aborted transactions, a committed one between them, plain records, an open one of
    records of the near future."""
    topic = new_topic(s)
    one, two, three = (Producer(s, f".{number}") for number in (1, 2, 3))
    one.sent(topic, b"aborted-0")
    two.sent(topic, b"committed-1")
    one.sent(topic, b"aborted-2")
    two.ended(commit=True)  # 3
    three.sent(topic, b"aborted-4")
    one.ended(commit=False)  # 5
    three.sent(topic, b"aborted-6")
    three.ended(commit=False)  # 7
    s.produce(topic, batch([Record(0, TIME + 5, None, b"plain-8")]))
    one.sent(topic, b"open-9", timestamp=NOW() + SOON_MS)
    s.produce(topic, batch([Record(0, TIME + 6, None, b"plain-10")]))
    return topic


def shown_fetch(answer: dict[str, Any]) -> dict[str, Any]:
    for each in answer["responses"]:
        for one in each["partitions"]:
            one["records"] = shown(one["records"])
    return answer


@case("Fetch", last=16)
def read_committed(s: Session, version: int) -> None:
    topic = mixed(s)
    where = {"topic_id": s.topic_id(topic)} if version >= 13 else {"topic": topic}
    for isolation, offset in ((1, 0), (0, 0), (1, 3), (1, 5), (1, 6), (1, 8), (1, 9), (1, 10)):
        row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
        fields: dict[str, Any] = {"max_wait_ms": 20, "min_bytes": 1, "max_bytes": 1_000_000}
        fields["topics"] = [{**where, "partitions": [row]}]
        answer = s.quietly("Fetch", version, isolation_level=isolation, **fields)
        s.record("Fetch", shown_fetch(answer))


@case("Fetch", first=12, last=13)
def read_committed_waits(s: Session, version: int) -> None:
    """A fetch at the last stable offset is answered when the transaction ends."""
    topic = new_topic(s)
    one = Producer(s)
    one.sent(topic, b"open")
    where = {"topic_id": s.topic_id(topic)} if version >= 13 else {"topic": topic}
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
    fields: dict[str, Any] = {"max_wait_ms": 10_000, "min_bytes": 1, "max_bytes": 1_000_000}
    fields["topics"] = [{**where, "partitions": [row]}]
    s.connection("waits")
    sent = s.send("Fetch", version, connection="waits", isolation_level=1, **fields)
    one.ended(commit=False)
    answer = s.receive("Fetch", version, sent, record=False)
    s.record("Fetch", shown_fetch(answer))


@case("Fetch", first=7, last=7)
def read_committed_in_a_session(s: Session, version: int) -> None:
    topic = new_topic(s)
    one = Producer(s)
    fields: dict[str, Any] = {"max_wait_ms": 20, "min_bytes": 1, "max_bytes": 1_000_000}

    def ask(epoch: int, session: int, *offsets: int) -> int:
        rows = [
            {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
            for offset in offsets
        ]
        who = {"session_id": session, "session_epoch": epoch, "isolation_level": 1}
        wanted = [{"topic": topic, "partitions": rows}] if rows else []
        answer = s.quietly("Fetch", version, **fields, **who, topics=wanted)
        s.record("Fetch", shown_fetch(answer))
        return int(answer["session_id"])

    one.sent(topic, b"aborted")
    session = ask(0, 0, 0)
    ask(1, session)
    one.ended(commit=False)
    ask(2, session)
    ask(3, session, 2)
    one.sent(topic, b"open")
    ask(4, session)
    ask(5, session)


@case("DeleteRecords")
def of_an_open_transaction(s: Session, version: int) -> None:
    topic = new_topic(s)
    one, two = Producer(s, ".one"), Producer(s, ".two")
    one.sent(topic, b"0")
    two.sent(topic, b"1")
    one.sent(topic, b"2")
    two.ended(commit=False)
    for offset in (1, 2, -1):
        rows = [{"partition_index": 0, "offset": offset}]
        topics = [{"name": topic, "partitions": rows}]
        s.ask("DeleteRecords", version, topics=topics, timeout_ms=5000)
        ends(s, topic)
    one.ended(commit=False)
    one.sent(topic, b"5")
    ends(s, topic)


def ends(s: Session, topic: str) -> None:
    for isolation in (1, 0):
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        s.ask("ListOffsets", 5, replica_id=-1, isolation_level=isolation, topics=topics)


@case("ListOffsets", first=2)
def of_read_committed(s: Session, version: int) -> None:
    topic = mixed(s)
    for isolation in (1, 0):
        for timestamp in (-1, -2, -3, TIME, TIME + 5, NOW() + SOON_MS // 2):
            rows = [{"partition_index": 0, "timestamp": timestamp}]
            s.ask(
                "ListOffsets",
                version,
                replica_id=-1,
                isolation_level=isolation,
                topics=[{"name": topic, "partitions": rows}],
            )


# ---- TxnOffsetCommit, OffsetFetch ---------------------------------------------------------------


def part(offset: int, partition: int = 0, metadata: str | None = "meta") -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }


def commit(
    s: Session, version: int, one: Producer, topic: str, *parts: dict[str, Any], **changes: Any
) -> None:
    fields: dict[str, Any] = {"group_id": s.name, **one.who()}
    if version >= 3:
        fields["member_id"] = ""
    fields["topics"] = [{"name": topic, "partitions": list(parts)}]
    s.ask("TxnOffsetCommit", version, **{**fields, **changes})


def offsets_added(s: Session, one: Producer) -> None:
    answer = s.quietly("AddOffsetsToTxn", 3, **one.who(), group_id=s.name)
    assert not answer["error_code"], answer


def is_stable(answer: dict[str, Any]) -> bool:
    return UNSTABLE_OFFSET_COMMIT not in (
        one["error_code"] for topic in answer["topics"] for one in topic["partitions"]
    )


def fetched(s: Session, topic: str, *, stable_only: bool = False, until: bool = False) -> None:
    fields = {
        "group_id": s.name,
        "topics": [{"name": topic, "partition_indexes": [0, 1, 2]}],
        "require_stable": stable_only,
    }
    if until:
        s.ask_until("OffsetFetch", 7, is_stable, **fields)
    else:
        s.ask("OffsetFetch", 7, **fields)


@case("TxnOffsetCommit")
def with_the_transaction(s: Session, version: int) -> None:
    s.coordinator()
    topic = s.topic(partitions=3)
    one = Producer(s)
    for commits in (True, False):
        offsets_added(s, one)
        commit(s, version, one, topic, part(5 + commits), part(7, 1, None))
        commit(s, version, one, topic, part(6 + commits))
        fetched(s, topic)
        fetched(s, topic, stable_only=True)
        s.quietly("EndTxn", 3, **one.who(committed=commits))
        fetched(s, topic, stable_only=True, until=True)
        one.settle()


@case("TxnOffsetCommit")
def refused(s: Session, version: int) -> None:
    s.coordinator()
    topic = s.topic()
    one = Producer(s)
    one.init()
    commit(s, version, one, topic, part(1))  # not in the transaction
    one.init()
    offsets_added(s, one)
    commit(s, version, one, topic, part(1), part(1, 7))
    commit(s, version, one, f"{s.name}.none", part(1))
    commit(s, version, one, topic, part(2, metadata="m" * 5000))
    commit(s, version, one, topic, part(-5))
    commit(s, version, one, topic)
    commit(s, version, one, topic, part(1), topics=[])
    commit(s, version, one, topic, part(1), group_id="")
    commit(s, version, one, topic, part(1), group_id=group_in(s, same_partition=True))
    elsewhere = group_in(s, same_partition=False)
    commit(s, version, one, topic, part(1), group_id=elsewhere)
    commit(s, version, one, topic, part(1), producer_id=one.producer_id + 1000)
    commit(s, version, one, topic, part(1), producer_epoch=one.epoch + 1)
    commit(s, version, one, topic, part(1), producer_epoch=one.epoch - 1)
    commit(s, version, one, topic, part(1), transactional_id=f"{s.name}.none")
    commit(s, version, one, topic, part(1), transactional_id="")
    one.ended(commit=True)
    commit(s, version, one, topic, part(9))
    fetched(s, topic)


@case("TxnOffsetCommit", first=3)
def of_members(s: Session, version: int) -> None:
    topic = s.topic()
    one = Producer(s)
    joined = stable(s)
    offsets_added(s, one)
    who = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
    commit(s, version, one, topic, part(1))
    commit(s, version, one, topic, part(2), **who)
    commit(s, version, one, topic, part(3), **{**who, "generation_id": 9})
    commit(s, version, one, topic, part(3), **{**who, "generation_id": -1})
    commit(s, version, one, topic, part(3), **{**who, "member_id": "nobody"})
    commit(s, version, one, topic, part(3), **{**who, "member_id": ""})
    commit(s, version, one, topic, part(3), **who, group_instance_id="none")
    other = group_in(s, same_partition=True)
    commit(s, version, one, topic, part(3), **who, group_id=other)
    commit(s, version, one, topic, part(4), group_id=other)
    one.ended(commit=True)
    fetched(s, topic, stable_only=True, until=True)


@case("OffsetFetch", first=7)
def with_an_open_transaction(s: Session, version: int) -> None:
    s.coordinator()
    topic = s.topic(partitions=3)
    one = Producer(s)
    rows = [{"name": topic, "partitions": [part(3), part(4, 1)]}]
    plain = {"group_id": s.name, "generation_id_or_member_epoch": -1, "member_id": ""}
    s.quietly("OffsetCommit", 3, **plain, topics=rows)
    offsets_added(s, one)
    fields = {"group_id": s.name, **one.who(), "topics": rows, "member_id": ""}
    fields["topics"] = [{"name": topic, "partitions": [part(30, 1), part(50, 2)]}]
    s.quietly("TxnOffsetCommit", 3, **fields)

    def ask() -> None:
        where = {"topic_id": s.topic_id(topic)} if version >= 10 else {"name": topic}
        for topics in ([{**where, "partition_indexes": [0, 1, 2]}], None):
            for stable_only in (True, False):
                asked: dict[str, Any] = {"group_id": s.name, "topics": topics}
                asked = asked if version < 8 else {"groups": [asked]}
                s.ask("OffsetFetch", version, **asked, require_stable=stable_only)

    ask()
    s.quietly("OffsetCommit", 3, **plain, topics=rows)
    one.ended(commit=False)
    fetched(s, topic, stable_only=True, until=True)
    ask()


@case("DeleteGroups")
def with_pending_offsets(s: Session, version: int) -> None:
    """What is deleted does not come back when the transaction commits."""
    s.coordinator()
    topic = s.topic(partitions=3)
    one = Producer(s)
    offsets_pending(s, one, topic, 0, 1)
    s.ask("DescribeGroups", 3, groups=[s.name])
    rows = [{"partition_index": 0}, {"partition_index": 2}]
    topics = [{"name": topic, "partitions": rows}]
    s.ask("OffsetDelete", 0, group_id=s.name, topics=topics)
    fetched(s, topic, stable_only=True)
    s.ask("DeleteGroups", version, groups_names=[s.name])
    fetched(s, topic, stable_only=True)
    offsets_pending(s, one, topic, 2)
    one.ended(commit=True)
    fetched(s, topic, stable_only=True, until=True)
    offsets_pending(s, one, topic, 1)
    s.ask("DeleteGroups", version, groups_names=[s.name])
    one.ended(commit=True)
    fetched(s, topic, stable_only=True, until=True)
    s.ask("DescribeGroups", 3, groups=[s.name])
