"""One run: a machine, its clients, the faults of the plan, and the verdict."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

from histories.calls import Loss
from sim.admin import Admin
from sim.checkers import Checkers
from sim.consumers import Consumer
from sim.faults import Faults
from sim.groups import Member, SimpleGroup
from sim.history import History, Violation, require
from sim.observed import Observer, judge_clients
from sim.producers import IdempotentProducer, PlainProducer, Producer
from tidelog.simulation.disk import MachineDiedError, has_names_apart
from tidelog.simulation.machine import COMPACTION, Machine, in_lane
from tidelog.simulation.network import SimNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.faults import Fault
    from sim.history import TopicHistory
    from tidelog.simulation.loop import SimLoop

SERVED_S_MAX = 60.0  # after the last fault, everything is served within this time
GROUPS_S_MAX = 30.0


class World:
    """What all actors of a run share."""

    def __init__(self, loop: SimLoop, seed: int, plan: Sequence[Fault]) -> None:
        self.loop, self.seed = loop, seed
        self.rng = random.Random(f"{seed}:world")
        settings = {} if seed % 2 else COMPACTION
        self.machine = Machine(loop, SimNetwork(loop, seed), seed, settings)
        self.machine.disk.is_apart = has_names_apart(seed)
        self.history = History()
        self.checkers = Checkers(self.machine, self.history)
        self.check_topics = self.checkers.check_topics
        self.faults = Faults(self.machine, plan)
        self.base_topics: list[TopicHistory] = []
        self.producer_ids: set[int] = set()
        self.is_quiet = False  # no fault will come
        self.all_written = False
        self.is_over = False
        self._leaders: dict[tuple[str, int, int], str] = {}
        self._failure: BaseException | None = None
        self._members: list[Member] = []
        self._keeper: asyncio.Task[Any] | None = None
        self.machine.before_death = self._before_death
        loop.after_step = self._after_step
        self.observer = loop.observer = Observer(loop.time)
        self.observer.quiet_since = 0  # nobody else could answer with what was true before

    # -- what actors ask ---------------------------------------------------------------------------

    def base_partitions(self) -> list[tuple[str, int]]:
        """All partitions of the base topics."""
        return [
            (topic.name, index)
            for topic in self.base_topics
            for index in range(topic.partitions_min)
        ]

    def note_leader(self, group: str, generation: int, leader: str, life: int) -> None:
        """A generation has one leader; a restart may use it again if nothing was assigned in it."""
        known = self._leaders.setdefault((group, generation, life), leader)
        require(known == leader, f"{group}: generation {generation} is led by {known} and {leader}")

    # -- the run -----------------------------------------------------------------------------------

    def _before_death(self, how: str) -> None:
        if how == "power":
            self._note_loss()
        try:
            self.checkers.before_death(how)
        except Exception as error:  # noqa: BLE001 - the broker, in whose step it is, may catch it
            self._failure = self._failure or error

    def _note_loss(self) -> None:
        """What was not durable may be gone: an acknowledgement of one broker promises no more."""
        self.observer.losses.append(Loss(self.loop.time(), ("__consumer_offsets", 0)))
        for topic in self.history.topics.values():
            if not topic.is_durable:
                for index in range(topic.partitions_max):
                    place = (topic.topic_id.hex(), index)
                    self.observer.losses.append(Loss(self.loop.time(), place))

    def _after_step(self) -> None:
        if self._failure is not None:
            raise self._failure
        disk = self.machine.disk
        violation = disk.trouble.violation or disk.descriptors.violation
        require(violation is None, violation or "")
        self.checkers.after_step()

    def spawn(self, lane: str, coroutine: Any) -> asyncio.Task[Any]:
        """A task whose failure is the run's."""

        def done(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is not None and self._failure is None:
                self._failure = task.exception()

        task = in_lane(lane, coroutine)
        task.add_done_callback(done)
        return task

    async def run(self) -> None:
        """From an empty disk to the verdict."""
        rng = self.rng
        self._keeper = self.spawn("test", self._keep())
        admin = Admin(self, rng.randint(3, 12))
        await self.served([self.spawn("admin", self._create(admin))], "creating topics")
        writers: list[Producer] = [
            kind(self, f"{name}-{number}", rng.randint(20, 120))
            for kind, name in ((IdempotentProducer, "idempotent"), (PlainProducer, "plain"))
            for number in range(rng.randint(1, 2))
        ]
        readers = [Consumer(self, f"consumer-{number}") for number in range(rng.randint(1, 2))]
        groups = [SimpleGroup(self, "simple-client", "simple")]
        self._members = [
            Member(self, f"member-{number}", "group") for number in range(rng.randint(0, 3))
        ]
        writing = [self.spawn(actor.name, actor.run()) for actor in writers]
        others = [self.spawn(actor.name, actor.run()) for actor in (*readers, *groups)]
        others.append(self.spawn("admin", admin.run()))
        membership = [self.spawn(actor.name, actor.run()) for actor in self._members]
        await self.faults.run()
        self.is_quiet = True
        await self.served(writing, "producing")
        self.all_written = True
        await self.served(others, "consuming, committing and administering")
        await self._stable_groups()
        self.is_over = True
        await self.served(membership, "leaving groups")
        await self._end()

    async def _create(self, admin: Admin) -> None:
        self.base_topics = await admin.create_base_topics()

    async def served(self, tasks: list[asyncio.Task[Any]], what: str) -> None:
        _, waiting = await asyncio.wait(tasks or [self._nothing()], timeout=SERVED_S_MAX)
        names = sorted(task.get_name() for task in waiting)
        require(not waiting, f"{what} is not done {SERVED_S_MAX:g} s after the last fault: {names}")

    def _nothing(self) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(asyncio.sleep(0))

    async def _stable_groups(self) -> None:
        """All members beat in one generation, and have all partitions between them."""
        end_s = self.loop.time() + GROUPS_S_MAX
        wanted = sorted(self.base_partitions())
        while self._members:
            if (
                all(member.beats > 1 for member in self._members)
                and len({member.generation for member in self._members}) == 1
                and sorted(p for m in self._members for p in m.assigned) == wanted
            ):
                return
            require(self.loop.time() < end_s, f"no stable group after {GROUPS_S_MAX:g} s")
            await asyncio.sleep(0.1)

    async def _keep(self) -> None:
        """Keep the broker running: who dies is started again after a while."""
        machine, rng = self.machine, random.Random(f"{self.seed}:keeper")
        while True:
            if await machine.start():
                self.checkers.after_start()
                await machine.ended()
            await asyncio.sleep(rng.choice((0.01, 0.1, 0.5)))

    async def _end(self) -> None:
        """Check the broker that nobody uses any more, stop it, start it once more."""
        machine, checkers = self.machine, self.checkers
        await asyncio.sleep(3)
        require(machine.is_ready, "the broker does not run")
        checkers.check_quiet()
        checkers.check_live()
        checkers.check_contents()
        checkers.count_compacted()
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.sleep(0)
        for _ in range(2):
            require(await machine.stop(), "an orderly stop without faults has failed")
            require(await machine.start(), "the broker does not start after an orderly stop")
            checkers.after_start()
            checkers.check_contents()
        await machine.stop()
        self._check_failures()
        judge_clients(self.observer, self.history.topics.values())

    def _check_failures(self) -> None:
        for failure in self.loop.failures:
            error = failure.get("exception")
            if not isinstance(error, MachineDiedError):
                raise Violation(f"{failure.get('message')}: {error!r}") from error


class BrokerErrors(logging.Handler):
    """Errors that the broker logs with a traceback are bugs, except those of the disk."""

    def __init__(self, is_planned: Callable[[str], bool] = lambda _message: False) -> None:
        """`is_planned` knows messages that a fault explains."""
        super().__init__(logging.ERROR)
        self.is_planned = is_planned
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep those that nobody planned."""
        error = record.exc_info[1] if record.exc_info else None
        cause = None if error is None else error.__cause__
        if isinstance(error, (OSError, MachineDiedError, type(None))) or isinstance(cause, OSError):
            return
        if not self.is_planned(record.getMessage()):
            self.found.append(f"{record.getMessage()}: {error!r}")
