"""Control records as they lie in Kafka's metadata log and snapshots, and through a batch."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.quorum_records import (
    CONTROL_RECORDS,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_record,
    read_control_record,
)
from tidelog_protocol.records import ControlType, Record, build_batch, iter_records, read_header
from wire_values import filled

VOTER = LeaderChangeMessage.Voter(voter_id=1)

# Keys and values out of the log and the bootstrap.checkpoint of a Kafka 4.3.1 node.
KAFKAS = [
    (
        "00000002",
        "00000000000102000000010002000000010000",
        LeaderChangeMessage(leader_id=1, voters=[VOTER], granting_voters=[VOTER]),
    ),
    ("00000003", "0000000000000000000000", SnapshotHeaderRecord()),
    ("00000004", "000000", SnapshotFooterRecord()),
]


@pytest.mark.parametrize(("key", "value", "message"), KAFKAS)
def test_kafkas_control_records(key: str, value: str, message: Any) -> None:
    record = Record(7, 1795247305371, bytes.fromhex(key), bytes.fromhex(value))
    assert read_control_record(record) == message
    assert control_record(message, offset=7, timestamp=1795247305371) == record


@pytest.mark.parametrize("table", CONTROL_RECORDS.values(), ids=lambda table: table.__name__)
def test_control_records_come_back_out_of_a_batch(table: Any) -> None:
    message = filled(table, 0)
    batch = build_batch([control_record(message, timestamp=5)], control=True, leader_epoch=3)
    assert read_header(batch).is_control
    (record,) = iter_records(batch)
    assert (
        ControlType(int.from_bytes(record.key[2:], "big")).name
        == {
            LeaderChangeMessage: "LEADER_CHANGE",
            SnapshotHeaderRecord: "SNAPSHOT_HEADER",
            SnapshotFooterRecord: "SNAPSHOT_FOOTER",
            KRaftVersionRecord: "KRAFT_VERSION",
            VotersRecord: "KRAFT_VOTERS",
        }[table]
    )
    assert read_control_record(record) == message


def test_the_field_version_changes_nothing_about_the_form() -> None:
    """As in Kafka 4.4, which reads and writes version 0 alone: no directory ids."""
    voter = LeaderChangeMessage.Voter(voter_id=1, voter_directory_id=b"d" * 16)
    record = control_record(LeaderChangeMessage(version=1, voters=[voter]), timestamp=0)
    assert read_control_record(record) == LeaderChangeMessage(version=1, voters=[VOTER])


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, b"", "without a type"),
        (b"\0\0\0", b"", "without a type"),
        (b"\xff\xff\0\x02", b"", "key version -1"),
        (b"\0\0\0\x01", b"\0" * 6, "type 1 in the metadata log"),
        (b"\0\0\0\x63", b"", "type 99 in the metadata log"),
        (b"\0\0\0\x04", None, "type 4 has no value"),
        (b"\0\0\0\x04", b"\0\0", "truncated"),
    ],
)
def test_what_no_quorum_writes_is_refused(
    key: bytes | None, value: bytes | None, error: str
) -> None:
    with pytest.raises(ProtocolError, match=error):
        read_control_record(Record(0, 0, key, value))
