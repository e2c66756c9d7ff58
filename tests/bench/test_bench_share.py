"""The question about share groups, small, on a real broker that offers them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import tidelog
from support.clusters import run
from tidelog import assembly
from tidelog.cluster.metadata import features
from tidelog_bench.bench_share import Reading, Size, measure

if TYPE_CHECKING:
    import pytest


def test_a_reading_is_done_when_all_records_came() -> None:
    reading = Reading("g", bytes(16), 3)
    reading.take(2)
    assert not reading.done_at
    reading.take(1)
    assert reading.done_at > 0


class ThisProcess:
    """A peer whose broker is here."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def cpu_seconds(self) -> float:
        return time.process_time()


def test_one_consumer_and_more_than_there_are_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "SHARE_GROUPS_OFFERED", True)
    monkeypatch.setattr(features, "SHARE_VERSION", 1)
    settings = {
        "group.share.assignment.interval.ms": "0",
        "share.coordinator.state.topic.num.partitions": "1",
    }

    async def test() -> None:
        size = Size(records=2000, batch_records=100, partitions=2, consumers=(1, 3))
        async with tidelog.Cluster(settings) as cluster:
            peer: Any = ThisProcess(cluster.bootstrap_servers)
            figures = await asyncio.to_thread(measure, peer, size)
        assert len(figures) == 4
        assert all(figure > 0 for figure in figures.values())

    run(test)
