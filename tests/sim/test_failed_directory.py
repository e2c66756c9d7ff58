"""A cluster member with a failed log directory."""

from __future__ import annotations

import pytest

from sim.failed_directory import run_failed_directory


@pytest.mark.parametrize("seed", range(4))
def test_everything_is_served_and_in_sync_again(seed: int) -> None:
    run_failed_directory(seed)
