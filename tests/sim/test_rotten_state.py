"""A follower that comes back behind rotten state begins once its leader has repaired it."""

from __future__ import annotations

import pytest

from sim.rotten_state import run_rotten_state


@pytest.mark.parametrize("seed", range(2))
def test_a_follower_begins_once_its_leader_has_repaired_the_state_it_needs(seed: int) -> None:
    run_rotten_state(seed)
