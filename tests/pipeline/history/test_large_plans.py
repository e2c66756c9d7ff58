"""Plans of topics as large as a cluster's, over made-up brokers (`bench/spark_plan.py`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tidelog_pipeline.history import HistoryOptions, history
from tidelog_pipeline.history.history import plan_ranges
from tidelog_pipeline.history.offsets import ranges_of

OPTIONS = {"kafka.bootstrap.servers": "made-up:9092", "subscribe": "history"}


@pytest.fixture(scope="module")
def program():
    place = Path(__file__).parents[3] / "bench" / "spark_plan.py"
    spec = importlib.util.spec_from_file_location("spark_plan", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def planned(client, **given: str):
    options = HistoryOptions.parse(OPTIONS | given)
    return plan_ranges(client, options, ranges_of(client, options))[0]


def offsets_in(splits) -> int:
    return sum(split.pieces[-1].end - split.pieces[0].start for split in splits)


def test_each_leader_is_asked_once_for_all_its_partitions(program) -> None:
    requests = []
    for partitions in (100, 400):
        client = program.MadeUp(partitions, 3)
        assert offsets_in(planned(client)) == partitions * client.end
        requests.append({name: count for name, count in client.requests.items() if name != "Fetch"})
        assert client.requests["Fetch"] <= 2 * program.METADATA_PARTITIONS
    assert requests[0] == requests[1]


def test_a_large_topic_has_few_tasks_unless_more_are_asked_for(program, monkeypatch) -> None:
    client = program.MadeUp(20, 10)
    assert len(planned(client)) >= 200 << 3
    monkeypatch.setattr(history, "SPLITS_MAX", 100)
    splits = planned(client)
    assert 100 <= len(splits) <= 100 + 20
    assert offsets_in(splits) == 20 * client.end
    assert len(planned(client, minPartitions="300")) >= 300
