"""Static members (KIP-345): processes with a group.instance.id that die and come back, and twins.

The group forms before the faults begin. If its sessions are long it is steady from then on:
whatever happens to brokers and processes, its generation stays. If they are short it is steady when
the faults are over. The clients' histories judge that (`histories/members.py`).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from sim.cluster.groups import NOT_NOW, ClusterMember
from sim.cluster.work.part import Part
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode

GROUP = "static"
SESSIONS_MS = (1500, 300_000, 300_000)  # the long ones outlast every run
LIFE_S = (0.2, 2.5)
AWAY_S = (0.0, 0.1, 0.5, 2.0)
STABLE_S_MAX = 30.0
TWIN = 0.3


class Process(ClusterMember):
    """One process of an instance. It ends when it is killed, or fenced by another one."""

    def __init__(self, part: StaticMembers, number: int, process: int) -> None:
        super().__init__(part.world, f"static-{number}", GROUP)
        self.rng = random.Random(f"{part.world.seed}:static-{number}.{process}")
        self.instance_id, self.session_ms = f"instance-{number}", part.session_ms
        self.is_flighty = self.is_fenced = self._is_in = False
        self._to_sync: list[str] | None = None  # it has joined, and the members if it leads
        self._task = part.world.spawn(self.name, self.run())

    async def run(self) -> None:
        """Join, and stay. A request without an answer is no reason to join again."""
        while not self.is_fenced:
            try:
                if self._is_in:
                    await self._live()
                elif self._to_sync is not None:
                    self._is_in = await self._sync(self._to_sync)
                else:
                    await self._join()
            except Lost:
                self.beats = 0
        self.client.close()

    def kill(self) -> None:
        """It is gone without a word."""
        self._task.cancel()
        self.client.close()

    @property
    def is_settled(self) -> bool:
        """Whether it is in the group and has been heard."""
        return self._is_in and self.beats > 1

    async def _sync(self, members: list[str]) -> bool:
        self._to_sync = members
        self._is_in = await super()._sync(members)
        return self._is_in

    async def _trouble(self, error: ErrorCode, what: str) -> None:
        if error not in NOT_NOW:
            self._is_in, self._to_sync = False, None
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
            self.world.history.count("processes fenced")
            return
        await super()._trouble(error, what)


class StaticMembers(Part):
    """The instances, their processes, and the end: one comes back, one has a twin."""

    name = "static members"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.session_ms = self.rng.choice(SESSIONS_MS)
        self._processes: list[Process] = []  # all
        self._current: list[Process] = []  # the last one of each instance

    async def create(self) -> None:
        """The group."""
        for number in range(self.rng.randint(2, 4)):
            self.world.clients.append(f"static-{number}")
            self._current.append(self._begin(number))
        await self._until_stable()
        if self.session_ms > SESSIONS_MS[0]:
            self._is_steady_from_now()

    def start(self) -> None:
        """Processes begin to die."""
        for number in range(len(self._current)):
            life = self.world.spawn(f"static-{number} driver", self._lives(number))
            self.clients.append(life)

    async def finish(self) -> None:
        """A process that comes back finds its place, and of two the older one is fenced."""
        await super().finish()
        await self._until_stable()
        self._is_steady_from_now()
        number = self.rng.randrange(len(self._current))
        self._current[number].kill()
        self._current[number] = self._begin(number)
        await self._until_stable()
        older = self._current[number]
        self._current[number] = self._begin(number)
        await self._until_stable()
        await asyncio.sleep(0.5)  # it beats more often
        require(older.is_fenced, f"{older.instance_id} has a new process, and the old one goes on")
        await self._current[number].check()
        for process in self._processes:
            process.kill()

    def _begin(self, number: int) -> Process:
        self._processes.append(Process(self, number, len(self._processes)))
        return self._processes[-1]

    def _is_steady_from_now(self) -> None:
        self.world.observer.steady.setdefault(GROUP, self.world.loop.time())

    async def _lives(self, number: int) -> None:
        """Processes of an instance, one after the other, sometimes two at a time."""
        rng = random.Random(f"{self.world.seed}:lives of static-{number}")
        while not self.world.is_quiet:
            await asyncio.sleep(rng.uniform(*LIFE_S))
            if rng.random() < TWIN:
                self.world.history.count("twins")
            else:
                self._current[number].kill()
                await asyncio.sleep(rng.choice(AWAY_S))
                self.world.history.count("static members that come back")
            self._current[number] = self._begin(number)

    async def _until_stable(self) -> None:
        await self.world.within(STABLE_S_MAX, "the static group is not stable", self._instability)

    def _instability(self) -> str | None:
        for number, process in enumerate(self._current):
            if process.is_fenced:  # by a request to join that it made, or another, was late with
                self._current[number] = self._begin(number)
        members = self._current
        if (
            all(member.is_settled for member in members)
            and len({member.generation for member in members}) == 1
            and sorted(each for member in members for each in member.assigned)
            == sorted(self.world.base_partitions())
        ):
            return None
        return str([(m.instance_id, m.generation, m.beats, m.assigned) for m in members])
