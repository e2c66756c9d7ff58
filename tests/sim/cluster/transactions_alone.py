"""Transactions on one broker: the cluster's actors, and the faults that one broker survives whole.

Acknowledged records of a lone broker may go with its power, so it is killed and never loses power.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sim.cluster.admin import ClusterAdmin
from sim.cluster.faults import draw_cluster_plan
from sim.cluster.world import START_S_MAX, WHOLE_S_MAX, ClusterWorld
from sim.loop import SimLoop
from sim.machine import in_lane

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFault

KINDS = frozenset(
    {
        "clock jump",
        "full disk",
        "isolate",
        "kill",
        "kill inside",
        "pause",
        "reset",
        "restart",
        "slow disk",
        "slow network",
    }
)


def draw_plan(seed: int) -> list[ClusterFault]:
    """The faults of a seed that one broker survives."""
    return [fault for fault in draw_cluster_plan(seed, 1) if fault.kind in KINDS]


class LoneWorld(ClusterWorld):
    """A run of one broker with transactions alone."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        super().__init__(loop, seed, 1, draw_plan(seed))
        self.transactions.is_on = True

    async def run(self) -> None:
        """From an empty disk to the verdict, and once more after an orderly stop."""
        self._keep_all()
        await self._within(START_S_MAX, "the broker is not ready", self._unready)
        admin = ClusterAdmin(self, 0)
        await self._served([self._start("admin", self._create(admin))], "creating topics")
        await self._served([self._start("admin", self.transactions.create())], "topics")
        self.transactions.start()
        await self.faults.run()
        self.is_quiet = True
        await self.transactions.finish()
        self.transactions.check()
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.sleep(0)
        await asyncio.wait([in_lane("test", machine.stop()) for machine in self.machines])
        self._keep_all()
        unsettled = self.transactions.checkers.unsettled
        await self._within(WHOLE_S_MAX, "after an orderly stop transactions are open", unsettled)
        self.transactions.check()
        self._check_failures()


def run_alone(seed: int) -> tuple[str | None, dict[str, int]]:
    """Run a seed: what failed, None if nothing did, and what was seen."""
    loop = SimLoop(seed)
    world = LoneWorld(loop, seed)
    failure = None
    try:
        loop.run_until_complete(world.run())
    except AssertionError as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        loop.close()
        world.machines.bury()
    return failure, world.history.counts
