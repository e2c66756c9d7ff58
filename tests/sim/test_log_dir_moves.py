"""Whole runs of clusters whose replicas move between log directories."""

from __future__ import annotations

import pytest

import sim.run
from sim.cluster.directories import MovingWorld


@pytest.mark.parametrize("seed", [2, pytest.param(0, marks=pytest.mark.nightly)])
def test_replicas_move_between_directories_and_nothing_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim.run, "ClusterWorld", MovingWorld)
    verdict = sim.run.run_seed(seed, brokers=3)
    replay = f"cd tests && python -m sim --directories --brokers 3 --seed {seed}"
    assert verdict.failure is None, replay
    assert verdict.counts["asked to move: NONE"] > 10
    assert verdict.counts["records acknowledged"] > 0
