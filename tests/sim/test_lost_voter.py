"""A voter that lost its disk does not vote before it is formatted."""

from __future__ import annotations

import pytest

from sim.lost_voter import run_lost_voter


@pytest.mark.parametrize("seed", range(6))
def test_the_last_copy_is_not_forgotten(seed: int) -> None:
    run_lost_voter(seed)
