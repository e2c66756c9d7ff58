"""The specification's retention table, as far as it speaks of logs without a remote tier.

Those are the cases of a topic that copies nothing any more, and of which nothing is remote: they
follow `retention.*` alone, and the log start follows the deletions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.logs import PARTITION
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.config import LogConfig
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.recovery import Checkpointed, load_log

VECTORS = Path(__file__).parent / "vectors"


def local_cases():
    table = yaml.safe_load((VECTORS / "retention.yaml").read_text())
    return [
        pytest.param(case["in"], case["out"], id=case["name"])
        for case in table["cases"]
        if case["function"] == "local_deletable"
        and case["in"].get("copy_disabled")
        and case["in"]["log_start"] == case["in"]["local_start"]
    ]


def batch_of(base, last, size, timestamp):
    """One batch of records base to last, padded to a size."""
    for padding in range(size):
        records = [Record(offset, timestamp, None, b"") for offset in range(base, last)]
        records.append(Record(last, timestamp, None, bytes(padding)))
        data = build_batch(records, base_offset=base, leader_epoch=0)
        if len(data) == size:
            return memoryview(data)
    raise AssertionError(size)


@pytest.fixture
def log(tmp_path):
    files = OsFileSystem()
    files.make_dirs(str(tmp_path / "t-0"))
    log = load_log(
        files,
        str(tmp_path / "t-0"),
        PARTITION,
        LogConfig(),
        now_ms=0,
        had_clean_shutdown=True,
        checkpointed=Checkpointed(),
    )
    yield log
    log.close()


@pytest.mark.parametrize(("given", "out"), local_cases())
def test_retention(log, given, out):
    segments = given["segments"]
    log.truncate_fully_and_start_at(given["log_start"], None, 0)
    for base, last, size, timestamp in segments:
        if log.log_end_offset > segments[0][0]:
            log.roll(timestamp)
        log.append_as_follower(batch_of(base, last, size, timestamp), leader_epoch=0, now_ms=0)
    assert log.segments.base_offsets == [segment[0] for segment in segments]
    assert [segment.size for segment in log.segments] == [segment[2] for segment in segments]
    assert log.segments.active.base_offset == given["active"]
    log.set_high_watermark(given["high_watermark"])
    log.config = LogConfig(
        {
            "retention.bytes": given.get("retention_bytes", -1),
            "retention.ms": given.get("retention_ms", -1),
        }
    )
    assert log.delete_old_segments(given["now"]) == out["deleted"]
    assert log.log_start_offset == out["log_start"]
    assert log.segments.first.base_offset == out["local_start"]
    assert (log.segments.active.base_offset != given["active"]) is out.get("rolled", False)
