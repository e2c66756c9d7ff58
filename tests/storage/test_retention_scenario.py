"""The specification's retention table: what a log gives up of what is on its disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.logs import PARTITION
from support.vectors import load_yaml
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.config import LogConfig
from tidelog_storage.loading import Checkpointed, LogContext
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.recovery import load_log

if TYPE_CHECKING:
    from tidelog_storage.log import Log

VECTORS = Path(__file__).parent / "vectors"


def local_cases():
    table = load_yaml(VECTORS / "retention.yaml")
    return [
        pytest.param(case["in"], case["out"], id=case["name"])
        for case in table["cases"]
        if case["function"] == "local_deletable"
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


def settings(given):
    unlimited = {"retention.bytes": -1, "retention.ms": -1}
    names = ("retention_bytes", "retention_ms", "local_retention_bytes", "local_retention_ms")
    limits = {name.replace("_", "."): given[name] for name in names if name in given}
    disabled = given.get("copy_disabled", False)
    return unlimited | limits | {"remote.storage.enable": True, "remote.log.copy.disable": disabled}


@pytest.fixture
def log(tmp_path):
    files = OsFileSystem()
    files.make_dirs(str(tmp_path / "t-0"))
    folder = str(tmp_path / "t-0")
    context = LogContext(files, folder, PARTITION, 0, remote_storage_system_enable=True)
    settings = LogConfig({"remote.storage.enable": True})
    log = load_log(context, settings, Checkpointed(had_clean_shutdown=True))
    yield log
    log.close()


def fill(log, given):
    segments = given["segments"]
    log.truncate_fully_and_start_at(segments[0][0], min(given["log_start"], segments[0][0]))
    for base, last, size, timestamp in segments:
        if base > segments[0][0]:
            log.roll(timestamp)
        if size:
            log.append_as_follower(batch_of(base, last, size, timestamp), leader_epoch=0, now_ms=0)
    assert log.segments.base_offsets == [segment[0] for segment in segments]
    assert [segment.size for segment in log.segments] == [segment[2] for segment in segments]
    assert log.segments.active.base_offset == given["active"]
    log.set_high_watermark(given["high_watermark"])
    log.maybe_increment_log_start(given["log_start"], "the case's")
    assert (log.log_start_offset, log.local_log_start_offset) == (
        given["log_start"],
        given["local_start"],
    )
    log.set_highest_remote_offset(given["highest_remote"])


@pytest.mark.parametrize(("given", "out"), local_cases())
def test_tiered(log: Log, given: dict[str, Any], out: dict[str, int]) -> None:
    fill(log, given)
    log.config = LogConfig(settings(given))
    assert log.is_tiered
    assert log.delete_old_segments(given["now"]) == out["deleted"]
    assert log.log_start_offset == out["log_start"]
    assert log.local_log_start_offset == out["local_start"]
    assert (log.segments.active.base_offset != given["active"]) is out.get("rolled", False)


@pytest.mark.parametrize(
    ("given", "out"),
    [
        case
        for case in local_cases()
        if case.values[0].get("copy_disabled")
        and case.values[0]["log_start"] == case.values[0]["local_start"]
    ],
)
def test_a_topic_without_a_remote_tier_does_as_one_that_copies_nothing(
    log: Log, given: dict[str, Any], out: dict[str, int]
) -> None:
    log.config = LogConfig()
    fill(log, given)
    log.config = LogConfig(settings(given) | {"remote.storage.enable": False})
    assert log.delete_old_segments(given["now"]) == out["deleted"]
    assert log.log_start_offset == log.segments.first.base_offset == out["local_start"]
    assert (log.segments.active.base_offset != given["active"]) is out.get("rolled", False)
