"""Bytes of Apache Kafka itself: what its classes write, what it put on the wire and into its logs.

- `kafka-4.4.0.jsonl`: written by the classes of Kafka 4.4.0's jars for the values beside them: all
  metadata records, the classic records of `__consumer_offsets`, control records, the APIs between
  brokers and of their quorum, and versions younger than kio.
- `kafka-4.3.1-consumer-records.jsonl`: likewise by 4.3.1's jars: the records of KIP-848 groups.
- `kafka-4.3.1-share-group-records.jsonl`: likewise: the records of share groups.
- `kafka-4.3.1-share-state-records.jsonl`: likewise: the records of `__share_group_state`.
- `kafka-4.3.1-streams-groups.jsonl`: likewise: the records of streams groups and their APIs.
- `kafka-4.3.1-update-features.jsonl`: likewise: UpdateFeatures.
- `kafka-4.3.1-principals.jsonl`: likewise: principals of forwarded requests.
- `kafka-4.3.1-controllers.jsonl`: likewise: ControllerRegistration.
- `kafka-4.3.1-frames.jsonl`: frames between Kafka 4.3.1 and its own clients and tools.
- `kafka-4.3.1-records.jsonl`: records out of a Kafka 4.3.1 node's internal topics.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from support.request_headers import decode_request_header
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.frames import (
    RequestHeader,
    decode_response_header,
    request_frame,
    response_frame,
)
from tidelog_protocol.messages import (
    cluster,
    cluster_admin,
    consumer_records,
    controller,
    coordinator_records,
    group_admin,
    metadata_records,
    quorum,
    quorum_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    streams_groups,
)
from tidelog_protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue
from tidelog_protocol.messages.metadata_records import (
    RECORDS,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from tidelog_protocol.primitives import uuid_to_str
from tidelog_protocol.schema import version_range
from wire_values import from_json

VECTORS = Path(__file__).parent / "vectors"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


def table(name: str) -> Any:
    for module in (
        metadata_records,
        coordinator_records,
        consumer_records,
        share_group_records,
        share_state_records,
        streams_group_records,
        streams_groups,
        quorum_records,
        cluster,
        cluster_admin,
        controller,
        group_admin,
        quorum,
    ):
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


CLASSES = [
    pytest.param(vector, id=f"{vector['table']}-v{vector['version']}-{number}")
    for number, vector in enumerate(
        lines("kafka-4.4.0.jsonl")
        + lines("kafka-4.3.1-consumer-records.jsonl")
        + lines("kafka-4.3.1-share-group-records.jsonl")
        + lines("kafka-4.3.1-share-state-records.jsonl")
        + lines("kafka-4.3.1-streams-groups.jsonl")
        + lines("kafka-4.3.1-update-features.jsonl")
        + lines("kafka-4.3.1-principals.jsonl")
        + lines("kafka-4.3.1-controllers.jsonl")
    )
]


@pytest.mark.parametrize("vector", CLASSES)
def test_values_are_written_as_kafkas_classes_write_them(vector: dict[str, Any]) -> None:
    each = codec(table(vector["table"]), vector["version"])
    message = from_json(each.message, vector["data"])
    data = bytes.fromhex(vector["hex"])
    assert each.encode(message).hex() == vector["hex"]
    assert each.decode(data) == message
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            each.decode(data[:cut])


def test_the_classes_cover_all_versions_of_whole_families() -> None:
    seen = {(each.values[0]["table"], each.values[0]["version"]) for each in CLASSES}
    families = (consumer_records, share_group_records, share_state_records, streams_group_records)
    tables = [table for each in families for pair in each.TABLES.values() for table in pair]
    tables += [*RECORDS.values(), *quorum_records.CONTROL_RECORDS.values()]
    tables += [
        getattr(module, name)
        for module in (cluster_admin, controller, quorum, streams_groups)
        for name in module.__all__
    ]
    for each in tables:
        first, last = version_range(each.VERSIONS)
        versions = {version for name, version in seen if name == each.__name__}
        assert versions == {*range(first, last + 1)}


@pytest.mark.parametrize("vector", lines("kafka-4.3.1-frames.jsonl"))
def test_captured_frames_come_back_byte_for_byte(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["hex"])
    api, version = API[vector["api_key"]], vector["version"]
    if vector["direction"] == "request":
        header, position = decode_request_header(frame)
        assert (header.api_key, header.api_version) == (api.key, version)
        parts = request_frame(api, header, api.request_codec(version).decode(frame, position))
    else:
        correlation_id, position = decode_response_header(api, version, frame)
        header = RequestHeader(api.key, version, correlation_id, None)
        parts = response_frame(api, header, api.response_codec(version).decode(frame, position))
    again = b"".join(parts)
    assert again[:4] == struct.pack(">i", len(frame))
    assert again[4:] == frame


def test_captured_frames_say_what_they_said() -> None:
    """One of them read in full, so that two mistakes can't cancel each other out."""
    frame = next(
        bytes.fromhex(vector["hex"])
        for vector in lines("kafka-4.3.1-frames.jsonl")
        if (vector["direction"], vector["api_key"]) == ("request", ApiKey.API_VERSIONS)
    )
    header, position = decode_request_header(frame)
    request = API[header.api_key].request_codec(header.api_version).decode(frame, position)
    assert request.client_software_name == "apache-kafka-java"
    assert request.client_software_version == "4.3.1"


