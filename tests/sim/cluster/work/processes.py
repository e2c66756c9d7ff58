"""A kind of work whose clients are processes that begin, leave or are killed, and come back."""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from sim.cluster.work.part import Part

if TYPE_CHECKING:
    from sim.cluster.member_process import MemberProcess

LIFE_S = (0.3, 3.0)
AWAY_S = (0.0, 0.1, 0.5, 2.0)
LEAVES = 0.4
TWIN = 0.3  # of the processes of an instance: the next one comes while it lives


class Processes(Part):
    """One process after the other in each of several places."""

    label: ClassVar[str]  # of the clients, which are label-0, label-1, ...
    counted_as: ClassVar[str]

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.current: dict[int, MemberProcess] = {}
        self.twins: list[MemberProcess] = []  # they live, and others have their places
        self.begun = 0

    @abstractmethod
    def new_process(self, number: int) -> MemberProcess:
        """The next process in a place. `begun` tells those of one place apart."""

    def start_processes(self, places: int) -> None:
        """Processes begin, and die, until no fault will come."""
        for number in range(places):
            life = self.world.spawn(f"{self.label}-{number} driver", self._lives(number))
            self.clients.append(life)

    def begin(self, number: int) -> MemberProcess:
        """The next process in a place runs."""
        self.begun += 1
        member = self.new_process(number)
        member.begin()
        self.current[number] = member
        return member

    async def _lives(self, number: int) -> None:
        """Processes, one after the other."""
        rng = random.Random(f"{self.world.seed}:lives of {self.label}-{number}")
        await asyncio.sleep(rng.choice(AWAY_S))
        member = self.begin(number)
        while not self.world.is_quiet:
            await asyncio.sleep(rng.uniform(*LIFE_S))
            if member.is_fenced or rng.random() < 0.5:
                continue
            if member.instance_id is not None and rng.random() < TWIN:
                self.twins.append(member)
            elif rng.random() < LEAVES:
                await self.until_left(member)
                member.kill()
            else:
                member.kill()
            self.world.history.count(f"{self.counted_as} that come back")
            await asyncio.sleep(rng.choice(AWAY_S))
            member = self.begin(number)

    async def until_left(self, member: MemberProcess) -> None:
        """A process ends in order."""
        member.is_leaving = True
        await member.ended()
        await member.leave()
