"""One run of a cluster: machines, clients, the faults of the plan, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.admin import ClusterAdmin, ClusterGroup
from sim.cluster.checkers import ClusterCheckers
from sim.cluster.client import ClusterClient
from sim.cluster.consumers import ClusterConsumer
from sim.cluster.faults import ClusterFaults
from sim.cluster.machines import Machines
from sim.cluster.producers import (
    ClusterProducer,
    IdempotentClusterProducer,
    PlainClusterProducer,
)
from sim.disk import MachineDiedError
from sim.history import History, Violation, require
from sim.machine import in_lane
from sim.wire import Lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.cluster.faults import ClusterFault
    from sim.history import TopicHistory
    from sim.loop import SimLoop
    from sim.machine import Machine
    from tidelog_protocol.schema import Message

START_S_MAX = 30.0
SERVED_S_MAX = 60.0  # after the last fault, everything is served within this time
WHOLE_S_MAX = 30.0  # and then everybody is caught up and in sync within this


class ClusterWorld:
    """What all actors of a run share."""

    def __init__(
        self, loop: SimLoop, seed: int, brokers: int, plan: Sequence[ClusterFault]
    ) -> None:
        self.loop, self.seed = loop, seed
        self.rng = random.Random(f"{seed}:world")
        self.machines = Machines(loop, seed, brokers)
        self.history = History()
        self.checkers = ClusterCheckers(self.machines, self.history)
        self.faults = ClusterFaults(self, plan)
        self.base_topics: list[TopicHistory] = []
        self.producer_ids: set[int] = set()
        self.clients: list[str] = ["admin"]
        self.is_quiet = False  # no fault will come
        self.all_written = False
        self._failure: BaseException | None = None
        self._keepers: list[asyncio.Task[Any]] = []
        for machine in self.machines:
            machine.before_death = lambda how, it=machine: self.checkers.before_death(it, how)
        loop.after_step = self._after_step

    @property
    def deaths(self) -> int:
        """Lives that have ended."""
        return sum(len(machine.deaths) for machine in self.machines)

    async def ask_in_vain(self, node_id: int, message: Message, version: int) -> None:
        """Ask a broker for something, whatever comes of it."""
        client = ClusterClient(self.machines, "admin", self.rng)
        with contextlib.suppress(Lost):
            await client.ask(node_id, message, version)
        client.close()

    # -- the run -----------------------------------------------------------------------------------

    def _after_step(self) -> None:
        if self._failure is not None:
            raise self._failure
        self.checkers.after_step()

    def _start(self, lane: str, coroutine: Any) -> asyncio.Task[Any]:
        """A task whose failure is the run's."""

        def done(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is not None and self._failure is None:
                self._failure = task.exception()

        task = in_lane(lane, coroutine)
        task.set_name(lane)
        task.add_done_callback(done)
        return task

    async def run(self) -> None:
        """From empty disks to the verdict."""
        rng = self.rng
        self._keepers = [self._start("test", self._keep(machine)) for machine in self.machines]
        await self._within(
            START_S_MAX, "a new cluster is not ready", lambda: self._unready() or self._lag()
        )
        admin = ClusterAdmin(self, rng.randint(2, 8))
        await self._served([self._start("admin", self._create(admin))], "creating topics")
        writers: list[ClusterProducer] = [
            kind(self, f"{name}-{number}", rng.randint(20, 150))
            for kind, name in (
                (IdempotentClusterProducer, "idempotent"),
                (PlainClusterProducer, "plain"),
            )
            for number in range(rng.randint(1, 2))
        ]
        readers = [ClusterConsumer(self, f"consumer-{n}") for n in range(rng.randint(1, 2))]
        group = ClusterGroup(self, "group-client", "group")
        self.clients += [actor.name for actor in (*writers, *readers, group)]
        writing = [self._start(actor.name, actor.run()) for actor in writers]
        others = [self._start(actor.name, actor.run()) for actor in (*readers, group)]
        others.append(self._start("admin", admin.run()))
        await self.faults.run()
        self.is_quiet = True
        await self._served(writing, "producing")
        self.all_written = True
        await self._served(others, "consuming, committing and administering")
        await self._end(group)

    async def _create(self, admin: ClusterAdmin) -> None:
        self.base_topics = await admin.create_base_topics()

    async def _served(self, tasks: list[asyncio.Task[Any]], what: str) -> None:
        _, waiting = await asyncio.wait(tasks, timeout=SERVED_S_MAX)
        names = sorted(task.get_name() for task in waiting)
        require(
            not waiting,
            f"{what} is not done {SERVED_S_MAX:g} s after the last fault: {names}; {self._lag()}",
        )

    async def _within(self, seconds: float, what: str, why_not: Any) -> None:
        end_s = self.loop.time() + seconds
        while (reason := why_not()) is not None:
            require(self.loop.time() < end_s, f"{what} after {seconds:g} s: {reason}")
            await asyncio.sleep(0.1)

    def _unready(self) -> str | None:
        missing = [machine.host for machine in self.machines if not machine.is_ready]
        return f"{missing} do not run" if missing else None

    def _lag(self) -> str | None:
        return self._unready() or self.checkers.lag()

    async def _keep(self, machine: Machine) -> None:
        """Keep a broker running: who dies is started again after a while."""
        rng = random.Random(f"{self.seed}:{machine.host}:keeper")
        while True:
            if await machine.start():
                self.checkers.after_start(machine)
                await machine.ended()
            await asyncio.sleep(rng.choice((0.01, 0.1, 0.5, 2.0)))

    async def _end(self, group: ClusterGroup) -> None:
        """Everybody catches up; the whole cluster is stopped, and has everything again."""
        what = "the cluster is not whole"
        await self._within(WHOLE_S_MAX, what, self._lag)
        self.checkers.check_contents()
        await self._served([self._start(group.name, group.check())], "looking at offsets")
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.sleep(0)
        stops = [in_lane("test", machine.stop()) for machine in self.machines]
        await asyncio.wait(stops)
        self._keepers = [self._start("test", self._keep(machine)) for machine in self.machines]
        await self._within(WHOLE_S_MAX, f"after an orderly stop of all {what}", self._lag)
        self.checkers.check_contents()
        await self._served([self._start(group.name, group.check())], "looking at offsets again")
        for failure in self.loop.failures:
            error = failure.get("exception")
            if not isinstance(error, MachineDiedError):
                raise Violation(f"{failure.get('message')}: {error!r}") from error
