"""What the control door costs producers when it is open and nothing calls."""

from __future__ import annotations

import random
import statistics
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
CLOSED, OPEN, ANOTHER = "p99 closed", "p99 open", "another closed"
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
    what else the machine does meets all. The two without differ by chance alone."""

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
        """99th percentile from before Produce to the acknowledgement: the medians of all turns, and
        of what two that follow each other make of it."""
        found: dict[str, list[float]] = {CLOSED: [], OPEN: [], ANOTHER: []}
        with (
            TierTopic(self._closed, SEGMENTS) as closed,
            TierTopic(peer, SEGMENTS) as opened,
            TierTopic(self._another, SEGMENTS) as another,
        ):
            kinds = {CLOSED: closed, OPEN: opened, ANOTHER: another}
            for _ in range(max(1, round(self._turns * scale))):
                for kind in _chance.sample(list(kinds), len(kinds)):
                    found[kind].append(kinds[kind].run("pace", **self._options)["p99_us"])

        def by_closed(kind: str) -> float:
            pairs = zip(found[kind], found[CLOSED], strict=True)
            return statistics.median(one / other for one, other in pairs)

        return {
            **{kind: statistics.median(found[kind]) for kind in (CLOSED, OPEN)},
            "open by closed": by_closed(OPEN),
            "closed by closed": by_closed(ANOTHER),
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
        case = IdleDoor(closed, another, rate=1000, seconds=2, turns=12)
        run_rounds(plan, [case], [opened])
    finally:
        for peer in (closed, another, opened):
            peer.remove()
    return [opened.name]
