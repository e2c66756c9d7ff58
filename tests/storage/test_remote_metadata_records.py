"""Events of `__remote_log_metadata`: Kafka's bytes both ways, whatever the bytes an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.remote_vectors import PARTITION, pairs, table
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import uuid_from_str
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tidelog_storage.remote.metadata_records import (
    MetadataEvent,
    decode,
    decode_snapshot_entry,
    encode,
    encode_snapshot_entry,
    metadata_partition,
)

FILE = "golden-bytes.yaml"
KINDS = {"segment", "segment_update", "partition_delete", "segment_snapshot"}
EVENTS = [param for param in table(FILE, "bytes") if param.values[1].get("kind") in KINDS]
UNREADABLE = [param for param in table(FILE, "bytes") if "error" in param.values[2]]
SMALL = settings(derandomize=True, database=None, deadline=None, max_examples=150)


def event_of(facts: dict[str, Any]) -> MetadataEvent:
    custom = facts.get("custom_metadata")
    custom_metadata = None if custom is None else bytes.fromhex(custom)
    if facts["kind"] == "partition_delete":
        return PartitionDelete(
            PARTITION,
            facts["broker"],
            facts["event_timestamp"],
            PartitionDeleteState[facts["state"]],
        )
    segment_id = UUID(facts["segment_id"])
    if facts["kind"] == "segment_update":
        return SegmentUpdate(
            PARTITION,
            segment_id,
            facts["broker"],
            facts["event_timestamp"],
            SegmentState[facts["state"]],
            custom_metadata,
        )
    return RemoteSegment(
        topic_id_partition=PARTITION,
        segment_id=segment_id,
        start_offset=facts["start"],
        end_offset=facts["end"],
        broker_id=facts["broker"],
        max_timestamp=facts["max_timestamp"],
        event_timestamp=facts["event_timestamp"],
        epochs=pairs(facts["epochs"]),
        size=facts["size"],
        state=SegmentState[facts["state"]],
        txn_index_empty=facts["txn_index_empty"],
        custom_metadata=custom_metadata,
    )


@pytest.mark.parametrize(("_", "facts", "out"), EVENTS)
def test_kafkas_bytes(_: str, facts: dict[str, Any], out: Any) -> None:
    event = event_of(facts)
    data = bytes.fromhex(out["hex"])
    if facts["kind"] == "segment_snapshot":
        assert isinstance(event, RemoteSegment)
        assert encode_snapshot_entry(event) == data
        assert decode_snapshot_entry(data, PARTITION) == event
        with pytest.raises(ProtocolError, match="no event"):
            decode(data)
        return
    assert encode(event) == data
    assert decode(data) == decode(memoryview(data)) == event
    with pytest.raises(ProtocolError, match="not an entry"):
        decode_snapshot_entry(data, PARTITION)


@pytest.mark.parametrize(("_", "facts", "out"), EVENTS)
def test_every_byte_counts(_: str, facts: dict[str, Any], out: Any) -> None:
    data = bytes.fromhex(out["hex"])
    for cut in range(len(data)):
        with pytest.raises(ProtocolError, match=r"truncated|length|beyond"):
            decode(data[:cut])
    with pytest.raises(ProtocolError, match="bytes left over"):
        decode(data + b"\0")


ERRORS = {
    "unknown_frame_version": "frame version 2",
    "unknown_record_type": "unknown api key 9",
    "trailing_bytes": "bytes left over",
    "truncated": "truncated",
}


@pytest.mark.parametrize(("_", "facts", "out"), UNREADABLE)
def test_unreadable_values(_: str, facts: dict[str, Any], out: Any) -> None:
    with pytest.raises(ProtocolError, match=ERRORS[out["error"]]):
        decode(bytes.fromhex(facts["hex"]))


UPDATE = bytes.fromhex(
    "01010004666f6f0123456789abcdef0fedcba987654321000000000011111111111111112222222222222222"
    "00000000010000018bcfe569c8000100"
)


def test_an_unknown_state_or_version_is_unreadable() -> None:
    assert decode(UPDATE).state is SegmentState.COPY_SEGMENT_FINISHED
    with pytest.raises(ProtocolError, match="SegmentState"):
        decode(UPDATE[:-2] + b"\4\0")
    with pytest.raises(ProtocolError, match="no version 1"):
        decode(UPDATE[:2] + b"\1" + UPDATE[3:])


def test_a_tag_of_times_to_come_is_stepped_over() -> None:
    known = decode(UPDATE)
    assert decode(UPDATE[:-1] + b"\1\7\2ab") == known


def test_a_segment_without_epochs_or_with_impossible_offsets_is_unreadable() -> None:
    data = bytes.fromhex(EVENTS[0].values[2]["hex"])
    event = decode(data)
    assert isinstance(event, RemoteSegment)
    start, end = (bytes(7) + b"\0", bytes(7) + b"\x64")
    assert data.count(start + end) == 1
    with pytest.raises(ProtocolError, match="offsets of a segment"):
        decode(data.replace(start + end, end + start))
    single = encode(replace(event, epochs=((0, 0),)))
    entry = b"\2" + bytes(12) + b"\0"  # one entry of epoch 0 at offset 0, and its tags
    assert single.count(entry) == 1
    with pytest.raises(ProtocolError, match="at least one leader epoch"):
        decode(single.replace(entry, b"\1"))


INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
IDS = st.uuids(allow_nil=True)
PARTITIONS = st.builds(TopicIdPartition, IDS, st.text(max_size=200), INT32)
CUSTOM = st.none() | st.binary(max_size=140)
EPOCHS = st.dictionaries(INT32, INT64, min_size=1, max_size=140).map(
    lambda epochs: tuple(sorted(epochs.items()))
)


@st.composite
def segments(draw: st.DrawFn) -> RemoteSegment:
    start = draw(st.integers(0, 2**63 - 1))
    return RemoteSegment(
        topic_id_partition=draw(PARTITIONS),
        segment_id=draw(IDS),
        start_offset=start,
        end_offset=draw(st.integers(start, 2**63 - 1)),
        broker_id=draw(INT32),
        max_timestamp=draw(INT64),
        event_timestamp=draw(INT64),
        epochs=draw(EPOCHS),
        size=draw(INT32),
        state=draw(st.sampled_from(SegmentState)),
        txn_index_empty=draw(st.booleans()),
        custom_metadata=draw(CUSTOM),
    )


UPDATES = st.builds(
    SegmentUpdate, PARTITIONS, IDS, INT32, INT64, st.sampled_from(SegmentState), CUSTOM
)
DELETES = st.builds(
    PartitionDelete, PARTITIONS, INT32, INT64, st.sampled_from(PartitionDeleteState)
)


@SMALL
@given(segments() | UPDATES | DELETES)
def test_any_event_comes_back(event: MetadataEvent) -> None:
    assert decode(encode(event)) == event
    if isinstance(event, RemoteSegment):
        assert (
            decode_snapshot_entry(encode_snapshot_entry(event), event.topic_id_partition) == event
        )


@SMALL
@given(segments() | UPDATES | DELETES, st.data())
def test_changed_bytes_are_an_event_or_a_protocol_error(event: Any, data: st.DataObject) -> None:
    value = bytearray(encode(event))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(value)))
        value[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"\xff\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"\0", b""])
            | st.binary(max_size=3)
        )
    try:
        found = decode(bytes(value))
    except ProtocolError:
        return
    assert decode(encode(found)) == found


@SMALL
@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_a_protocol_error(value: bytes) -> None:
    try:
        decode(b"\1\1\0" + value)
    except ProtocolError:
        return


@pytest.mark.parametrize(("_", "facts", "out"), table(FILE, "metadata_partition"))
def test_metadata_partitions(_: str, facts: dict[str, Any], out: Any) -> None:
    text = facts["topic_id"]
    topic_id = UUID(text) if len(text) == 36 else UUID(bytes=uuid_from_str(text))
    count = facts["metadata_partitions"]
    found = [metadata_partition(topic_id, number, count) for number in facts["partitions"]]
    assert found == out["metadata_partitions"]
