"""One seed from start to verdict, and the shortest plan that still fails.

With one broker it is `world.py`'s run, with several `cluster/world.py`'s.
"""

from __future__ import annotations

import hashlib
import logging
import re
import traceback
from typing import TYPE_CHECKING, NamedTuple

from sim.cluster.faults import ClusterFault, draw_cluster_plan
from sim.cluster.world import ClusterWorld
from sim.faults import draw_plan
from sim.world import BrokerErrors, World
from tidelog.simulation import shrinking
from tidelog.simulation.disk import MachineDiedError
from tidelog.simulation.loop import SimLoop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sim.faults import Fault
    from tidelog.simulation.disk import SimDisk
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.timeline import Event


class Verdict(NamedTuple):
    """How a run ended. `failure` is one line, None if all checks held."""

    seed: int
    failure: str | None
    details: str  # the traceback
    plan: tuple[Fault | ClusterFault, ...]
    faults: dict[str, int]
    counts: dict[str, int]
    virtual_s: float
    steps: int
    trace: str
    timeline: tuple[Event, ...]
    brokers: int = 1


def plan_of(seed: int, brokers: int = 1) -> list[Any]:
    """The faults that a seed draws."""
    return draw_plan(seed) if brokers == 1 else draw_cluster_plan(seed, brokers)


def run_seed(seed: int, plan: Sequence[Any] | None = None, brokers: int = 1) -> Verdict:
    """Run a seed; `plan` replaces the faults that it would draw."""
    faults = tuple(plan_of(seed, brokers) if plan is None else plan)
    loop = SimLoop(seed)
    world: World | ClusterWorld
    machines: list[Machine]
    if brokers == 1:
        world = World(loop, seed, faults)
        errors = BrokerErrors()
        machines = [world.machine]
    else:
        world = ClusterWorld(loop, seed, brokers, faults)
        machines = world.machines.all  # those that are added later, too
        errors = BrokerErrors(world.rot.explains)
    logger = logging.getLogger("tidelog")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(errors)
    failure, details = None, ""
    try:
        loop.run_until_complete(world.run())
        if errors.found:
            failure = f"the broker logged: {errors.found[0]}"
    except (Exception, MachineDiedError) as error:  # noqa: BLE001 - every failure is a verdict
        failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
        details = traceback.format_exc()
    finally:
        logger.removeHandler(errors)
        logger.propagate = propagates
    if failure is not None:
        loop.tell("VIOLATED", failure)
    for machine in machines:
        loop.note(_digest(machine.disk))
    if isinstance(world, ClusterWorld):
        loop.note(_digest(world.tier.weather.disk))
        world.tier.close()
    verdict = Verdict(
        seed,
        failure,
        details,
        faults,
        world.faults.done,
        world.history.counts,
        loop.time(),
        loop.steps,
        loop.trace,
        tuple(loop.events),
        brokers,
    )
    loop.close()
    for machine in machines:
        machine.bury()
    return verdict


def _digest(disk: SimDisk) -> str:
    """What is on a disk at the end."""
    digest = hashlib.blake2b(digest_size=16)
    for path, inode in sorted(disk.names.items()):
        digest.update(f"{path} {len(inode.data)}\n".encode())
        digest.update(inode.data)
    return digest.hexdigest()


def shrink(verdict: Verdict, runs_max: int = 60) -> Verdict:
    """The shortest failing run."""

    def again(plan: tuple[Any, ...]) -> Verdict | None:
        shorter = run_seed(verdict.seed, plan, verdict.brokers)
        return shorter if _kind(shorter.failure or "") == _kind(verdict.failure or "") else None

    return shrinking.shrink(verdict, lambda best: best.plan, again, runs_max)


def _kind(failure: str) -> str:
    """The failure without the names and figures in it."""
    return re.sub(r"\S*\d\S*", "", failure)
