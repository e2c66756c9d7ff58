"""The broker's micro-benchmark measures what it says, for as short as it can."""

from __future__ import annotations

import pytest

from tidelog_bench.bench_broker import CASES


@pytest.mark.parametrize(
    "name",
    [
        "produce 10 x 1 KiB",
        "fetch 10 x 1 KiB",
        "fetch session 1 idle",
        "fetch parked + produce 100 B",
    ],
)
def test_a_case_runs(name: str) -> None:
    figures = CASES[name](0.01)
    assert 0 < figures["us_min"] <= figures["us_max"]
    assert figures["answer_bytes"] > 0
