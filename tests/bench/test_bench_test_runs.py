"""The bench of test runs: starts leave nothing, a reset leaves no topics."""

from __future__ import annotations

from tidelog_bench.bench_test_runs import GROUPS, measure_resets, measure_starts


def test_starts_are_counted_with_what_they_leave() -> None:
    found = measure_starts(4)
    assert (found["starts"], found["failures"], found["first failures"]) == (4, 0, [])
    assert (found["descriptors left"], found["threads left"], found["folders left"]) == (0, 0, 0)
    assert 0 < found["median ms"] <= found["worst ms"]


def test_resets_are_timed() -> None:
    found = measure_resets(1)
    assert (found["resets"], found["of"]["groups"]) == (1, GROUPS)
    assert 0 < found["median ms"] == found["worst ms"]
    assert 0 < found["CPU"]["median ms"] == found["CPU"]["worst ms"]
