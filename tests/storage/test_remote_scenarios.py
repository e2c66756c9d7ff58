"""The KIP-405 scenarios of the specification, on real logs and a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.remote_vectors import VECTORS
from support.tier_scenario import TierScenario
from support.vectors import load_yaml

if TYPE_CHECKING:
    from pathlib import Path

SCENARIOS = sorted(VECTORS.glob("kip405-*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    scenario = TierScenario(load_yaml(path), tmp_path)
    assert scenario.play() > 10


def test_all_scenarios_are_there() -> None:
    assert len(SCENARIOS) == 6
