"""Which segments are copied: the specification's table, then a real log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from support.logs import append, batch, config, open_log
from support.remote_vectors import NOW, PARTITION, table
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.config import LogConfig
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import RemoteSegment, SegmentState
from tidelog_storage.remote.copier import CopyLag, LocalSegment, candidates, eligible
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from tidelog_storage.log import Log

LAGS = ("copy_lag_ms", "copy_lag_bytes", "local_retention_ms", "local_retention_bytes")


@pytest.mark.parametrize(("_", "given", "out"), table("copy-eligibility.yaml", "copy_candidates"))
def test_the_table(_: str, given: dict[str, Any], out: Any) -> None:
    ranges = given["segments"]
    assert given["active"] == ranges[-1][0]
    sizes = given.get("sizes", [100] * len(ranges))
    timestamps = given.get("largest_timestamps", [NOW] * len(ranges))
    segments = [
        LocalSegment(base, end, size, timestamp)
        for (base, end), size, timestamp in zip(ranges, sizes, timestamps, strict=True)
    ]
    lag = CopyLag(**{key: given[key] for key in LAGS if key in given})
    now = given.get("now", NOW)
    found = eligible(segments, given["from"], given["last_stable"], lag, now)
    assert [[each.base_offset, each.end_offset - 1] for each in found] == out["copy"]


# ---- a real log ----------------------------------------------------------------------------------


def grow(log: Log, *epochs: int) -> None:
    """One segment of two records for every epoch given, then an empty active one."""
    for epoch in epochs:
        for _ in range(2):
            append(log, leader_epoch=epoch)
        log.roll(NOW)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_log(OsFileSystem(), tmp_path / "t-0")
    grow(log, 0, 0, 3)
    return log


def test_what_goes_with_a_segment(log: Log, tmp_path: Path) -> None:
    first, second, third = candidates(log, -1, NOW)
    assert [(each.start_offset, each.end_offset) for each in (first, second, third)] == [
        (0, 1),
        (2, 3),
        (4, 5),
    ]
    assert [each.epochs for each in (first, second, third)] == [((0, 0),), ((0, 2),), ((3, 4),)]
    assert second.files.leader_epoch_checkpoint == b"0\n1\n0 0\n"
    assert third.files.leader_epoch_checkpoint == b"0\n2\n0 0\n3 4\n"
    assert second.size == (tmp_path / "t-0" / f"{2:020d}.log").stat().st_size
    assert second.max_timestamp == NOW
    for path in (second.files.log, second.files.offset_index, second.files.time_index):
        assert Path(path).stem == f"{2:020d}"
        assert Path(path).exists()
    # The state at the end of the segment, as a follower that starts behind it needs it.
    assert second.files.producer_snapshot == str(tmp_path / "t-0" / f"{4:020d}.snapshot")
    assert Path(second.files.producer_snapshot).exists()
    assert second.txn_index_empty
    assert second.files.transaction_index is None


def test_the_first_event_of_a_copy(log: Log) -> None:
    candidate = candidates(log, 3, NOW)[0]
    event = candidate.started(PARTITION, UUID(int=0), 7, NOW + 9)
    assert event == RemoteSegment(
        topic_id_partition=PARTITION,
        segment_id=UUID(int=0),
        start_offset=4,
        end_offset=5,
        broker_id=7,
        max_timestamp=NOW,
        event_timestamp=NOW + 9,
        epochs=((3, 4),),
        size=candidate.size,
        state=SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=True,
    )


def ranges(log: Log, copied_offset: int, now_ms: int = NOW) -> list[tuple[int, int]]:
    found = candidates(log, copied_offset, now_ms)
    return [(each.start_offset, each.end_offset) for each in found]


def test_copies_go_on_behind_what_is_remote(log: Log) -> None:
    assert ranges(log, 1) == [(2, 3), (4, 5)]
    assert ranges(log, 2) == [(2, 3), (4, 5)]  # copied by a leader that rolled elsewhere
    assert ranges(log, 5) == []


def test_a_change_of_epoch_inside_a_segment(log: Log) -> None:
    append(log, leader_epoch=3)
    append(log, leader_epoch=5)
    log.roll(NOW)
    (last,) = candidates(log, 5, NOW)
    assert last.epochs == ((3, 6), (5, 7))
    assert last.files.leader_epoch_checkpoint == b"0\n3\n0 0\n3 4\n5 7\n"


def test_nothing_below_the_log_start_is_copied(log: Log) -> None:
    log.maybe_increment_log_start(3, "test")
    assert ranges(log, -1) == [(2, 3), (4, 5)]
    assert candidates(log, -1, NOW)[0].epochs == ((0, 3),)
    assert candidates(log, -1, NOW)[1].files.leader_epoch_checkpoint == b"0\n2\n0 3\n3 4\n"


def test_an_open_transaction_holds_copies_up(log: Log) -> None:
    log.append_as_leader(
        batch(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=3,
        now_ms=NOW,
    )
    log.roll(NOW)
    append(log, leader_epoch=3)
    log.roll(NOW)
    assert log.last_stable_offset == 6
    assert ranges(log, 5) == []
    abort = build_end_transaction_marker(
        ControlType.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    log.append_as_leader(
        memoryview(bytearray(abort)), leader_epoch=3, now_ms=NOW, from_client=False
    )
    log.set_high_watermark(log.log_end_offset)
    log.roll(NOW)
    found = candidates(log, 5, NOW)
    assert [(each.start_offset, each.end_offset) for each in found] == [(6, 6), (7, 7), (8, 8)]
    assert [each.txn_index_empty for each in found] == [True, True, False]
    path = found[2].files.transaction_index
    assert path is not None
    assert Path(path).stat().st_size == 34


def test_a_lag_of_the_topic(log: Log) -> None:
    log.config = config(**{"remote.copy.lag.ms": 1000, "segment.bytes": 1 << 20})
    assert ranges(log, -1, NOW + 999) == []
    assert ranges(log, -1, NOW + 1000) == [(0, 1), (2, 3), (4, 5)]
    log.config = config(**{"remote.copy.lag.ms": -1, "local.retention.ms": 5})
    assert ranges(log, -1, NOW + 4) == []
    assert ranges(log, -1, NOW + 5) == [(0, 1), (2, 3), (4, 5)]
    size = log.segments.first.size
    log.config = config(**{"remote.copy.lag.ms": -1, "remote.copy.lag.bytes": size})
    assert ranges(log, -1, NOW) == [(0, 1), (2, 3)]


def test_what_is_copied_no_more_is_kept_and_copied_again(tmp_path: Path) -> None:
    """The leader of another branch deleted it, as unreferenced."""
    logs = LogManager(
        OsFileSystem(), [str(tmp_path)], LogConfig(), remote_storage_system_enable=True
    )
    logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)
    tiered = config(remote_storage_enable=True, local_retention_bytes=1)
    log = logs.create(TopicPartition("t", 0), bytes(16), tiered)
    grow(log, 0, 0, 3)
    log.set_highest_remote_offset(5)
    log.reset_highest_remote_offset(1)
    assert log.highest_remote_offset == 1
    assert log.delete_old_segments(NOW) == 1
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 2)
    assert ranges(log, log.highest_remote_offset) == [(2, 3), (4, 5)]
    logs.shutdown(NOW)
