"""Transactions on one broker: the cluster's actors, and the faults that one broker survives whole.

Acknowledged records of a lone broker may go with its power, unless it syncs each write: every other
seed has such a broker, and it loses power too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from histories.calls import Loss
from sim.cluster.admin import ClusterAdmin
from sim.cluster.faults import ClusterFaults, draw_cluster_plan, draw_weather
from sim.cluster.in_sync_checkers import PartitionMemory
from sim.cluster.world import START_S_MAX, WHOLE_S_MAX, ClusterWorld
from tidelog.simulation.loop import SimLoop
from tidelog.simulation.machine import in_lane

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFault

EVERY_LIFE = 1 << 60
KINDS = frozenset(
    {
        "clock jump",
        "full disk",
        "isolate",
        "kill",
        "kill inside",
        "pause",
        "power failure",
        "reset",
        "restart",
        "slow disk",
        "slow network",
    }
)


def draw_plan(seed: int) -> list[ClusterFault]:
    """The faults of a seed that its broker survives."""
    kinds = KINDS if syncs(seed) else KINDS - {"power failure"}
    return [fault for fault in draw_cluster_plan(seed, 1) if fault.kind in kinds]


def syncs(seed: int) -> bool:
    """Whether the seed's broker syncs what it writes before anybody hears of it."""
    return seed % 2 == 1


class LoneFaults(ClusterFaults):
    """Nobody else has to have anything."""

    def power_failure(self, node_id: int) -> None:
        """At any moment; topics with a flush.messages of their own promise nothing."""
        self.machines.by_id[node_id].die("power")
        self.world.history.count("power failures")
        checkers = self.world.checkers
        for topic in self.world.base_topics:
            for index in () if topic.is_durable else range(topic.partitions_max):
                topic.partition(index).cut(EVERY_LIFE, 0)
                loss = Loss(self.world.loop.time(), (topic.topic_id.hex(), index))
                self.world.observer.losses.append(loss)
                checkers.logs.pop((topic.topic_id, index), None)
                key = (topic.topic_id, index)
                memory = PartitionMemory(f"{topic.name}-{index}")
                memory.unclean_epoch = 0  # the disk may keep more than any leader committed
                checkers.in_sync.memories[key] = memory


class LoneWorld(ClusterWorld):
    """A run of one broker with transactions alone."""

    is_about_transactions = True

    def __init__(self, loop: SimLoop, seed: int, *, has_tier: bool = False) -> None:
        self.has_tier = has_tier
        plan = draw_plan(seed)
        if has_tier:
            plan = sorted(plan + draw_weather(seed))
        super().__init__(loop, seed, 1, plan)
        self.faults = LoneFaults(self, plan)

    def settings(self, brokers: int) -> dict[str, str]:
        """Perhaps with a sync after each write."""
        durable = {"log.flush.interval.messages": "1"} if syncs(self.seed) else {}
        return {**super().settings(brokers), **durable}

    def lag(self) -> str | None:
        return self.unready()

    async def _run(self) -> None:
        """From an empty disk to the verdict, and once more after an orderly stop."""
        self._keep_all()
        await self.within(START_S_MAX, "the broker is not ready", self.unready)
        admin = ClusterAdmin(self, 0)
        await self.served([self.spawn("admin", self._create(admin))], "creating topics")
        await self.served([self.spawn("admin", self.transactions.create())], "topics")
        self.transactions.start()
        await self.faults.run()
        self.is_quiet = True
        await self.transactions.finish()
        await self.tier.settle()
        self.transactions.check()
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.sleep(0)
        await asyncio.wait([in_lane("test", machine.stop()) for machine in self.machines])
        self._keep_all()
        unsettled = self.transactions.checkers.unsettled
        await self.within(WHOLE_S_MAX, "after an orderly stop transactions are open", unsettled)
        await self.tier.settle()
        self.transactions.check()
        await self.tier.end()
        self._check_failures()
        self._judge_clients()


def run_alone(seed: int, *, has_tier: bool = False) -> tuple[str | None, dict[str, int]]:
    """Run a seed: what failed, None if nothing did, and what was seen."""
    loop = SimLoop(seed)
    world = LoneWorld(loop, seed, has_tier=has_tier)
    failure = None
    try:
        loop.run_until_complete(world.run())
    except AssertionError as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        loop.close()
        world.machines.bury()
        world.tier.close()
    return failure, world.history.counts
