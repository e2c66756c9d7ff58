"""A cluster member with a failed log directory."""

from __future__ import annotations

import pytest

from sim.failed_directory import run_failed_directory


@pytest.mark.parametrize("seed", range(4))
def test_the_rest_goes_on_and_all_of_it_comes_back(seed: int) -> None:
    run_failed_directory(seed)
