"""Apache Kafka's own classes read our remote metadata, print it, judge segments as we do."""

from __future__ import annotations

import base64
import random
import re
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from compat.brokers import Tidelog
from compat.eventually import eventually
from support.logs import NOW, open_log
from support.remote_vectors import PARTITION, metadata_of, segment_of, started, table, update_of
from tidelog_protocol.primitives import uuid_to_str
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tidelog_storage.remote.lineage import in_lineage, part_end
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.metadata_records import (
    MetadataEvent,
    decode,
    encode,
    metadata_partition,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compat.brokers import Broker
    from compat.jvm import Jvm

pytestmark = [pytest.mark.reference, pytest.mark.timeout(400)]

STARTED, FINISHED, DELETING, DELETED = SegmentState
FORMATTER = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization."
    "RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
)
GOLDEN = {param.id: param.values[1:] for param in table("golden-bytes.yaml", "bytes")}
PRINTED = [
    (out["text"], bytes.fromhex(GOLDEN[facts["print"]][1]["hex"]))
    for facts, out in GOLDEN.values()
    if "print" in facts
]


def random_id(chance: random.Random) -> UUID:
    return UUID(bytes=chance.randbytes(16))


def random_partition(chance: random.Random) -> TopicIdPartition:
    name = "".join(chance.choice("abc._-XYZ019") for _ in range(chance.choice([1, 7, 130, 249])))
    return TopicIdPartition(random_id(chance), name, chance.choice([0, 1, 2**31 - 1]))


def random_custom(chance: random.Random) -> bytes | None:
    return chance.choice([None, b"", chance.randbytes(3), chance.randbytes(130)])


def random_event(chance: random.Random) -> MetadataEvent:
    """Anything that Kafka's classes can hold."""
    broker_id, event_timestamp = chance.choice([0, 7, 2**31 - 1]), chance.randrange(2**62)
    kind = chance.randrange(3)
    if kind == 0:
        state = chance.choice([*PartitionDeleteState])
        return PartitionDelete(random_partition(chance), broker_id, event_timestamp, state)
    if kind == 1:
        return SegmentUpdate(
            random_partition(chance),
            random_id(chance),
            broker_id,
            event_timestamp,
            chance.choice([FINISHED, DELETING, DELETED]),
            random_custom(chance),
        )
    start = chance.choice([0, chance.randrange(1000), 2**62])
    epochs = sorted(chance.sample(range(300), chance.choice([1, 2, 5, 130])))
    return RemoteSegment(
        topic_id_partition=random_partition(chance),
        segment_id=random_id(chance),
        start_offset=start,
        end_offset=start + chance.choice([0, 1, 100_000]),
        broker_id=broker_id,
        max_timestamp=chance.choice([-1, NOW]),
        event_timestamp=event_timestamp,
        epochs=tuple((epoch, start + slot) for slot, epoch in enumerate(epochs)),
        size=chance.choice([0, 1, 2**31 - 1]),
        state=STARTED,
        txn_index_empty=chance.random() < 0.5,
        custom_metadata=random_custom(chance),
    )


def test_kafka_reads_our_bytes_and_writes_the_same(java: Jvm) -> None:
    chance = random.Random(0)
    events = [random_event(chance) for _ in range(300)]
    values = [encode(event).hex() for event in events]
    answer = java.call("remote_metadata_read", values=values)
    assert answer["values"] == values
    for event, text in zip(events, answer["texts"], strict=True):
        assert (
            f"{uuid_to_str(event.topic_id_partition.topic_id.bytes)}:{event.topic_id_partition.topic}"
            in text
        )
        assert f"brokerId={event.broker_id}" in text
        assert event.state.name in text


def test_kafka_writes_the_golden_bytes(java: Jvm) -> None:
    """And refuses the bytes that are said to be unreadable, as we do."""
    hexes = [out["hex"] for facts, out in GOLDEN.values() if "segment" in facts.get("kind", "")]
    assert len(hexes) == 8
    assert java.call("remote_metadata_read", values=hexes)["values"] == hexes
    texts = java.call("remote_metadata_read", values=[value.hex() for _, value in PRINTED])["texts"]
    assert texts == [text for text, _ in PRINTED]
    unreadable = [facts["hex"] for facts, out in GOLDEN.values() if "error" in out]
    assert len(unreadable) == 5
    assert java.call("remote_metadata_read", values=unreadable)["values"] == [None] * 5


def test_events_go_to_the_partitions_kafka_has_them_in(java: Jvm) -> None:
    chance = random.Random(1)
    asked = [(random_id(chance), chance.choice([0, 1, 9, 70_000])) for _ in range(300)]
    of = [(uuid_to_str(topic_id.bytes), partition) for topic_id, partition in asked]
    for count in (1, 3, 50, 1000):
        found = java.call("remote_metadata_partitions", of=of, count=count)["partitions"]
        assert found == [metadata_partition(*each, count) for each in asked]


