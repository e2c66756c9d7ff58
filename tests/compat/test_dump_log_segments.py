"""Apache Kafka's DumpLogSegments reads our files and finds nothing wrong with them.

It prints every batch and record as its own code decodes them, compares indexes with records, and
complains in words that are looked for here. What it prints is compared with what was appended.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from support.compaction import clean, end_transaction, open_compacted, put
from support.logs import NOW, append, config, open_log
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from compat.jvm import Jvm

pytestmark = [pytest.mark.reference, pytest.mark.timeout(400)]

DUMP = "DumpLogSegments"
COMPLAINTS = re.compile(
    r"Mismatches|Non-consecutive|Could not (read|find)|Indexed offset|out of order|invalid|"
    r"isvalid: false|Found (timestamp|offset)|Exception|Error|corrupt",
    re.IGNORECASE,
)
BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) .*"
    r"partitionLeaderEpoch: (\d+) .* position: (\d+) CreateTime: (\d+) size: (\d+) .*"
    r"compresscodec: (\w+) .*isvalid: true"
)
SETTINGS = config(internal_segment_bytes=20_000, index_interval_bytes=1000)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments: all codecs, epochs, an idempotent producer, transactions."""
    folder = tmp_path_factory.mktemp("log") / "t-0"
    log = open_log(OsFileSystem(), folder, SETTINGS)
    for index in range(300):
        options = {}
        if index % 2 == 0:
            sequence = index // 2 * 3
            options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        elif index % 10 == 7:
            options = {"producer_id": 9, "producer_epoch": 1, "base_sequence": index // 10 * 3}
            options["transactional"] = True
        timestamp = NOW + index * 10 - index % 7 * 50  # not rising throughout
        append(log, 3, codec=index % 5, timestamp=timestamp, leader_epoch=index // 100, **options)
        if index % 10 == 9:
            kind = ControlType.ABORT if index % 20 == 9 else ControlType.COMMIT
            marker = build_end_transaction_marker(
                kind, producer_id=9, producer_epoch=1, coordinator_epoch=2, timestamp=timestamp
            )
            log.append_as_leader(
                memoryview(bytearray(marker)),
                leader_epoch=index // 100,
                now_ms=NOW,
                from_client=False,
            )
            log.set_high_watermark(log.log_end_offset)
    log.close()
    return folder


def dump(java: Jvm, folder: Path, suffixes: list[str], *options: str) -> str:
    files = sorted(str(path) for path in folder.iterdir() if path.suffix in suffixes)
    result = java.tool(DUMP, "--files", ",".join(files), *options)
    assert result.exit == 0, result.err
    # Between two segments given in one call it always finds "-1 is followed by": not a gap.
    lines = result.out.splitlines()
    found = [line for line in lines if COMPLAINTS.search(line) and "isvalid: true" not in line]
    assert found == [], found
    return result.out


def test_records_batch_by_batch(java: Jvm, folder: Path) -> None:
    shown = []
    for path in sorted(folder.glob("*.log")):
        result = java.tool(DUMP, "--files", str(path), "--deep-iteration", "--print-data-log")
        assert result.exit == 0, result.err
        batches = [line for line in result.out.splitlines() if line.startswith("baseOffset")]
        matches = [BATCH.match(line) for line in batches]
        assert all(matches), batches[matches.index(None)]
        shown += [match.groups() for match in matches if match]
        records = result.out.count("\n| offset: ")
        assert records == sum(int(match[3]) for match in matches if match)
    log = open_log(OsFileSystem(), folder, SETTINGS)
    expected = [
        (
            str(header.base_offset),
            str(header.last_offset),
            str(header.records_count),
            str(header.base_sequence),
            str(header.leader_epoch),
            str(position),
            str(header.max_timestamp),
            str(header.size_in_bytes),
            CODECS[header.codec],
        )
        for segment in log.segments
        for position, header, _ in segment.batches()
    ]
    log.release()
    assert shown == expected
    assert len({row[8] for row in expected}) == 5


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_indexes_are_sane(java: Jvm, folder: Path, option: str) -> None:
    out = dump(java, folder, [".index", ".timeindex"], option)
    count = len(list(folder.glob("*.log")))
    assert count > 2
    if option == "--index-sanity-check":
        assert out.count("passed sanity check") == 2 * count


def test_index_entries(java: Jvm, folder: Path) -> None:
    """Without an option the tool compares each entry with the batch it points at."""
    log = open_log(OsFileSystem(), folder, SETTINGS)
    out = dump(java, folder, [".index"])
    expected = [
        f"offset: {segment.base_offset + offset} position: {position}"
        for segment in log.segments
        for offset, position in zip(
            segment.offset_index.offsets, segment.offset_index.positions, strict=True
        )
    ]
    assert [line for line in out.splitlines() if line.startswith("offset:")] == expected
    out = dump(java, folder, [".timeindex"])
    expected = [
        f"timestamp: {timestamp} offset: {segment.base_offset + offset}"
        for segment in log.segments
        for timestamp, offset in zip(
            segment.time_index.timestamps, segment.time_index.offsets, strict=True
        )
    ]
    assert [line for line in out.splitlines() if line.startswith("timestamp:")] == expected
    log.release()


def test_transactions_and_snapshots(java: Jvm, folder: Path) -> None:
    log = open_log(OsFileSystem(), folder, SETTINGS, high_watermark=1 << 40)
    out = dump(java, folder, [".txnindex"])
    entries = [entry for segment in log.segments for entry in segment.transaction_index.entries]
    assert len(entries) == 15
    assert [line for line in out.splitlines() if line.startswith("version")] == [
        f"version: 0 producerId: 9 firstOffset: {entry.first_offset} lastOffset:"
        f" {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        for entry in entries
    ]
    out = dump(java, folder, [".snapshot"])
    producers = Counter(re.findall(r"^producerId: (\d+)", out, re.MULTILINE))
    snapshots = len(list(folder.glob("*.snapshot")))
    assert producers == {"5": snapshots, "9": snapshots}
    last = out.rsplit("Dumping", 1)[1]
    assert f"lastOffset: {log.producers.producers[5].batches[-1].last_offset} " in last
    log.release()


def test_compacted_segments(java: Jvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps, delete horizons, empty batches, markers without records, batches of fewer records."""
    monkeypatch.chdir(tmp_path)
    files = OsFileSystem()
    files.make_dirs("data")
    manager, log = open_compacted(files, internal_segment_bytes=5000)
    for index in range(300):
        options = {}
        if index < 50:
            options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": index * 3}
        pairs = [(b"k%d" % ((index * 7 + each) % 23), b"v" * 9) for each in range(2)]
        put(log, *pairs, (b"t%d" % (index % 90), None), codec=index % 5, **options)
        if index % 20 == 10:
            sequence = index // 20
            options = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence}
            put(log, (b"t", b"x"), transactional=True, **options)
            end_transaction(log, 9, commit=index % 40 == 10)
    for _ in range(2):
        log.roll(NOW)
        assert clean(manager) == 1
        put(log, (b"last", b""))
    log.close()
    folder = tmp_path / "data" / "t-0"
    out = dump(java, folder, [".log"], "--deep-iteration", "--print-data-log")
    shown = [line for line in out.splitlines() if line.startswith("baseOffset")]
    assert any(" deleteHorizonMs: OptionalLong[" in line for line in shown)
    assert any(" count: 0 " in line for line in shown)
    headers = [header for segment in log.segments for _, header, _ in segment.batches()]
    assert len(shown) == len(headers) < 150
    assert out.count("\n| offset: ") == sum(header.records_count for header in headers)
    for suffix in (".index", ".timeindex"):
        dump(java, folder, [suffix])
    assert "passed sanity check" in dump(java, folder, [".index"], "--index-sanity-check")
