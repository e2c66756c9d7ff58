"""One run of a cluster: machines, clients, the faults of the plan, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.admin import ClusterAdmin
from sim.cluster.checkers import ClusterCheckers
from sim.cluster.client import ClusterClient
from sim.cluster.consumers import ClusterConsumer
from sim.cluster.controller_steps import partitions_per_step, steps_of
from sim.cluster.faults import ClusterFaults
from sim.cluster.file_rot import FileRot
from sim.cluster.groups import ClusterGroup, ClusterMember
from sim.cluster.growth import Operator
from sim.cluster.header_rot import header_rot_settings
from sim.cluster.in_sync_checkers import may_lead
from sim.cluster.metadata_rot import MetadataRot
from sim.cluster.moves import Mover
from sim.cluster.producers import (
    ClusterProducer,
    IdempotentClusterProducer,
    PlainClusterProducer,
)
from sim.cluster.promises import Promises
from sim.cluster.remote_rot import RemoteRot, remote_rot_settings
from sim.cluster.rot import Rot
from sim.cluster.tier import Tier, TierAdmin
from sim.cluster.transactions import Transactions
from sim.cluster.transactions_habits import habits_of
from sim.cluster.work.workload import Workload
from sim.history import History, Violation, require
from sim.observed import Observer, judge_clients
from sim.wire import Lost
from tidelog.simulation.disk import MachineDiedError
from tidelog.simulation.machine import in_lane
from tidelog.simulation.machines import Machines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.cluster.faults import ClusterFault
    from sim.history import TopicHistory
    from tidelog.simulation.loop import SimLoop
    from tidelog.simulation.machine import Machine
    from tidelog_protocol.schema import Message

START_S_MAX = 30.0
SERVED_S_MAX = 60.0  # after the last fault, everything is served within this time
WHOLE_S_MAX = 30.0  # and then everybody is caught up and in sync within this
GROUPS_S_MAX = 30.0
SKEW_MS_MAX = 3000  # between any clock and the right time, from the start


class ClusterWorld:
    """What all actors of a run share."""

    is_about_transactions = False  # then a run has them whatever its seed says
    has_tier: bool | None = None  # None: its seed says
    kinds_of_work: tuple[str, ...] | None = None  # None: its seed says
    transaction_habits = staticmethod(habits_of)

    def __init__(
        self, loop: SimLoop, seed: int, brokers: int, plan: Sequence[ClusterFault]
    ) -> None:
        self.loop, self.seed = loop, seed
        self.rng = random.Random(f"{seed}:world")
        self.history = History()
        self.transactions = Transactions(self)
        self.tier = Tier(self)
        self.work = Workload(self)
        self.machines = Machines(loop, seed, brokers, self.settings(brokers))
        self.checkers = ClusterCheckers(self.machines, self.history)
        self.checkers.tier = self.tier if self.tier.is_on else None
        self.checkers.look_further = self.work.look
        self.promises = Promises(self.machines, self.history)
        self.rot = Rot(self)
        self.remote_rot = RemoteRot(self)
        self.faults = ClusterFaults(self, plan)
        self.base_topics: list[TopicHistory] = []
        self.metadata_rot = MetadataRot(self)
        self.file_rot = FileRot(self)
        self.producer_ids: set[int] = set()
        self.clients: list[str] = ["admin", "mover", "operator", "tier-admin"]
        self.leaving: set[int] = set()  # brokers that get no replicas any more
        self.away: dict[int, asyncio.Event] = {}  # brokers that stay down until it is set
        self.are_voters_in_doubt = False  # a change of theirs is on its way, or may be
        self.is_quiet = False  # no fault will come
        self.all_written = False
        self.is_over = False
        self._failure: BaseException | None = None
        self._keepers: dict[int, asyncio.Task[Any]] = {}
        self._generations: dict[tuple[Any, ...], str] = {}  # their leaders
        self._members: list[ClusterMember] = []
        for machine in self.machines:
            self._watch(machine)
        loop.after_step = self._after_step
        self.observer = loop.observer = Observer(loop.time)

    def _watch(self, machine: Machine) -> None:
        def before_death(how: str) -> None:
            try:
                self.checkers.before_death(machine, how)
                self.rot.before_death(machine)
                self.promises.before_death(machine.config.node_id, how)
            except Exception as error:  # noqa: BLE001 - the broker, in whose step it is, may catch it
                self._failure = self._failure or error

        def on_violation(violation: str) -> None:
            self._failure = self._failure or Violation(violation)

        machine.before_death = before_death
        machine.disk.trouble.on_violation = on_violation
        machine.disk.descriptors.on_violation = on_violation
        machine.clock.skew_ms = self.rng.randint(-SKEW_MS_MAX, SKEW_MS_MAX)

    def settings(self, brokers: int) -> dict[str, str]:
        """Of all brokers, beside those of every cluster."""
        parts = (self.transactions.habits.settings(brokers), self.tier.settings(brokers))
        scrubs = remote_rot_settings(self.seed) if self.tier.is_on else {}
        if brokers >= 3:
            scrubs = {**scrubs, **header_rot_settings(self.seed)}
        return {**parts[0], **parts[1], **self.work.settings(), **scrubs}

    @property
    def deaths(self) -> int:
        """Lives that have ended."""
        return sum(len(machine.deaths) for machine in self.machines.all)

    def base_partitions(self) -> list[tuple[str, int]]:
        """The partitions that the base topics began with."""
        return [
            (topic.name, index)
            for topic in self.base_topics
            for index in range(topic.partitions_first)
        ]

    def note_leader(self, group: str, generation: int, leader: str, term: Any) -> None:
        """A generation has one leader, as long as it has one coordinator."""
        if term is not None:
            known = self._generations.setdefault((group, generation, term), leader)
            require(
                known == leader, f"{group}: generation {generation} is led by {known} and {leader}"
            )

    # -- brokers that come and go ------------------------------------------------------------------

    def add_broker(self) -> int:
        """A new broker on a machine of its own, kept running from now on; its id."""
        node_id = len(self.machines.all) + 1
        machine = self.machines.add(node_id)
        self._watch(machine)
        self._keepers[node_id] = self.spawn("test", self._keep(machine))
        return node_id

    async def take_away(self, node_id: int) -> bool:
        """Stop a broker for good, and take its machine away.

        If it turns out that it alone has something, created at the last moment, it is started
        again; then False.
        """
        machine = self.machines.by_id[node_id]
        self._keepers.pop(node_id).cancel()
        await asyncio.sleep(0)
        if machine.server is not None and machine.is_ready:
            await in_lane("test", machine.stop())
        machine.die("taken away")  # if it was starting or stood still
        what = f"the controller misses broker {node_id}"  # until then it may put replicas there
        await self.within(SERVED_S_MAX, what, lambda: self._alive(node_id))
        image = self.machines.image()
        topics = () if image is None else image.topics.values()
        if any(may_lead(state) == (node_id,) for topic in topics for state in topic.partitions):
            self._keepers[node_id] = self.spawn("test", self._keep(machine))
            return False
        del self.machines.by_id[node_id]
        return True

    async def ask_in_vain(self, node_id: int, message: Message, version: int) -> None:
        """Ask a broker for something, whatever comes of it."""
        client = ClusterClient(self.machines, "admin", self.rng)
        with contextlib.suppress(Lost):
            await client.ask(node_id, message, version)
        client.close()

    def _alive(self, node_id: int) -> str | None:
        image = self.machines.image()
        if image is None or self.checkers.in_sync.knows_newer_than(image):
            return "nobody knows"
        return "it does not" if image.is_alive(node_id) else None

    # -- the run -----------------------------------------------------------------------------------

    def _after_step(self) -> None:
        if self._failure is not None:
            raise self._failure
        self.checkers.after_step()
        self.rot.after_step()
        self.transactions.after_step()

    def spawn(self, lane: str, coroutine: Any) -> asyncio.Task[Any]:
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
        steps = steps_of(partitions_per_step(self.seed))
        with self.transactions.habits.in_force(), steps:
            await self._run()

    async def _run(self) -> None:
        rng = self.rng
        self._keep_all()
        await self.within(
            START_S_MAX, "a new cluster is not ready", lambda: self.unready() or self.lag()
        )
        admin, mover = ClusterAdmin(self, rng.randint(4, 14)), Mover(self, rng.randint(2, 10))
        await self.served([self.spawn("admin", self._create(admin))], "creating topics")
        if self.transactions.is_on:
            await self.served([self.spawn("admin", self.transactions.create())], "topics")
        if self.work.parts:
            await self.served([self.spawn("admin", self.work.create())], "creating topics")
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
        members = rng.choice((0, 1, 2, 3))
        self._members = [ClusterMember(self, f"member-{n}", "members") for n in range(members)]
        self.clients += [actor.name for actor in (*writers, *readers, group, *self._members)]
        writing = [self.spawn(actor.name, actor.run()) for actor in writers]
        others = [self.spawn(actor.name, actor.run()) for actor in (*readers, group)]
        others += [
            self.spawn(name, actor.run())
            for name, actor in (
                ("admin", admin),
                ("mover", mover),
                ("operator", Operator(self, mover)),
            )
        ]
        if self.tier.is_on:
            tier_admin = TierAdmin(self, rng.randint(0, 4))
            others.append(self.spawn("tier-admin", tier_admin.run()))
        membership = [self.spawn(actor.name, actor.run()) for actor in self._members]
        if self.transactions.is_on:
            self.transactions.start()
        self.work.start()
        await self.faults.run()
        self.is_quiet = True
        await self.served(writing + self.work.writers(), "producing")
        self.all_written = True
        await self.served(others, "consuming, committing and administering")
        await self.work.finish()
        if self.transactions.is_on:
            await self.transactions.finish()
        await self.served([self.spawn("mover", mover.settle())], "moving replicas")
        await self.within(GROUPS_S_MAX, "a group is not stable", self._instability)
        self.is_over = True
        await self.served(membership, "leaving groups")
        await self._end(group)

    def _instability(self) -> str | None:
        """Why the members are not one generation with all partitions between them."""
        members, wanted = self._members, sorted(self.base_partitions())
        if not members or (
            all(member.beats > 1 for member in members)
            and len({member.generation for member in members}) == 1
            and sorted(p for member in members for p in member.assigned) == wanted
        ):
            return None
        return str([(m.name, m.generation, m.beats, m.assigned) for m in members])

    async def _create(self, admin: ClusterAdmin) -> None:
        self.base_topics = await admin.create_base_topics()

    async def served(self, tasks: list[asyncio.Task[Any]], what: str) -> None:
        if not tasks:
            return
        _, waiting = await asyncio.wait(tasks, timeout=SERVED_S_MAX)
        names = sorted(task.get_name() for task in waiting)
        require(
            not waiting,
            f"{what} is not done {SERVED_S_MAX:g} s after the last fault: {names}; {self.lag()}",
        )

    async def within(self, seconds: float, what: str, why_not: Any) -> None:
        end_s = self.loop.time() + seconds
        while (reason := why_not()) is not None:
            require(self.loop.time() < end_s, f"{what} after {seconds:g} s: {reason}")
            await asyncio.sleep(0.1)

    def unready(self) -> str | None:
        missing = [machine.host for machine in self.machines if not machine.is_ready]
        return f"{missing} do not run" if missing else None

    def lag(self) -> str | None:
        return self.unready() or self.checkers.lag() or self.promises.unkept()

    def _keep_all(self) -> None:
        self._keepers = {
            node_id: self.spawn("test", self._keep(machine))
            for node_id, machine in self.machines.by_id.items()
        }

    async def _keep(self, machine: Machine) -> None:
        """Keep a broker running: who dies is started again after a while."""
        rng = random.Random(f"{self.seed}:{machine.host}:keeper")
        while True:
            if not machine.has_refused:
                self.file_rot.between_lives(machine)
            if await machine.start():
                self.checkers.after_start(machine)
                await machine.ended()
            await asyncio.sleep(rng.choice((0.01, 0.1, 0.5, 2.0)))
            if machine.config.node_id in self.away:
                await self.away[machine.config.node_id].wait()

    def _check(self) -> None:
        self.checkers.check_contents()
        self.promises.check()
        self.transactions.check()
        self.work.check()

    async def _end(self, group: ClusterGroup) -> None:
        """Everybody catches up; the whole cluster is stopped, and has everything again."""
        what = "the cluster is not whole"
        await self.within(WHOLE_S_MAX, what, self.lag)
        self.observer.quiet_since = self.loop.time()
        await self.tier.settle()
        self._check()
        await self.served([self.spawn(group.name, group.check())], "looking at offsets")
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.sleep(0)
        stops = [in_lane("test", machine.stop()) for machine in self.machines]
        await asyncio.wait(stops)
        self._keep_all()
        await self.within(WHOLE_S_MAX, f"after an orderly stop of all {what}", self.lag)
        await self.tier.settle()
        self._check()
        await self.served([self.spawn(group.name, group.check())], "looking at offsets again")
        await self.tier.end()
        self._check_failures()
        self._judge_clients()

    def _judge_clients(self) -> None:
        """What the clients saw is what Kafka promises, by nothing but their calls."""
        partitions = self.transactions.partitions() if self.transactions.is_on else []
        topics = {partition.topic.topic_id: partition.topic for partition in partitions}
        own = {topic.topic_id: topic for topic in self.work.topics()}
        judge_clients(self.observer, {**self.history.topics, **topics, **own}.values())

    def _check_failures(self) -> None:
        for failure in self.loop.failures:
            error = failure.get("exception")
            if not isinstance(error, MachineDiedError):
                raise Violation(f"{failure.get('message')}: {error!r}") from error
