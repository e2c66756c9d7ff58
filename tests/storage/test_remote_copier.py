"""Which segments are copied: the specification's table, then a real log."""

from __future__ import annotations

from typing import Any

import pytest

from support.remote_vectors import NOW, table
from tidelog_storage.remote.copier import CopyLag, LocalSegment, eligible

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
