"""The question what holds the loop, for one request."""

from __future__ import annotations

import asyncio

from tidelog_bench.bench_held import held


def test_a_request_has_its_longest_callback() -> None:
    found = asyncio.run(held("FindCoordinator coordinator_keys"))
    assert [each.request for each in found] == ["FindCoordinator coordinator_keys"]
    assert found[0].cpu_ms >= 0