def random_lineage(chance: random.Random, end: int) -> list[tuple[int, int]]:
    starts = sorted(chance.sample(range(end), chance.randint(1, 5)))
    return list(zip(sorted(chance.sample(range(8), len(starts))), starts, strict=True))


def random_segment(chance: random.Random, name: str, end: int = 30) -> RemoteSegment:
    epochs = random_lineage(chance, end)
    start = epochs[0][1]
    last = chance.randint(epochs[-1][1], end)
    return segment_of({"id": name, "start": start, "end": last, "epochs": epochs})


def test_kafka_judges_lineages_alike(java: Jvm) -> None:
    chance = random.Random(2)
    cases = []
    for number in range(3000):
        epochs = random_lineage(chance, 30)
        segment = random_segment(chance, "s")
        if number % 2:  # what the log itself would copy, cut here and there
            start = chance.randint(0, 29)
            last = chance.randint(start, 31)
            cut = [(epoch, max(at, start)) for epoch, at in epochs if at <= last]
            while len(cut) > 1 and cut[1][1] == start:
                del cut[0]
            segment = segment_of({"start": start, "end": last, "epochs": cut or [[0, start]]})
        cases.append((segment, epochs, chance.randint(20, 40)))
    found = java.call(
        "remote_metadata_lineage",
        cases=[
            {"segment": encode(started(segment)).hex(), "epochs": epochs, "log_end": log_end}
            for segment, epochs, log_end in cases
        ],
    )["found"]
    assert found == [in_lineage(*case) for case in cases]
    assert 300 < sum(found) < 2700


@pytest.mark.parametrize("seed", range(5))
def test_kafkas_cache_finds_nothing_that_ours_does_not(java: Jvm, seed: int) -> None:
    """Its answers differ where one segment covers another; ours then reaches as far or further."""
    chance = random.Random(seed)
    segments = [random_segment(chance, f"s{number}") for number in range(12)]
    events: list[RemoteSegment | SegmentUpdate] = [started(segment) for segment in segments]
    events += [
        update_of(chance.choice(segments), chance.choice([FINISHED, FINISHED, DELETING, DELETED]))
        for _ in range(30)
    ]
    metadata = PartitionMetadata(PARTITION)
    for event in events:
        metadata.apply(event)
    asked = [(epoch, offset) for epoch in range(8) for offset in range(32)]
    answer = java.call(
        "remote_metadata_cache",
        events=[encode(event).hex() for event in events],
        asked=asked,
        epochs=list(range(8)),
    )
    assert answer["highest"] == [metadata.highest_offset(epoch) for epoch in range(8)]
    by_id = {uuid_to_str(segment.segment_id.bytes): segment for segment in metadata.segments()}
    for epoch, listed in enumerate(answer["listed"]):
        # It may have lost one that another replaced.
        assert set(listed) <= {
            uuid_to_str(each.segment_id.bytes) for each in metadata.segments(epoch)
        }
    for (epoch, offset), found in zip(asked, answer["found"], strict=True):
        ours = metadata.segment_for(epoch, offset)
        if found is not None:
            assert ours is not None
            assert part_end(ours, epoch) >= part_end(by_id[found], epoch)
    assert any(answer["found"])


def test_kafkas_cache_agrees_where_nothing_overlaps(java: Jvm) -> None:
    chance = random.Random(9)
    segments = []
    start = epoch = 0
    for number in range(40):
        end = start + chance.randint(0, 9)
        middle = chance.randint(start, end)
        epochs = [[epoch, start]]
        if chance.random() < 0.4 and middle > start:
            epoch += chance.randint(1, 3)
            epochs.append([epoch, middle])
        segments.append(
            segment_of({"id": f"s{number}", "start": start, "end": end, "epochs": epochs})
        )
        start = end + 1
    metadata = metadata_of(segments)
    asked = [(each, offset) for each in range(epoch + 2) for offset in range(start + 2)]
    events = [started(segment) for segment in segments]
    updates = [update_of(segment, FINISHED) for segment in segments]
    answer = java.call(
        "remote_metadata_cache",
        events=[encode(event).hex() for event in [*events, *updates]],
        asked=asked,
        epochs=list(range(epoch + 2)),
    )
    ours = [metadata.segment_for(*each) for each in asked]
    assert answer["found"] == [each and uuid_to_str(each.segment_id.bytes) for each in ours]
    assert answer["listed"] == [
        [uuid_to_str(segment.segment_id.bytes) for segment in metadata.segments(each)]
        for each in range(epoch + 2)
    ]


# ---- tools ---------------------------------------------------------------------------------------


