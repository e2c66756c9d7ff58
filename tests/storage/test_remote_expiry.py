"""Which remote segments expire: the specification's table, Kafka's numbers, edges of our own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.remote_vectors import (
    NOW,
    metadata_of,
    pairs,
    segment_id,
    segment_of,
    symbol,
    table,
)
from tidelog_storage.config import LogConfig
from tidelog_storage.remote.api import RemoteSegment, SegmentState
from tidelog_storage.remote.expiry import ExpiryPlan, LogExtent, RemoteRetention, plan


def limits(given: dict[str, Any]) -> RemoteRetention:
    overrides = {
        "cleanup.policy": ",".join(given.get("cleanup_policy", ["delete"])),
        "retention.ms": str(given.get("retention_ms", -1)),
        "retention.bytes": str(given.get("retention_bytes", -1)),
    }
    return RemoteRetention.of(LogConfig.from_overrides(LogConfig(), overrides))


@pytest.mark.parametrize(("_", "given", "out"), table("retention.yaml", "remote_deletable"))
def test_the_table(_: str, given: dict[str, Any], out: Any) -> None:
    metadata = metadata_of([segment_of(facts) for facts in given["remote"]])
    copying = [segment_id(given["being_copied"])] if "being_copied" in given else []
    found = plan(
        metadata.segments(),
        LogExtent(
            pairs(given["lineage"]), given["log_start"], given["log_end"], given["local_only_bytes"]
        ),
        limits(given),
        now_ms=given["now"],
        copying=copying,
    )
    assert [symbol(segment) for segment in found.deletions] == out["delete"]
    assert found.new_log_start == out["log_start"]


# ---- Kafka's numbers (RemoteLogManagerTest) ------------------------------------------------------


def segment(name: str, start: int, end: int, **facts: Any) -> RemoteSegment:
    return segment_of(
        {"id": name, "start": start, "end": end, "epochs": [[0, start]], "size": 1024} | facts
    )


def expire(segments: list[RemoteSegment], retention_bytes: int = -1, **facts: Any) -> ExpiryPlan:
    facts = {"retention": RemoteRetention(retention_bytes=retention_bytes), "now_ms": NOW} | facts
    given = {key: facts.pop(key) for key in LogExtent._fields if key in facts}
    log = LogExtent([(0, 0)], 0, 10_000, 0)._replace(**given)
    return plan(segments, log, facts.pop("retention"), **facts)


def names(found: ExpiryPlan) -> list[str]:
    return [symbol(each) for each in found.deletions]


@pytest.mark.parametrize("count", [0, 1, 23, 50])
def test_size_retention(count: int) -> None:
    segments = [segment(f"s{slot}", slot * 100, slot * 100 + 99) for slot in range(50)]
    found = expire(segments, (50 - count) * 1024 + 512, local_only_bytes=512)
    assert names(found) == [f"s{slot}" for slot in range(count)]
    assert found.new_log_start == count * 100


def test_dangling_segments() -> None:
    """Room for ten: a copy that was given up, and a deletion that was, go before all others."""
    finished = [segment(f"s{slot}", 100 * slot, 100 * slot + 99) for slot in range(1, 12)]
    dangling = segment("dangling", 0, 99, state="COPY_SEGMENT_STARTED")
    deleting = segment("deleting", 0, 99, state="DELETE_SEGMENT_STARTED")
    late = segment("late", 1200, 1299, state="COPY_SEGMENT_STARTED")
    listed = [dangling, deleting, *finished, late]
    first = expire(listed, 10 * 1024)
    assert names(first) == ["dangling", "deleting"]
    left = [each for each in listed if each not in first.deletions]
    left[-1] = replace(late, state=SegmentState.COPY_SEGMENT_FINISHED)
    second = expire(left, 10 * 1024, log_start_offset=first.new_log_start)
    assert names(second) == ["s1", "s2"]


def test_overlapping_segments_go_both() -> None:
    found = expire([segment("s0", 0, 99), segment("s1", 0, 104)], 0)
    assert (names(found), found.new_log_start) == (["s0", "s1"], 105)


def test_a_copy_under_way_holds_up_what_is_behind_it() -> None:
    segments = [segment(f"s{slot}", slot * 100, slot * 100 + 99) for slot in range(4)]
    segments[1] = replace(segments[1], state=SegmentState.COPY_SEGMENT_STARTED)
    found = expire(segments, 0, copying={segments[1].segment_id})
    assert (names(found), found.new_log_start) == (["s0"], 100)


# ---- edges ---------------------------------------------------------------------------------------


def test_what_goes_anyway_is_not_counted_as_too_much() -> None:
    """DeleteRecords freed two segments of five; three are one too many for two."""
    segments = [segment(f"s{slot}", slot * 100, slot * 100 + 99) for slot in range(5)]
    found = expire(segments, 2048, epochs=[(0, 250)], log_start_offset=250)
    assert names(found) == ["s0", "s1", "s2"]
    assert found.new_log_start == 300


def test_time_frees_room_too() -> None:
    segments = [segment(f"s{slot}", slot * 100, slot * 100 + 99) for slot in range(3)]
    segments[0] = replace(segments[0], max_timestamp=NOW - 11)
    retention = RemoteRetention(retention_ms=10, retention_bytes=2048)
    found = expire(segments, retention=retention)
    assert names(found) == ["s0"]


def test_a_segment_of_two_epochs_is_met_once_in_the_order_of_the_lineage() -> None:
    segments = [
        segment("s2", 40, 59, epochs=[[3, 40]]),
        segment("s1", 10, 49, epochs=[[0, 10], [3, 40]]),
        segment("s0", 0, 9),
    ]
    found = expire(segments, 0, epochs=[(0, 0), (3, 40)])
    assert (names(found), found.new_log_start) == (["s0", "s1", "s2"], 60)


def test_a_log_without_epochs_expires_nothing() -> None:
    assert expire([segment("s0", 0, 9)], 0, epochs=[]) == ExpiryPlan(0, ())


def test_an_unreferenced_segment_goes_though_the_walk_ended_before_it() -> None:
    segments = [
        segment("old", 500, 599, epochs=[[1, 500]]),
        segment("older", 600, 699, epochs=[[0, 600], [1, 650]]),
        segment("kept", 100, 199, epochs=[[2, 100]]),
        segment("dead", 100, 299, epochs=[[1, 100], [4, 150]]),
    ]
    found = expire(segments, epochs=[(2, 100), (5, 200)], log_start_offset=100)
    assert (names(found), found.new_log_start) == (["old", "older"], 100)
    copying = {segment_id("older")}
    found = expire(segments, epochs=[(2, 100), (5, 200)], log_start_offset=100, copying=copying)
    assert names(found) == ["old"]


def test_bytes_that_are_only_local() -> None:
    sizes = {0: 100, 10: 200, 20: 400}
    segments = [SimpleNamespace(base_offset=base, size=size) for base, size in sizes.items()]
    log = SimpleNamespace(
        segments=segments, epochs=SimpleNamespace(entries=[]), log_start_offset=0, log_end_offset=30
    )

    def local_only(highest: int) -> int:
        log.highest_remote_offset = highest
        return LogExtent.of(log).local_only_bytes  # type: ignore[arg-type]

    assert [local_only(highest) for highest in (-1, 9, 10, 19, 20)] == [700, 600, 400, 400, 0]


def test_a_deletion_that_failed_is_tried_again_above_all_that_is_kept() -> None:
    """Of a copy that failed, in a topic without limits: its bytes stayed in the store for ever."""
    kept = segment("kept", 0, 99)
    going = segment("going", 100, 199, state="DELETE_SEGMENT_STARTED")
    assert names(expire([kept, going])) == ["going"]
    assert names(expire([kept, going], copying={going.segment_id})) == []
