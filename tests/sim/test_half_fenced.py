"""A fencing that a controller leaves half done."""

from __future__ import annotations

import pytest

from sim.half_fenced import run_half_fenced


@pytest.mark.parametrize("seed", range(4))
def test_the_next_controller_goes_on_with_a_fencing(seed: int) -> None:
    run_half_fenced(seed)
