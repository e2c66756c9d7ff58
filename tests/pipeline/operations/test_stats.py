"""`tidelog spark stats` beside what was produced."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.history import broker, create_tiered, produce
from support.spark import MARKS
from tidelog_pipeline.operations import OperationError, Source, stats, write_stats

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = MARKS


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(str(tmp_path_factory.mktemp("remote"))) as servers:
        yield servers


def test_figures_are_those_of_the_records(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    topic = create_tiered(servers, 2)
    produce(servers, topic, range(2500))
    found = stats(spark, Source(servers, topic))
    numbers = range(2500)
    assert (found.step_s, found.records) == (1, 2500)
    sizes = {n: len(b"%d " % n) + 300 + (n % 5 > 0) for n in numbers}
    assert found.bytes == sum(sizes.values())
    for span in found.spans:
        own = [n for n in numbers if (1000 + n) // 1000 == span.start_s]
        assert (span.records, span.bytes) == (len(own), sum(sizes[n] for n in own))
        assert (span.keys, span.keyless) == (7, sum(n % 5 == 0 for n in own))
        counts = [sum(n % 7 == key and n % 5 > 0 for n in own) for key in range(7)]
        assert span.top_records == max(counts)
        assert counts[int(span.top_key or "")] == max(counts)
    assert [span.start_s for span in found.spans] == [1, 2, 3]
    files = write_stats(found, tmp_path / "report")
    assert json.loads(files[0].read_text())["step_s"] == 1
    assert files[1].read_text().count("<polyline") == 4


def test_a_run_after_one_that_was_killed_counts_the_rest(
    spark: SparkSession, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_tiered(servers, 2)
    produce(servers, topic, range(300))
    source, journal = Source(servers, topic), tmp_path / "unfinished.jsonl"
    expected = stats(spark, source)
    monkeypatch.setattr("tidelog_pipeline.operations.journal.WAVE_BYTES", 1)
    module = sys.modules["tidelog_pipeline.operations.stats"]
    whole, counted = module._count, []  # type: ignore[attr-defined]

    def count(*given):
        counted.append(given)
        if len(counted) == 2:
            raise RuntimeError("killed")
        return whole(*given)

    monkeypatch.setattr(module, "_count", count)
    with pytest.raises(OperationError, match="killed"):
        stats(spark, source, journal=journal)
    produce(servers, topic, range(300, 320))  # the question is that of the run before
    assert stats(spark, source, journal=journal) == expected
    assert len(counted) == 3
    assert stats(spark, source, step_s=1, journal=journal).records == 320


def test_a_topic_without_records_is_one_line(spark: SparkSession, servers: str) -> None:
    topic = create_tiered(servers)
    with pytest.raises(OperationError, match="has no records in that range"):
        stats(spark, Source(servers, topic))
