"""What the control door costs producers when it is open and nothing calls."""

from __future__ import annotations

import math
import random
import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tidelog_bench.cases import Case
from tidelog_bench.loads.tier import TierTopic
from tidelog_bench.peers.address import free_port
from tidelog_bench.peers.tidelog import Tidelog
from tidelog_bench.rounds import run_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog_bench.peers.peer import Served
    from tidelog_bench.rounds import Plan

__all__ = ["CONTROL_NAME", "ControlledTidelog", "IdleDoor", "measure_control"]

CONTROL_NAME = "control door: produce"
CLOSED, OPEN, ANOTHER = "closed", "open", "another closed"
RECORD_BYTES = 1024
SEGMENTS = {"segment.bytes": 64 << 20}

_chance = random.Random(1)


class ControlledTidelog(Tidelog):
    """A broker with its control door open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.door = f"127.0.0.1:{free_port()}"

    def command(self) -> Sequence[str]:
        """Take control calls too; the door opens before the broker starts."""
        return [*super().command(), "--control", self.door]


class IdleDoor(Case):
    """Produce at a steady rate to a broker with the door open and to two without, in short turns:
    what else the machine does meets all. The two without differ by chance alone.

    The figures compare what follows each other: the median difference, and the bounds between which
    chance leaves it 95 times of 100. The door costs nothing measurable if 0 is between them.
    """

    warm_up_share = 0.2
    name = CONTROL_NAME

    def __init__(
        self, closed: Served, another: Served, *, rate: int, seconds: int, turns: int
    ) -> None:
        """`rate` is in records a second."""
        self.megabytes = 3 * rate * RECORD_BYTES * seconds * turns // 1_000_000
        self._closed, self._another = closed, another
        self._options = {"size": RECORD_BYTES, "rate": rate, "count": rate * seconds}
        self._turns = turns

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """99th percentile from before Produce to the acknowledgement, and the broker's CPU for each
        record."""
        brokers = {CLOSED: self._closed, OPEN: peer, ANOTHER: self._another}
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in brokers}
        with ExitStack() as stack:
            topics = {
                kind: stack.enter_context(TierTopic(broker, SEGMENTS))
                for kind, broker in brokers.items()
            }
            for _ in range(max(1, round(self._turns * scale))):
                for kind in _chance.sample(list(brokers), len(brokers)):
                    before = brokers[kind].cpu_seconds()
                    p99 = topics[kind].run("pace", **self._options)["p99_us"]
                    spent = brokers[kind].cpu_seconds() - before
                    found[kind].append((p99, 1e6 * spent / self._options["count"]))
        figures: dict[str, float] = {}
        for index, what in enumerate(("p99", "CPU")):
            of = {kind: [turn[index] for turn in turns] for kind, turns in found.items()}
            figures |= {f"{what} {kind}": statistics.median(of[kind]) for kind in (CLOSED, OPEN)}
            for kind in (OPEN, ANOTHER):
                figures |= _difference(f"{what} {kind} less closed", of[kind], of[CLOSED])
        return figures


def _difference(name: str, ones: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """The median of the differences, and the order statistics that bound it at 95 %."""
    sorted_ = sorted(one - other for one, other in zip(ones, others, strict=True))
    count = len(sorted_)
    rank = max(0, int(count / 2 - 0.98 * math.sqrt(count)))
    return {
        name: statistics.median(sorted_),
        f"{name}, at least": sorted_[rank],
        f"{name}, at most": sorted_[count - 1 - rank],
    }


def measure_control(plan: Plan) -> list[str]:
    """Run the case; return the peers that ran."""
    if plan.only not in CONTROL_NAME or (plan.peers and Tidelog.name not in plan.peers):
        return []
    closed = Tidelog(plan.folder / "door-closed")
    another = Tidelog(plan.folder / "door-closed-too")
    opened = ControlledTidelog(plan.folder / "door-open")
    try:
        for peer in (closed, another, opened):
            peer.start()
        case = IdleDoor(closed, another, rate=1000, seconds=1, turns=30)
        run_rounds(plan, [case], [opened])
    finally:
        for peer in (closed, another, opened):
            peer.remove()
    return [opened.name]
