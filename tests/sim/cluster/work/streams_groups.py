"""A streams group (KIP-1071): instances of one application that come and go, in bad manners.

While faults last, members' histories alone are judged (`histories/epochs.py`), as those of consumer
groups are, with tasks for partitions. When they are over, each task is soon active at one member,
the standby tasks are elsewhere, and the coordinator describes what the members have.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.cluster.admin import PARTITIONS_MAX
from sim.cluster.client import PAUSE_S
from sim.cluster.groups import NOT_NOW, CoordinatorClient, check_offsets, term_at
from sim.cluster.member_process import Habits, Subscription
from sim.cluster.streams_member import StreamsMember, internal_topics_of, sources_of, tasks_of
from sim.cluster.transactions_habits import SEVERAL
from sim.cluster.work.processes import Processes
from sim.history import require
from sim.wire import Lost
from tidelog.simulation.machine import COMPACTION
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_groups import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from histories.calls import Place

GROUP = "of an application"
TOPIC, LATE_TOPIC = "streamed", "streamed-late"
SESSIONS_MS = (900, 1500, 3000)
REBALANCES_MS = (1000, 2500, 10_000)
INTERVALS_MS = (0, 0, 300)  # between target assignments
DELAYS_MS = (0, 0, 400)  # of the first one
LATE_S = (0.5, 5.0)
STABLE_S_MAX = 30.0
COMPACTED = 0.35
TOGETHER = 0.4  # two members are of one process


class StreamsGroups(Processes):
    """One group."""

    name = "streams groups"
    label = "streaming"
    counted_as = "instances"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._members = self.rng.randint(2, 4)
        self._session_ms = self.rng.choice(SESSIONS_MS)
        self._standby = self.rng.choice((0, 0, 1, 2))
        self._is_compacted = self.rng.random() < COMPACTED
        self._has_late = self.rng.random() < 0.5
        self._together = self.rng.random() < TOGETHER

    def settings(self) -> Mapping[str, str]:
        """Short times; perhaps the group's log is compacted all the time."""
        session_ms = str(self._session_ms)
        return {
            "group.streams.session.timeout.ms": session_ms,
            "group.streams.min.session.timeout.ms": session_ms,
            "group.streams.heartbeat.interval.ms": "100",
            "group.streams.min.heartbeat.interval.ms": "100",
            "group.streams.assignment.interval.ms": str(self.rng.choice(INTERVALS_MS)),
            "group.streams.initial.rebalance.delay.ms": str(self.rng.choice(DELAYS_MS)),
            "group.streams.num.standby.replicas": str(self._standby),
            **({**COMPACTION, **SEVERAL} if self._is_compacted else {}),
        }

    async def create(self) -> None:
        """The topic whose words are counted; another one may come late."""
        observer = self.world.observer
        observer.sessions[GROUP] = self._session_ms / 1000
        observer.term_of = partial(term_at, self.world)
        # It has as many partitions as any, as it must not grow: its internal topics do not, and an
        # application with other partitions than they have must be reset.
        self.topics.append(await self.create_topic(TOPIC, PARTITIONS_MAX))
        names = (TOPIC, self.world.base_topics[0].name)
        names += (LATE_TOPIC,) if self._has_late else ()
        wanted = (Subscription(names),)
        self._habits = Habits(wanted, self.rng.choice(REBALANCES_MS), self._session_ms)
        self.world.clients += [f"{self.label}-{number}" for number in range(self._members)]

    def start(self) -> None:
        """Instances begin, and die; a topic comes late."""
        self.start_processes(self._members)
        if self._has_late:
            self.clients.append(self.world.spawn("late topic", self._create_late()))

    async def _create_late(self) -> None:
        await asyncio.sleep(self.rng.uniform(*LATE_S))
        self.topics.append(await self.create_topic(LATE_TOPIC, self.rng.randint(1, 3)))

    def new_process(self, number: int) -> StreamsMember:
        """A member, perhaps of the same process as another one."""
        name = f"{self.label}-{number}"
        member = StreamsMember(self.world, name, GROUP, self._habits, self.begun)
        if self._together and number < 2:
            member.process_id = "of two members"
        return member

    async def finish(self) -> None:
        """All tasks are where they shall be, as the coordinator says; then all leave."""
        await super().finish()
        client = CoordinatorClient(self.world, "admin", GROUP, self.rng)
        await self._until_stable(client)
        await check_offsets(self.world, client, GROUP)
        for member in self.current.values():
            await self.until_left(member)
        described = await self._describe(client)
        require(not described.members, f"{GROUP} has members, and all have left")
        require(described.group_state == "Empty", f"{GROUP} is {described.group_state}")
        client.close()

    # -- the target assignment ---------------------------------------------------------------------

    async def _until_stable(self, client: CoordinatorClient) -> None:
        end_s = self.world.loop.time() + STABLE_S_MAX
        while True:
            reason = self._instability() or self._otherwise(await self._describe(client))
            if reason is None:
                return
            require(self.world.loop.time() < end_s, f"{GROUP} is not reconciled: {reason}")
            await asyncio.sleep(0.1)

    @property
    def _all(self) -> list[StreamsMember]:
        return [each for each in self.current.values() if isinstance(each, StreamsMember)]

    def _instability(self) -> str | None:
        members = self._all
        if all(each.is_settled for each in members) and len({m.generation for m in members}) == 1:
            return self._assigned_otherwise(members)
        return str(
            [(m.member_id, m.generation, m.beats, m.status, sorted(m.target)) for m in members]
        )

    def _assigned_otherwise(self, members: list[StreamsMember]) -> str | None:
        """Each task is active once, no member has more than its share, and no process has a task
        twice."""
        image = self.world.machines.image()
        counts = {name: len(topic.partitions) for name, topic in image.topics.items()}
        for name in internal_topics_of(TOPIC):
            if counts.get(name) != counts[TOPIC]:
                return f"{name} has {counts.get(name)} partitions, {TOPIC} {counts[TOPIC]}"
        sources = sources_of(self._habits.subscriptions[0].names)
        wanted = Counter((key, n) for key, name in sources.items() for n in range(counts[name]))
        active: Counter[Place] = Counter(task for member in members for task in member.held)
        if active != wanted:
            return f"active: {sorted(active.items())}; wanted: {sorted(wanted)}"
        share = -(-len(wanted) // len(members))
        if max(len(member.held) for member in members) > share:
            return f"the members have {[len(m.held) for m in members]} tasks of {len(wanted)}"
        processes = {member.process_id for member in members}
        copies: Counter[Place] = Counter(task for member in members for task in member.standby)
        each = min(self._standby, len(processes) - 1)
        stateful = Counter({task: each for task in wanted if task[0] == "1" and each})
        if copies != stateful:
            return f"standby: {sorted(copies.items())}; wanted: {sorted(stateful.items())}"
        held = Counter(
            (member.process_id, task)
            for member in members
            for task in (*member.held, *member.standby)
        )
        twice = sorted(place for place, count in held.items() if count > 1)
        return f"twice at a process: {twice}" if twice else None

    async def _describe(self, client: CoordinatorClient) -> Any:
        while True:
            try:
                answer = await client.ask(StreamsGroupDescribeRequest(group_ids=[GROUP]), 0)
            except Lost:
                continue
            error = ErrorCode(answer.groups[0].error_code)
            if error is ErrorCode.NONE:
                return answer.groups[0]
            require(error in NOT_NOW, f"StreamsGroupDescribe was answered {error.name}")
            client.forget()
            await asyncio.sleep(PAUSE_S)

    def _otherwise(self, described: Any) -> str | None:
        """Why the coordinator does not describe what the members have."""
        if described.group_state != "Stable":
            return f"it is {described.group_state}"
        held = {member.member_id: (member.held, member.standby) for member in self._all}
        told, targets = (
            {
                member.member_id: (tasks_of(each.active_tasks), tasks_of(each.standby_tasks))
                for member in described.members
                for each in (getattr(member, name),)
            }
            for name in ("assignment", "target_assignment")
        )
        if not held == told == targets:
            return f"members have {held}, described: {told} of {targets}"
        epochs = {member.member_epoch for member in described.members}
        epochs |= {member.generation for member in self._all}
        epochs |= {described.group_epoch, described.assignment_epoch}
        return None if len(epochs) == 1 else f"it is in the epochs {sorted(epochs)}"
