"""The in-sync replicas go one by one, and come back in any order: who may lead again (KIP-966).

C goes while two are left, and misses a record. B goes next: it is eligible, until it comes back
from its power failure without that record. The last leader A is killed. Only A has everything, and
the partition waits for it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sim.history import require
from sim.stage import Stage
from tidelog.simulation.loop import simulate

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop

ALL = "ABC"


def run_eligible(seed: int) -> None:
    """One seed's run; Violation if a record is lost."""
    simulate(f"eligible-{seed}", lambda loop: _play(loop, seed))


async def _play(loop: SimLoop, seed: int) -> None:
    rng = random.Random(f"{seed}:eligible")
    async with Stage(loop, ALL) as stage:
        await stage.create_topic(ALL, min_insync_replicas=2)
        await stage.acknowledged("A", "first", acks=-1)
        await stage.whole()
        if rng.random() < 0.5:
            await stage.stop("C")
        else:
            stage.kill("C")
        await stage.until(lambda: stage.in_sync == "AB", "C leaves the in-sync replicas")
        require(not stage.decided.eligible_leader_replicas, "C is eligible, and two are in sync")
        await stage.acknowledged("A", "second", acks=-1)
        stage.power_failure("B")
        await stage.until(lambda: stage.in_sync == "A", "B leaves the in-sync replicas")
        require(_eligible(stage) == "B", f"{_eligible(stage)!r} is eligible, B is not")
        stage.kill("A")
        await stage.until(lambda: not stage.leader, "nobody leads")
        names = list(ALL)
        rng.shuffle(names)
        for name in names:
            await stage.start(name)
            require(stage.leader in ("", "A"), f"{stage.leader} leads, which lacks a record")
        await stage.until(lambda: stage.leads("A"), "the last leader leads")
        await stage.whole()
        for name in ALL:
            values = stage.values(name)
            require(values == ["first", "second"], f"{values} are left on {name}")


def _eligible(stage: Stage) -> str:
    return "".join(stage.letters[node_id] for node_id in stage.decided.eligible_leader_replicas)
