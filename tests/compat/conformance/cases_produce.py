"""Cases: Produce and InitProducerId."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from compat.conformance.batches import NOW, RECORDS, batch, patched, records, resealed
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

UNKNOWN_ID = bytes(range(16))
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def topic_data(s: Session, version: int, topic: str, *parts: tuple[int, Any]) -> dict[str, Any]:
    data = [{"index": index, "records": batch_bytes} for index, batch_bytes in parts]
    if version >= 13:
        return {"topic_id": s.topic_id(topic) or UNKNOWN_ID, "partition_data": data}
    return {"name": topic, "partition_data": data}


def produce(s: Session, version: int, topic: str, *parts: tuple[int, Any], acks: int = -1) -> Any:
    data = [topic_data(s, version, topic, *parts)]
    return s.ask("Produce", version, acks=acks, timeout_ms=10_000, topic_data=data)


@case("Produce")
def appended(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    produce(s, version, topic, (0, batch()), (1, batch()))
    produce(s, version, topic, (0, batch()), acks=1)
    produce(s, version, topic, (0, batch(records(7))), acks=1)


@case("Produce")
def every_codec(s: Session, version: int) -> None:
    topic = s.topic()
    for codec in CODECS.values():
        produce(s, version, topic, (0, batch(codec=codec)))


@case("Produce")
def unknown_partitions(s: Session, version: int) -> None:
    topic = s.topic()
    produce(s, version, topic, (5, batch()))
    produce(s, version, topic, (-1, batch()))
    produce(s, version, topic, (5, batch()), (0, batch()))


@case("Produce")
def unknown_topic(s: Session, version: int) -> None:
    if version >= 13:
        data = [{"topic_id": UNKNOWN_ID, "partition_data": [{"index": 0, "records": batch()}]}]
    else:
        name = f"{s.name}.none"
        data = [{"name": name, "partition_data": [{"index": 0, "records": batch()}]}]
    s.ask("Produce", version, acks=-1, timeout_ms=1000, topic_data=data)


@case("Produce")
def invalid_acks(s: Session, version: int) -> None:
    topic = s.topic()
    for acks in (2, -2):
        produce(s, version, topic, (0, batch()), acks=acks)


@case("Produce")
def nothing(s: Session, version: int) -> None:
    # Null records are left out: the reference never answers them (its handler fails).
    topic = s.topic()
    s.ask("Produce", version, acks=-1, timeout_ms=1000, topic_data=[])
    produce(s, version, topic, (0, b""))


@case("Produce")
def broken_batches(s: Session, version: int) -> None:
    topic = s.topic()
    good = batch()
    for broken in (
        good + good,  # two batches
        good[:-1],  # cut
        good[:40],  # shorter than a header
        patched(good, 16, b"\1"),  # magic 1
        patched(good, 16, b"\3"),  # magic 3
        patched(good, 17, b"\0\0\0\0"),  # CRC
        patched(good, 8, struct.pack(">i", -5)),  # length
        patched(good, 0, struct.pack(">q", 5)),  # base offset 5
    ):
        produce(s, version, topic, (0, broken))


@case("Produce", first=8)
def invalid_records(s: Session, version: int) -> None:
    topic = s.topic()
    good = batch()
    for broken in (
        resealed(good, 57, struct.pack(">i", 4)),  # count
        resealed(good, 57, struct.pack(">i", -1)),
        resealed(good, 23, struct.pack(">i", 7)),  # last offset delta
        resealed(good, 21, struct.pack(">h", 0x20)),  # control
        resealed(good, 21, struct.pack(">h", 0x10)),  # transactional without producer id
        resealed(good, 21, struct.pack(">h", 0x07)),  # unknown codec
        resealed(good, 21, struct.pack(">h", 0x08)),  # log append time from a client
        resealed(good, 43, struct.pack(">qhi", 5, 0, -1)),  # producer id without sequence
        resealed(good, 43, struct.pack(">qhi", -1, 0, 5)),
    ):
        produce(s, version, topic, (0, broken))


@case("Produce", first=7)
def compacted_needs_keys(s: Session, version: int) -> None:
    topic = s.topic(cleanup_policy="compact")
    produce(s, version, topic, (0, batch(RECORDS)))
    produce(s, version, topic, (0, batch(RECORDS[:1])))


@case("Produce", first=7)
def too_large(s: Session, version: int) -> None:
    topic = s.topic(max_message_bytes="200")
    produce(s, version, topic, (0, batch(records(1))))
    produce(s, version, topic, (0, batch(records(50))))


@case("Produce", first=7)
def larger_than_a_segment(s: Session, version: int) -> None:
    topic = s.topic(segment_bytes="1048576", max_message_bytes="3000000")
    produce(s, version, topic, (0, batch(records(1, value=b"x" * 2_000_000))))


@case("Produce", first=7)
def timestamps(s: Session, version: int) -> None:
    topic = s.topic(message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="1000")
    for shift in (0, -86_400_000, 86_400_000):
        produce(s, version, topic, (0, batch(records(2, timestamp=NOW() + shift))))


@case("Produce", first=5)
def append_time(s: Session, version: int) -> None:
    topic = s.topic(message_timestamp_type="LogAppendTime")
    produce(s, version, topic, (0, batch()))


@case("Produce", first=9)
def recompressed(s: Session, version: int) -> None:
    topic = s.topic(compression_type="gzip")
    produce(s, version, topic, (0, batch()))
    fields: dict[str, Any] = {
        "topic": topic,
        "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000}],
    }
    answer = s.quietly("Fetch", 4, replica_id=-1, max_wait_ms=100, min_bytes=1, topics=[fields])
    stored = answer["responses"][0]["partitions"][0]["records"]
    s.record("Produce", {"attributes": stored[21:23].hex(), "count": stored[57:61].hex()})


def new_producer(s: Session) -> dict[str, Any]:
    """A producer id; the first one after a start takes a moment."""
    fields: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 1000}
    return s.ask_until("InitProducerId", 4, lambda answer: not answer["error_code"], **fields)


@case("Produce", first=8)
def idempotent(s: Session, version: int) -> None:
    topic = s.topic()
    made = new_producer(s)
    who = {"producer_id": made["producer_id"], "producer_epoch": made["producer_epoch"]}

    def send(sequence: int, epoch: int = 0, count: int = 2) -> None:
        data = batch(records(count), **{**who, "producer_epoch": epoch}, base_sequence=sequence)
        produce(s, version, topic, (0, data))

    send(0)
    send(2)
    send(2)  # duplicate of the last
    send(0)  # duplicate of the one before
    send(7)  # gap
    for sequence in (4, 6, 8, 10, 12):
        send(sequence)
    send(0)  # older than five batches
    send(14, count=3)
    send(14, count=2)  # overlaps, not the same
    send(5, epoch=1)  # a new epoch must start at 0
    send(0, epoch=1)
    send(17, epoch=0)  # fenced


@case("Produce", first=8)
def unknown_producer_starts_anywhere(s: Session, version: int) -> None:
    data = batch(producer_id=987654, producer_epoch=3, base_sequence=11)
    produce(s, version, s.topic(), (0, data))


@case("Produce", first=8)
def internal_topic(s: Session, version: int) -> None:
    s.coordinator()
    produce(s, version, "__consumer_offsets", (0, batch(RECORDS[:1])))


@case("Produce", last=12)
def transactional_without_right(s: Session, version: int) -> None:
    topic = s.topic()
    data = batch(producer_id=987655, producer_epoch=0, base_sequence=0, transactional=True)
    answer = s.quietly(
        "Produce",
        version,
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[topic_data(s, version, topic, (0, data))],
    )
    s.record("Produce", answer)


@case("InitProducerId")
def plain_ids(s: Session, version: int) -> None:
    new_producer(s)
    for _ in range(2):
        s.ask("InitProducerId", version, transactional_id=None, transaction_timeout_ms=60_000)


@case("InitProducerId")
def bad_ids(s: Session, version: int) -> None:
    s.ask("InitProducerId", version, transactional_id="", transaction_timeout_ms=60_000)
    if version >= 3:
        fields: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        s.ask("InitProducerId", version, **fields, producer_id=5, producer_epoch=-1)
        s.ask("InitProducerId", version, **fields, producer_id=-1, producer_epoch=2)
        s.ask("InitProducerId", version, **fields, producer_id=5, producer_epoch=2)
