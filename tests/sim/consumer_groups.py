"""One group and little else: three brokers that come and go, and members that do.

`GroupsWorld` has a group of KIP-848; `streams_groups.py` has one of Kafka Streams.

Chance brings in seconds what takes a random run of everything much longer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from sim.cluster.admin import ClusterAdmin
from sim.cluster.faults import ClusterFaults, draw_cluster_plan
from sim.cluster.work.consumer_groups import GROUP
from sim.cluster.world import START_S_MAX, WHOLE_S_MAX, ClusterWorld
from sim.coordinator_falls import fall_again_and_again
from tidelog.simulation.loop import SimLoop
from tidelog.simulation.machine import in_lane

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFault

BROKERS = 3
FAULTS_MAX = 8
KINDS = frozenset(
    {
        "cut from brokers",
        "cut one way",
        "elect preferred",
        "isolate",
        "kill",
        "kill inside",
        "kill leader",
        "pause",
        "reset",
        "restart",
        "slow network",
    }
)


def draw_plan(seed: int) -> list[ClusterFault]:
    """Those that move coordinators and lose answers."""
    plan = [fault for fault in draw_cluster_plan(f"groups-{seed}", BROKERS) if fault.kind in KINDS]
    return plan[:FAULTS_MAX]


class GroupsWorld(ClusterWorld):
    """A run of one group."""

    has_tier = False
    kinds_of_work = ("consumer groups",)
    group: ClassVar[str] = GROUP

    def __init__(self, loop: SimLoop, seed: int) -> None:
        plan = draw_plan(seed)
        super().__init__(loop, seed, BROKERS, plan)
        self.transactions.is_on = self.is_about_transactions
        self.faults = ClusterFaults(self, plan)

    async def _run(self) -> None:
        """From empty disks to the verdict."""
        self._keep_all()
        await self.within(
            START_S_MAX, "a new cluster is not ready", lambda: self.unready() or self.lag()
        )
        admin = ClusterAdmin(self, 0)
        await self.served([self.spawn("admin", self._create(admin))], "creating topics")
        await self.served([self.spawn("admin", self.work.create())], "creating topics")
        if self.transactions.is_on:
            await self.served([self.spawn("admin", self.transactions.create())], "topics")
            self.transactions.start()
        self.work.start()
        falls = self.spawn("test", fall_again_and_again(self, self.group))
        await self.faults.run()
        await falls
        self.is_quiet = self.all_written = True
        await self.work.finish()
        if self.transactions.is_on:
            await self.transactions.finish()
        await self.within(WHOLE_S_MAX, "the cluster is not whole", self.lag)
        self.transactions.check()
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.sleep(0)
        await asyncio.wait([in_lane("test", machine.stop()) for machine in self.machines])
        self._check_failures()
        self._judge_clients()


def run_consumer_groups(seed: int) -> dict[str, int]:
    """Run a seed; what was seen."""
    return run_groups(GroupsWorld, seed)


def run_groups(kind: type[GroupsWorld], seed: int) -> dict[str, int]:
    """Run a seed of a kind of group; what was seen."""
    loop = SimLoop(seed)
    world = kind(loop, seed)
    try:
        loop.run_until_complete(world.run())
    finally:
        loop.close()
        world.machines.bury()
        world.tier.close()
    return world.history.counts