@pytest.mark.parametrize("vector", lines("kafka-4.3.1-records.jsonl"))
def test_records_of_internal_topics_come_back_byte_for_byte(vector: dict[str, Any]) -> None:
    value = bytes.fromhex(vector["value"])
    if vector["topic"] == "__cluster_metadata":
        record, version = decode_record(value)
        assert encode_record(record, version) == value
        return
    key = bytes.fromhex(vector["key"])
    kind, version = struct.unpack(">h", key[:2])[0], struct.unpack(">h", value[:2])[0]
    tables = {
        0: ("TransactionLogKey", "TransactionLogValue"),
        1: ("OffsetCommitKey", "OffsetCommitValue"),
        2: ("GroupMetadataKey", "GroupMetadataValue"),
    }
    key_table, value_table = (table(name) for name in tables[kind])
    assert codec(key_table, 0).encode(codec(key_table, 0).decode(key, 2)) == key[2:]
    each = codec(value_table, version)
    assert each.encode(each.decode(value, 2)) == value[2:]


def test_records_of_internal_topics_say_what_kafkas_dump_says() -> None:
    metadata = [
        decode_record(bytes.fromhex(vector["value"]))[0]
        for vector in lines("kafka-4.3.1-records.jsonl")
        if vector["topic"] == "__cluster_metadata"
    ]
    topic = next(record for record in metadata if isinstance(record, TopicRecord))
    assert (topic.name, uuid_to_str(topic.topic_id)) == ("fc-none", "zPQP5IaNSRu_Hmhu2lFoCg")
    partition = next(record for record in metadata if isinstance(record, PartitionRecord))
    assert partition == PartitionRecord(
        partition_id=0,
        topic_id=topic.topic_id,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=partition.directories,
    )
    assert [uuid_to_str(each) for each in partition.directories] == ["swfonp8Rb3ur80FCpHNQdw"]
    committed = next(
        vector
        for vector in lines("kafka-4.3.1-records.jsonl")
        if (vector["key"] or "")[:4] == "0001"
    )
    assert codec(OffsetCommitKey, 0).decode(bytes.fromhex(committed["key"]), 2) == OffsetCommitKey(
        group="wire1", topic="fc-none", partition=0
    )
    assert codec(OffsetCommitValue, 4).decode(
        bytes.fromhex(committed["value"]), 2
    ) == OffsetCommitValue(
        offset=10, leader_epoch=0, commit_timestamp=1795247412000, topic_id=topic.topic_id
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "truncated"),
        ("01", "truncated"),
        ("0102", "truncated"),
        ("000200", "frame version 0"),
        ("01ff0100", "unknown api key 255"),
        ("010207", "TopicRecord has no version 7"),
        ("01020008", "length beyond the end|truncated"),
        ("ffffffffffff", "more than five bytes"),
    ],
)
def test_a_metadata_record_that_isnt_one(value: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        decode_record(bytes.fromhex(value))


def test_error_codes_of_younger_versions_have_names() -> None:
    assert ErrorCode(134).name == "GROUP_DELETION_FAILED"
