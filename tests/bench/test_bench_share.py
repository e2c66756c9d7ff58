"""The question about share groups, small, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_bench.bench_share import Reading, Size, measure
from tidelog_bench.peers.tidelog import Tidelog

if TYPE_CHECKING:
    from pathlib import Path


def test_a_reading_is_done_when_all_records_came() -> None:
    reading = Reading("g", bytes(16), 3)
    reading.take(2)
    assert not reading.done_at
    reading.take(1)
    assert reading.done_at > 0


def test_one_consumer_and_more_than_there_are_partitions(tmp_path: Path) -> None:
    size = Size(records=2000, batch_records=100, partitions=2, consumers=(1, 3))
    peer = Tidelog(tmp_path / "broker")
    try:
        peer.start()
        figures = measure(peer, size)
    finally:
        peer.remove()
    assert len(figures) == 4
    assert all(figure > 0 for name, figure in figures.items() if "records/s" in name)
