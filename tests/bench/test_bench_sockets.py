"""The costs over sockets are measured, and told beside their ceilings."""

from __future__ import annotations

from tidelog_bench import bench_broker, bench_sockets
from tidelog_bench.ceilings import CEILINGS, line


def test_a_few_requests_of_each_kind() -> None:
    costs = bench_sockets.measure(share=0.002, rounds=1)
    assert set(costs) == set(bench_sockets.LOADS)
    # So few may fall between two ticks of the other process's clock.
    assert max(cost.microseconds for cost in costs.values()) > 0
    assert costs["fetch 1 MiB"].bytes_moved > 1_000_000
    assert costs["fetch 10 x 1 KiB"].bytes_moved > 10 * 1024
    lines = bench_sockets.table(costs)
    assert [text[:28].strip() for text in lines] == list(CEILINGS)


def test_what_is_more_than_twice_its_ceiling_is_marked() -> None:
    assert "x1.0  )" in line("produce request", 5.5)
    assert "x2.1 !)  budget 15" in line("produce request", 11.7)
    assert "prototype" not in line("fetch, further partition", 4.0)


def test_the_figures_without_sockets() -> None:
    lines = bench_broker.beside_ceilings(dict.fromkeys(bench_broker.CASES, 10.0))
    assert all(text[:28].strip() in CEILINGS for text in lines)
