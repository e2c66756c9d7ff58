"""Eligible leader replicas, and the last leader (KIP-966)."""

from __future__ import annotations

import pytest

from sim.eligible import run_eligible


@pytest.mark.parametrize("seed", range(3))
def test_only_who_has_everything_leads_again(seed: int) -> None:
    run_eligible(seed)
