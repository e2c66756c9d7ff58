"""Faults, each drawn from a stream of its own: of one machine, which stands still for longer than a
session, its process has no descriptors left; or of all, whose clocks drift, each by its own rate.

A seed that does not draw one runs as if it did not exist.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from sim.descriptors import LACK, LACKING_S, LEFT_MAX, lack_descriptors
from sim.faults import CLOCK_RATE

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFaults

LONG_PAUSE = "long pause"


class Share(NamedTuple):
    """How many seeds have a fault, its amount, and for how many seconds."""

    seeds: float
    amount: tuple[float, float]
    for_s: tuple[float, float]


MACHINE_FAULTS = {
    LONG_PAUSE: Share(0.15, (0, 0), (2, 7)),  # sessions, replicas' lag and transactions run out
    CLOCK_RATE: Share(0.15, (0.99, 1.01), (0, 0)),  # its seconds in a second, from now on
    LACK: Share(0.15, (0, LEFT_MAX), LACKING_S),  # descriptors that are left
}


def draw_machine_faults(
    seed: int | str, brokers: int, plan_s: float
) -> list[tuple[float, str, int, float, float]]:
    """(when, kind, whose, amount, for so long) of each that the seed has."""
    found = []
    for kind, share in MACHINE_FAULTS.items():
        rng = random.Random(f"{seed}:{kind} of one broker")
        if rng.random() < share.seeds:
            node = rng.randint(1, brokers)
            amount, for_s = rng.uniform(*share.amount), rng.uniform(*share.for_s)
            found.append((rng.uniform(0.3, plan_s), kind, node, amount, for_s))
    return found


async def strike_machine(
    faults: ClusterFaults, kind: str, node_id: int, amount: float, for_s: float
) -> None:
    """The whole of one."""
    machine = faults.machines.by_id[node_id]
    if kind == CLOCK_RATE:
        rng = random.Random(f"{faults.world.seed}:{kind}:{amount}")
        for one in faults.machines:
            one.clock.set_rate(rng.uniform(*MACHINE_FAULTS[kind].amount))
        return
    await faults.until_may_strike(node_id)
    if kind == LONG_PAUSE:
        await faults.pause(node_id, for_s)
        return
    with faults.cut_off(node_id):
        await lack_descriptors(machine, round(amount), for_s)
