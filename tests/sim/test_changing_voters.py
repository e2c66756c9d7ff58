"""Voters that the metadata log names come and go beside faults (KIP-853)."""

from __future__ import annotations

import pytest

from sim.changing_voters import run_changing_voters


# 114: of two voters the leader removes itself and dies; 256: a voter alone, asked by the others.
@pytest.mark.parametrize("seed", [*range(6), 114, 256])
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    run = run_changing_voters(seed)
    assert run.changes > 2
    assert len(run.acknowledged) > 5


@pytest.mark.nightly
def test_many_seeds() -> None:
    assert sum(run_changing_voters(seed).changes for seed in range(6, 300)) > 2000
