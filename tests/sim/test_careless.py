"""What administrators ask for without care does no harm."""

from __future__ import annotations

import pytest

from sim.careless import run_careless


@pytest.mark.parametrize("seed", range(4))
def test_careless_requests_do_no_harm(seed: int) -> None:
    run_careless(seed)
