"""The specification's cluster vectors, step by step: replies and states compared.

Here a stand-in for the controller decides exactly what a vector says, and carries each fetch;
`sim/test_scenarios.py` gives the same vectors to whole brokers. `test_vectors.py` lists who plays
which.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.replica_scenario import Scenario
from support.vectors import load_yaml

VECTORS = Path(__file__).parent / "vectors"


@pytest.mark.parametrize(
    "name",
    ["hw-propagation", "kip101-s1-lost-message", "kip101-s2-divergence", "unclean-election"],
)
def test_scenario(name: str, tmp_path: Path) -> None:
    document: dict[str, Any] = load_yaml(VECTORS / f"{name}.yaml")

    async def run() -> None:
        scenario = Scenario(tmp_path, document["given"])
        await scenario.settle()
        for number, step in enumerate(document["steps"], 1):
            try:
                await scenario.play(step)
            except AssertionError as error:
                error.add_note(f"step {number}: {step.get('name') or step['do']}")
                raise
        await scenario.stop(
            [n for n, node in scenario.names.items() if node not in scenario.stopped]
        )

    asyncio.run(run())