def test_dump_log_segments_prints_our_log_of_events(java: Jvm, tmp_path: Path) -> None:
    log = open_log(OsFileSystem(), tmp_path / "__remote_log_metadata-0")
    for _, value in PRINTED:
        data = build_batch([Record(0, NOW, None, value)])
        log.append_as_leader(memoryview(bytearray(data)), leader_epoch=0, now_ms=NOW)
    log.flush()
    path = str(tmp_path / "__remote_log_metadata-0" / f"{0:020d}.log")
    result = java.tool("DumpLogSegments", "--remote-log-metadata-decoder", "--files", path)
    assert result.exit == 0, result
    printed = [line for line in result.out.splitlines() if "payload:" in line]
    assert [line.partition("payload: ")[2] for line in printed] == [text for text, _ in PRINTED]


@pytest.mark.compat
def test_the_console_consumer_prints_our_events(
    java: Jvm, broker: Broker, fresh: Callable[[str], str]
) -> None:
    """Kafka's RemoteLogMetadataFormatter, on a topic of ours that has the events."""
    topic = fresh("events")
    there = {"bootstrap": broker.bootstrap, "topic": topic}
    java.call("create_topic", **there, partitions=1, configs={})
    values = [base64.b64encode(value).decode() for _, value in PRINTED]
    plain = {"key": None, "headers": [], "partition": 0, "timestamp": NOW}
    records = [{**plain, "value": value} for value in values]
    java.call("produce", **there, records=records, codec="none", acks="all", idempotent=False)
    result = java.tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning"),
        *("--formatter", FORMATTER, "--max-messages", str(len(PRINTED)), "--timeout-ms", "20000"),
    )
    assert result.exit == 0, result
    assert result.out.splitlines() == [
        f"partition: 0, offset: {offset}, value: {text}" for offset, (text, _) in enumerate(PRINTED)
    ]
    assert decode(PRINTED[0][1]).topic_id_partition == PARTITION


@pytest.mark.compat
def test_the_console_consumer_prints_what_a_tiered_broker_wrote(java: Jvm, tmp_path: Path) -> None:
    """The formatter on our metadata topic; a busy machine may have a copy begun twice."""
    topic = "remote.log.metadata.topic"
    broker = Tidelog(
        tmp_path,
        {
            "remote.log.storage.system.enable": "true",
            "rsm.config.dir": str(tmp_path / "tier"),
            "remote.log.manager.task.interval.ms": "200",
            f"rlmm.config.{topic}.num.partitions": "1",
            f"rlmm.config.{topic}.replication.factor": "1",
            f"rlmm.config.{topic}.min.isr": "1",
        },
    )
    broker.start()
    try:
        there = {"bootstrap": broker.bootstrap, "topic": "a"}
        configs = {
            "remote.storage.enable": "true",
            "index.interval.bytes": "1",
            "segment.index.bytes": "12",  # a batch
        }
        java.call("create_topic", **there, partitions=1, configs=configs)
        how = {"codec": "none", "acks": "all", "idempotent": False}
        for value in (b"v0", b"v1", b"v2"):  # a batch each
            plain = {"key": None, "headers": [], "partition": 0, "timestamp": NOW}
            record = {**plain, "value": base64.b64encode(value).decode()}
            java.call("produce", **there, records=[record], **how)
        eventually(lambda: [*(tmp_path / "tier").rglob("*.log")], lambda found: len(found) == 2)
        result = java.tool(
            "consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", "__remote_log_metadata"),
            *("--from-beginning", "--formatter", FORMATTER),
            *("--max-messages", "4", "--timeout-ms", "60000"),
            timeout_s=120.0,
        )
    finally:
        broker.stop()
    assert result.exit == 0, result
    size = (tmp_path / "data" / "a-0" / f"{0:020d}.log").stat().st_size
    found = re.search(r"topicIdPartition=([\w-]{22}):a-0, id=([\w-]{22})}, customM", result.out)
    assert found is not None, "that of an update, which names the copy that was finished first"
    of_segment = f"topicIdPartition={found[1]}:a-0, id={found[2]}}}"
    lines = [line for line in result.out.splitlines() if of_segment in line]
    assert [re.sub(r"offset: \d+|eventTimestampMs=\d{13}\b", "*", line) for line in lines] == [
        "partition: 0, *, value: RemoteLogSegmentMetadata{remoteLogSegmentId=RemoteLogSegmentId{"
        f"{of_segment}, startOffset=0, endOffset=0, brokerId=1, maxTimestampMs={NOW}, *, "
        f"segmentLeaderEpochs={{0=0}}, segmentSizeInBytes={size}, customMetadata=Optional.empty, "
        "state=COPY_SEGMENT_STARTED, txnIdxEmpty=true}",
        "partition: 0, *, value: RemoteLogSegmentMetadataUpdate{remoteLogSegmentId="
        f"RemoteLogSegmentId{{{of_segment}, customMetadata=Optional.empty, "
        "state=COPY_SEGMENT_FINISHED, *, brokerId=1}",
    ]
