"""Records of `__consumer_offsets`: byte for byte what Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.coordinators.groups.classic.group import GroupState
from tidelog.coordinators.groups.classic.records import group_record, group_tombstone
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.modern.states import ModernGroupState
from tidelog.coordinators.groups.now import Now
from tidelog.coordinators.groups.offsets import OffsetAndMetadata, OffsetChange
from tidelog.coordinators.groups.records import GroupChange, decode, offset_record
from tidelog.coordinators.groups.shard import GroupShard
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import uuid_from_str
from tidelog_protocol.records import iter_batches, iter_records

LOG = (Path(__file__).parent / "vectors" / "kafka-consumer-offsets.log").read_bytes()
RECORDS = [record for position, _ in iter_batches(LOG) for record in iter_records(LOG, position)]
NOW = Now(0, 1_795_247_420_000)


def test_offsets_are_written_as_kafka_does() -> None:
    written = [RECORDS[2], RECORDS[9]]
    for record, group_id, timestamp in zip(
        written, ["wire1", "wire2"], [1795247412000, 1795247427294], strict=True
    ):
        offset = OffsetAndMetadata(
            10, 0, "", timestamp, topic_id=uuid_from_str("zPQP5IaNSRu_Hmhu2lFoCg")
        )
        change = OffsetChange(group_id, "fc-none", 0, offset)
        assert decode(record.key, record.value) == change
        assert offset_record(change) == (record.key, record.value)


def test_groups_are_written_as_kafka_does() -> None:
    for record in (RECORDS[0], RECORDS[1], RECORDS[3]):
        change = decode(record.key, record.value)
        assert isinstance(change, GroupChange)
        shard = GroupShard(0, 0)
        shard.replay(change, record.offset + 1, NOW)
        group = shard.groups["wire1"]
        assignments = {name: member.assignment for name, member in group.members.items()}
        assert group_record(group, assignments) == (record.key, record.value)


def test_a_loaded_group_is_what_was_written() -> None:
    shard = GroupShard(0, 0)
    record = RECORDS[1]
    change = decode(record.key, record.value)
    assert isinstance(change, GroupChange)
    shard.replay(change, 2, NOW)
    group = shard.groups["wire1"]
    group.resume(NOW)
    assert (group.state, group.generation, group.protocol_name) == (GroupState.STABLE, 1, "range")
    assert group.topics == {"fc-none"}
    (member,) = group.members.values()
    assert member.member_id == group.members.leader
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (300_000, 45_000)
    assert (member.client_id, member.client_host) == ("console-consumer", "/127.0.0.1")
    assert group.next_deadline_ms() == 45_000
    assert group.state_timestamp_ms == 1795247410025


def test_a_whole_log_of_kafka_loads_with_groups_of_both_protocols() -> None:
    shard = GroupShard(0, 0)
    for record in RECORDS:
        change = decode(record.key, record.value)
        assert change is not None
        shard.replay(change, record.offset + 1, NOW)
    assert len(RECORDS) == 14
    assert shard.groups.keys() == {"wire1", "wire2"}
    assert shard.groups["wire1"].generation == 2
    assert shard.groups["wire1"].is_empty
    group = shard.groups["wire2"]
    assert isinstance(group, ConsumerGroup)
    assert group.state is ModernGroupState.EMPTY, "its member has left"
    assert shard.latest.of_group("wire1")["fc-none"][0].offset == 10
    assert not shard.committed.of_group("wire1")
    shard.advance(3)
    assert shard.committed.of_group("wire1")
    assert not shard.committed.of_group("wire2")


def test_tombstones_and_old_versions() -> None:
    change = OffsetChange("g", "t", 1, None)
    key, value = offset_record(change)
    assert value is None
    assert decode(key, value) == change
    assert decode(b"\x00\x00" + key[2:], None) == change  # type 0, from before Kafka 0.9
    assert decode(*group_tombstone("g")) == GroupChange("g", None)
    expiring = OffsetAndMetadata(5, -1, "m", 100, expire_timestamp=200)
    key, value = offset_record(OffsetChange("g", "t", 1, expiring))
    assert value is not None
    assert value[:2] == b"\x00\x01"
    assert decode(key, value) == OffsetChange("g", "t", 1, expiring)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (b"\x00\x01\x00\x05g", None),
        (group_tombstone("g")[0], b"\x00"),
        (group_tombstone("g")[0], b"\x00\x09"),
        (group_tombstone("g")[0], b"\x00\x03\x00"),
    ],
)
def test_corrupt_records_are_protocol_errors(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(key, value)
