"""Producer snapshots, byte for byte as Kafka's; torn and foreign ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.vectors import load_yaml
from tidelog_storage.producer_snapshot import (
    BatchMetadata,
    CorruptSnapshotError,
    ProducerEntry,
    format_snapshot,
    parse_snapshot,
)

VECTORS = Path(__file__).parent / "vectors"
GOLDEN = load_yaml(VECTORS / "producer-snapshots.yaml")["cases"]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_golden(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    entries = []
    for given_ in case["entries"]:
        entry = ProducerEntry(
            given_["producer_id"],
            producer_epoch=given_["producer_epoch"],
            coordinator_epoch=given_["coordinator_epoch"],
            last_timestamp=given_["timestamp"],
            current_txn_first_offset=given_["current_txn_first_offset"],
        )
        entry.batches.append(
            BatchMetadata(
                given_["last_sequence"],
                given_["last_offset"],
                given_["offset_delta"],
                given_["timestamp"],
            )
        )
        entries.append(entry)
    assert format_snapshot(entries) == data
    assert format_snapshot(parse_snapshot(data)) == data


@pytest.mark.parametrize("name", ["ftxn-10.snapshot", "ftxn-33.snapshot"])
def test_kafkas_own_files(name: str) -> None:
    data = (VECTORS / "kafka-4.3.1" / name).read_bytes()
    assert format_snapshot(parse_snapshot(data)) == data


def test_what_dump_log_segments_prints_of_one() -> None:
    data = (VECTORS / "kafka-4.3.1" / "ftxn-10.snapshot").read_bytes()
    idempotent, open_transaction = parse_snapshot(data)
    assert idempotent.producer_id == 0
    assert list(idempotent.batches) == [BatchMetadata(4, 4, 4, 1700000000004)]
    assert idempotent.batches[0].first_sequence == 0
    assert idempotent.current_txn_first_offset == -1
    assert (open_transaction.producer_id, open_transaction.producer_epoch) == (1, 0)
    assert open_transaction.current_txn_first_offset == 5
    assert open_transaction.coordinator_epoch == -1


def test_cut_or_changed_anywhere_is_corrupt() -> None:
    data = bytearray((VECTORS / "kafka-4.3.1" / "ftxn-33.snapshot").read_bytes())
    for position in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            parse_snapshot(bytes(data[:position]))
        data[position] ^= 1
        with pytest.raises(CorruptSnapshotError):
            parse_snapshot(bytes(data))
        data[position] ^= 1


int16 = st.integers(-1, 2**15 - 1)
int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)


@settings(derandomize=True, max_examples=60)
@given(st.lists(st.tuples(int64, int16, int32, int64, int32, int64, int32, int64), max_size=5))
def test_round_trip(rows: list[tuple[int, ...]]) -> None:
    entries = [ProducerEntry.from_snapshot(row) for row in rows]  # type: ignore[arg-type]
    again = parse_snapshot(format_snapshot(entries))
    assert [e.snapshot_fields() for e in again] == [e.snapshot_fields() for e in entries]


@settings(derandomize=True, max_examples=100)
@given(st.binary(max_size=120))
def test_garbage_raises_nothing_else(data: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        parse_snapshot(b"\x00\x01\xde\xad\xbe\xef" + data)
