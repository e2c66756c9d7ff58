"""The harness's own arithmetic: rounds, medians, ratios, table; no broker is started."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tidelog_bench import results
from tidelog_bench.cases import CASES, METRICS, START_CASE
from tidelog_bench.rounds import Plan, Samples, run_rounds

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_bench.peers.peer import Peer


class NamedPeer:
    replication_factor = 1

    def __init__(self, name: str) -> None:
        self.name = name


class CountingCase:
    name = CASES[0].name
    warm_up_share = 0.25

    def __init__(self, *, broken_for: str = "", megabytes: int = 0) -> None:
        self.broken_for = broken_for
        self.megabytes = megabytes
        self.runs: list[tuple[str, float]] = []

    def run(self, peer: Peer, scale: float) -> dict[str, float]:
        self.runs.append((peer.name, scale))
        if peer.name == self.broken_for:
            raise RuntimeError("out of order")
        return {"produce": float(len(self.runs))}


def measured(case: CountingCase, folder: Path, rounds: int = 3) -> Samples:
    samples = Samples()
    peers = [NamedPeer("tidelog"), NamedPeer("kafka")]
    plan = Plan(folder, samples, lambda line: None, rounds)
    run_rounds(plan, [case], peers)  # type: ignore[list-item, arg-type]
    return samples


def test_peers_alternate_after_a_warm_up_that_does_not_count(tmp_path: Path) -> None:
    case = CountingCase()
    samples = measured(case, tmp_path)
    assert [scale for _, scale in case.runs] == [0.25] * 2 + [1.0] * 6
    for start in range(0, 8, 2):
        assert {name for name, _ in case.runs[start : start + 2]} == {"tidelog", "kafka"}
    counted = samples.of(case.name, "produce", "tidelog") + samples.of(
        case.name, "produce", "kafka"
    )
    assert sorted(counted) == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_a_failure_is_reported_and_keeps_other_figures(tmp_path: Path) -> None:
    case = CountingCase(broken_for="kafka")
    samples = measured(case, tmp_path, rounds=1)
    assert samples.failures == [f"{case.name}, kafka: out of order"] * 2
    assert samples.spread(case.name, "produce", "kafka") is None
    assert samples.ratio(case.name, "produce", "tidelog", "kafka") is None
    assert len(samples.of(case.name, "produce", "tidelog")) == 1


def test_memory_is_made_ready_for_each_case_that_fills_files(tmp_path: Path) -> None:
    samples = measured(CountingCase(), tmp_path, rounds=1)
    assert samples.file_writes == []
    assert "Writing a file" not in results.noise(samples)
    samples = measured(CountingCase(megabytes=2), tmp_path, rounds=1)
    assert len(samples.file_writes) == 4
    assert min(samples.file_writes) > 0
    assert not list(tmp_path.iterdir())
    assert "Writing a file took " in results.noise(samples)


def test_medians_spreads_and_ratios_of_the_same_round() -> None:
    samples = Samples()
    for mine, theirs in ((10.0, 5.0), (40.0, 10.0), (30.0, 10.0)):
        samples.add("c", "tidelog", {"produce": mine})
        samples.add("c", "kafka", {"produce": theirs})
    spread = samples.spread("c", "produce", "tidelog")
    assert spread == (30.0, 10.0, 40.0, 3)
    assert spread.noise == pytest.approx(0.5)
    assert samples.ratio("c", "produce", "tidelog", "kafka") == 3.0
    samples.add("c", "tidelog", {"descriptors left": 3.0})
    samples.add("c", "kafka", {"descriptors left": 0.0})
    assert samples.ratio("c", "descriptors left", "tidelog", "kafka") is None
    assert samples.ratio("c", "descriptors left", "kafka", "tidelog") == 0.0
    assert samples.spread("other", "produce", "tidelog") is None
    assert list(samples.all) == ["c"]


def test_table_orders_cases_and_marks_what_is_better(tmp_path: Path) -> None:
    samples = Samples()
    for case in (CASES[0].name, START_CASE):
        metric = "produce CPU" if case is not START_CASE else "cold start"
        samples.add(case, "tidelog", {metric: 1.0})
        samples.add(case, "kafka", {metric: 4.0})
    lines = results.table(samples, ["tidelog", "kafka"]).splitlines()
    assert lines[2].startswith("start: cold start")
    assert lines[3].startswith(CASES[0].name)
    assert lines[2].endswith("0.25 +")
    path = tmp_path / "figures.json"
    results.write_json(path, samples, {"minutes": 1})
    written = json.loads(path.read_text())
    assert written["samples"][START_CASE]["cold start"] == {"tidelog": [1.0], "kafka": [4.0]}
    assert written["units"].keys() == METRICS.keys()


def test_names_of_cases_are_their_own() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
