"""The order service in the simulation: once as it should be, once with its bug."""

from __future__ import annotations

import functools

import pytest
from service import serve, serve_with_bug
from shop import shop

from tidelog.simulation import SimulationFailedError, run


@pytest.mark.tidelog_simulation(seeds=50, brokers=3, fault_s=8)
async def test_every_order_is_shipped_once(tidelog_simulation) -> None:
    await shop(tidelog_simulation, serve)


def test_the_bug_is_found_and_replayed() -> None:
    shop_with_bug = functools.partial(shop, service=serve_with_bug)
    with pytest.raises(SimulationFailedError, match="never shipped") as found:
        run(shop_with_bug, seeds=50, fault_s=8)
    print(found.value)  # the seed, the fault that is enough, the timeline
    with pytest.raises(SimulationFailedError, match="never shipped"):
        run(shop_with_bug, seeds=[found.value.seed], only_faults=found.value.faults, fault_s=8)
