"""Faults: a plan drawn from the seed, and what each word of it does to the machine.

Every fault carries its own moment and figures, so that leaving one out (to find the shortest plan
that still fails) does not change the others.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from sim.descriptors import LACK, draw_lack, lack_descriptors
from sim.failing_disks import DISK_FAILURES, draw_disk_failures, fail_disk
from tidelog.simulation.disk import NAMES_APART
from tidelog.simulation.machine import CALM_DISK_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.simulation.machine import Machine

PLAN_S = 5.0
FAULTS_IN_A_PLAN = (2, 14)
CALM_NETWORK_S = (0.00005, 0.001)
CLOCK_RATE = "clock rate"
SEEDS_WITH_A_RATE = 0.2
SKEW_MS_MAX = 1_200_000  # together far below message.timestamp.after.max.ms


class Fault(NamedTuple):
    """What happens at `at_s`; `amount` and `for_s` mean what the kind makes of them."""

    at_s: float
    kind: str
    amount: float
    for_s: float

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s {self.kind} {self.amount:g} for {self.for_s:.3f} s"


# kind: weight, smallest and largest amount, and what the amount is
KINDS: dict[str, tuple[int, float, float]] = {
    "kill": (3, 0, 0),
    "kill inside": (4, 1, 60),  # file operations until then
    "power failure": (3, 0, 0),
    "power failure inside": (3, 1, 60),
    "restart": (2, 0, 0),
    "slow disk": (2, 0.02, 0.4),  # seconds a sync takes at most
    "full disk": (2, 0, 2_500),  # bytes that still fit
    "reset": (3, 1, 6),  # connections
    "clock jump": (1, -SKEW_MS_MAX / 6, SKEW_MS_MAX / 6),  # milliseconds
    "slow network": (1, 0.01, 0.2),  # seconds a write travels at most
}

FAULTS = (*KINDS, *DISK_FAILURES, LACK, CLOCK_RATE, NAMES_APART)
"""All that a run of one broker may have, as `docs/faults.md` lists them."""


def draw_plan(seed: int | str) -> list[Fault]:
    """The faults of a seed, by time."""
    rng = random.Random(f"{seed}:faults")
    kinds, weights = list(KINDS), [weight for weight, _, _ in KINDS.values()]
    plan = []
    for _ in range(rng.randint(*FAULTS_IN_A_PLAN)):
        kind = rng.choices(kinds, weights)[0]
        _, low, high = KINDS[kind]
        for_s = rng.uniform(0.2, 1.5)
        plan.append(Fault(rng.uniform(0.1, PLAN_S), kind, round(rng.uniform(low, high), 3), for_s))
    plan += [Fault(at_s, kind, 0, for_s) for at_s, kind, for_s in draw_disk_failures(seed, PLAN_S)]
    plan += [Fault(*row) for row in draw_lack(seed, PLAN_S)]
    plan += [Fault(*row) for row in _draw_clock_rate(seed)]
    return sorted(plan)


def _draw_clock_rate(seed: int | str) -> list[tuple[float, str, float, float]]:
    """By a chance of its own; from now on, so many of its seconds are a second."""
    rng = random.Random(f"{seed}:{CLOCK_RATE}")
    if rng.random() >= SEEDS_WITH_A_RATE:
        return []
    return [(rng.uniform(0.3, PLAN_S), CLOCK_RATE, rng.uniform(0.99, 1.01), 0)]


class Faults:
    """Brings a plan about, one fault after the other or several at a time."""

    def __init__(self, machine: Machine, plan: Sequence[Fault]) -> None:
        self.machine, self.plan = machine, plan
        self.done: dict[str, int] = {}

    async def run(self) -> None:
        """All of the plan; afterwards the machine is as good as new."""
        start_s = self.machine.loop.time()
        ends: list[asyncio.Task[None]] = []
        for fault in self.plan:
            await asyncio.sleep(max(0.0, start_s + fault.at_s - self.machine.loop.time()))
            self.machine.loop.tell("fault", str(fault))
            self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
            task = asyncio.get_running_loop().create_task(self._do(fault))
            ends.append(task)
        if ends:
            await asyncio.wait(ends)
            for task in ends:
                task.result()
        self.calm()

    def calm(self) -> None:
        """No fault any more; the clock stays where it is."""
        machine = self.machine
        machine.disk_delay_s = CALM_DISK_S
        machine.disk.capacity_bytes = None
        machine.disk.calm()
        machine.network.latency_s = CALM_NETWORK_S

    async def _do(self, fault: Fault) -> None:
        machine = self.machine
        match fault.kind:
            case "kill":
                machine.die("kill")
            case "power failure":
                machine.die("power")
            case "kill inside" | "power failure inside":
                machine.death_inside = "kill" if fault.kind == "kill inside" else "power"
                machine.disk.die_at = machine.disk.operations + int(fault.amount)
            case "restart":
                if machine.is_ready:
                    await machine.stop()
            case "reset":
                for index in range(int(fault.amount)):
                    machine.network.reset(index * 7)
            case "clock jump":
                skew_ms = machine.clock.skew_ms + int(fault.amount)
                machine.clock.skew_ms = max(-SKEW_MS_MAX, min(SKEW_MS_MAX, skew_ms))
            case kind if kind in DISK_FAILURES:
                await fail_disk(machine.disk.trouble, kind, fault.for_s)
            case "clock rate":
                machine.clock.set_rate(fault.amount)
            case kind if kind == LACK:
                await lack_descriptors(machine, int(fault.amount), fault.for_s)
            case _:
                await self._for_a_while(fault)

    async def _for_a_while(self, fault: Fault) -> None:
        machine = self.machine
        match fault.kind:
            case "slow disk":
                machine.disk_delay_s = (fault.amount / 4, fault.amount)
                await asyncio.sleep(fault.for_s)
                machine.disk_delay_s = CALM_DISK_S
            case "full disk":
                machine.disk.capacity_bytes = machine.disk.used_bytes() + int(fault.amount)
                await asyncio.sleep(fault.for_s)
                machine.disk.capacity_bytes = None
            case "slow network":
                machine.network.latency_s = (fault.amount / 10, fault.amount)
                await asyncio.sleep(fault.for_s)
                machine.network.latency_s = CALM_NETWORK_S
            case _:
                raise AssertionError(fault)
