"""The log's benchmark runs and tells each case."""

from __future__ import annotations

from tidelog_bench import bench_log


def test_a_quick_run() -> None:
    rows = bench_log.run(quick=True)
    assert len(rows) == 12
    assert all(row.microseconds > 0 for row in rows)
    assert rows[0].bare_write_us is not None
    assert rows[-1].ms_per_mb is not None
