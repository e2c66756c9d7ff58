"""The bench of many partitions measures a broker that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_bench.bench_partitions import measure

if TYPE_CHECKING:
    from pathlib import Path


def test_a_few_partitions_are_measured(tmp_path: Path) -> None:
    figures = measure(3, tmp_path / "broker")
    assert set(figures) == {"create s", "create CPU s", "stop s", "start s", "start CPU s"}
    assert figures["start s"] > 0
