"""A process that runs out of file descriptors, as a fault of a plan.

Each open file of a life holds a descriptor, one that was viewed a second one, as a mapping does.
The files take them from each other by the rules of the real ones (`OpenFiles`). While descriptors
are lacking, whatever needs a new one gets EMFILE once no file has one to give up, and connections
to the machine are reset.

Drawn by a chance of its own, so that the other faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
import errno
import random
from typing import TYPE_CHECKING

from tidelog_storage.open_files import OpenFiles, lacks_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.disk_files import SimFile
    from sim.machine import Machine

LACK = "no descriptors"  # its amount: how many there are
SEEDS_WITH_IT = 0.25
FILES_MAX = 6
LEFT_MAX = 3
LACKING_S = (0.3, 1.5)
OPENED_AGAIN_S = 1.2  # then the logs that could not be opened are


class Descriptors:
    """Those of the process on one machine."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.taken = 0
        self.files = OpenFiles(FILES_MAX)
        self.violation: str | None = None  # a broker took the lack of them for a failed disk
        self.on_violation: Callable[[str], None] = lambda _violation: None

    def end_life(self) -> None:
        """All are given back."""
        self.taken = 0
        self.files = OpenFiles(FILES_MAX)

    def calm(self) -> None:
        """There are enough."""
        self.limit = None

    def use(self, file: SimFile, wanted: int = 1) -> None:
        """See that a file holds as many as it needs."""
        file.is_recent = True
        if file.descriptors >= wanted:
            return
        self.files.remove(file)  # a call that uses it keeps what it has
        try:
            while file.descriptors < wanted:
                self.files.retry(self._take, 1)
                file.descriptors += 1
        finally:
            if file.descriptors:
                self.files.add(file)

    def use_for_a_moment(self) -> None:
        """Something is opened, and closed again by the same call."""
        self.files.retry(self._take, 0)

    def _take(self, count: int) -> None:
        if self.limit is not None and self.taken >= self.limit:
            raise OSError(errno.EMFILE, "simulated lack of descriptors")
        self.taken += count

    def judge(self, failure: BaseException | None) -> None:
        """A broker ended for this reason."""
        if lacks_descriptors(failure) or lacks_descriptors(getattr(failure, "__cause__", None)):
            self.violation = f"a broker without descriptors took its disk for broken: {failure}"
            self.on_violation(self.violation)


def draw_lack(seed: int | str, plan_s: float) -> list[tuple[float, str, float, float]]:
    """(when, kind, how many are left, for so long), if a seed has it."""
    rng = random.Random(f"{seed}:descriptors")
    if rng.random() >= SEEDS_WITH_IT:
        return []
    return [
        (rng.uniform(0.3, plan_s), LACK, rng.randint(0, LEFT_MAX), rng.uniform(*LACKING_S))
        for _ in range(rng.randint(1, 2))
    ]


async def lack_descriptors(machine: Machine, left: int, for_s: float) -> None:
    """So many descriptors for files, and none for connections, for a while."""
    machine.disk.descriptors.limit = left
    machine.network.crowded.add(machine.host)
    await asyncio.sleep(for_s)
    machine.network.crowded.discard(machine.host)
    machine.disk.descriptors.calm()
    await asyncio.sleep(OPENED_AGAIN_S)
