"""Groups of KIP-848: members that come and go, in bad manners, dynamic ones and instances.

Some groups are mixed: a process may use the classic protocol, and the next one the other.

While faults last, members' histories alone are judged (`histories/epochs.py`). When they are over,
every member soon has its target assignment, and the coordinator describes what the members have.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.cluster.classic_member import ClassicMember
from sim.cluster.client import PAUSE_S
from sim.cluster.consumer_member import ConsumerMember
from sim.cluster.groups import (
    NOT_NOW,
    CoordinatorClient,
    check_offsets,
    look_at_offsets,
    term_at,
)
from sim.cluster.member_process import Habits, MemberProcess, Subscription
from sim.cluster.transactions_habits import SEVERAL
from sim.cluster.work.processes import Processes
from sim.history import require
from sim.observed_beats import places_of
from sim.wire import Lost
from tidelog.simulation.machine import COMPACTION
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import ConsumerGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from histories.calls import Place

GROUP = "of members that beat"
TOPIC, LATE_TOPIC = "grouped", "grouped-late"
SESSIONS_MS = (900, 1500, 3000)
REBALANCES_MS = (1000, 2500, 10_000)
INTERVALS_MS = (0, 0, 300)  # between target assignments
LATE_S = (0.5, 5.0)
LOOKS_S = (0.02, 0.1, 0.3)
STABLE_S_MAX = 30.0
COMPACTED = 0.35
AWAY_SESSIONS = 2.0  # the group has removed a silent member by then
MIXED = 0.4
CLASSIC = 0.6


class ConsumerGroups(Processes):
    """One group."""

    name = "consumer groups"
    label = "beating"
    counted_as = "members of KIP-848"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.session_ms = self.rng.choice(SESSIONS_MS)
        self._is_compacted = self.rng.random() < COMPACTED
        self._has_instance = [self.rng.random() < 0.4 for _ in range(self.rng.randint(2, 5))]
        # By a chance of its own, as it came later: dynamic members change their protocol.
        self._is_mixed = random.Random(f"{world.seed}:mixed groups").random() < MIXED
        self._protocols = random.Random(f"{world.seed}:protocols of members")
        if self._is_mixed:
            self._has_instance = [self._protocols.random() < 0.15 for _ in self._has_instance[:3]]

    def settings(self) -> Mapping[str, str]:
        """Short times; perhaps the group's log is compacted all the time."""
        session_ms = str(self.session_ms)
        return {
            "group.consumer.session.timeout.ms": session_ms,
            "group.consumer.min.session.timeout.ms": session_ms,
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.assignment.interval.ms": str(self.rng.choice(INTERVALS_MS)),
            **({**COMPACTION, **SEVERAL} if self._is_compacted else {}),
        }

    async def create(self) -> None:
        """The topic of the group's own."""
        observer = self.world.observer
        observer.sessions[GROUP] = self.session_ms / 1000
        observer.term_of = partial(term_at, self.world)
        self.topics.append(await self.create_topic(TOPIC, self.rng.randint(2, 6)))
        self._habits = Habits(
            self._subscriptions(),
            self.rng.choice(REBALANCES_MS),
            self.session_ms,
            random.Random(f"{self.world.seed}:cooperation").random() < 0.5,
        )
        self.world.clients += [f"beating-{number}" for number in range(len(self._has_instance))]

    def _subscriptions(self) -> tuple[Subscription, ...]:
        """Those that members choose from: often all of them want the same."""
        base = tuple(topic.name for topic in self.world.base_topics)
        all_names = (*base, TOPIC)
        drawn = [
            Subscription(all_names, assignor=self.rng.choice((None, "uniform", "range"))),
            Subscription(regex="base-.*|grouped.*"),
            Subscription((TOPIC,)),
            Subscription((base[0],), "grouped.*"),
        ]
        count = self.rng.choice((1, 1, 2, len(drawn)))
        chosen = tuple(self.rng.sample(drawn, count))
        return (Subscription(all_names), *chosen) if self._is_mixed else chosen

    def start(self) -> None:
        """Start and kill member processes, fetch committed offsets, and create a topic late."""
        self.start_processes(len(self._has_instance))
        self.clients.append(self.world.spawn("onlooker", self._look_on()))
        self.clients.append(self.world.spawn("late topic", self._create_late()))

    async def _look_on(self) -> None:
        """Ask, as Kafka's tools do, what the group has committed: it never goes back."""
        rng = random.Random(f"{self.world.seed}:onlooker")
        client = CoordinatorClient(self.world, "onlooker", GROUP, rng)
        while not self.world.is_quiet:
            await asyncio.sleep(rng.choice(LOOKS_S))
            try:
                error = await look_at_offsets(self.world, client, GROUP)
            except Lost:
                continue
            if error is not ErrorCode.NONE:
                client.forget()
                await asyncio.sleep(PAUSE_S)
        client.close()

    async def _create_late(self) -> None:
        await asyncio.sleep(self.rng.uniform(*LATE_S))
        self.topics.append(await self.create_topic(LATE_TOPIC, self.rng.randint(1, 3)))

    def new_process(self, number: int) -> MemberProcess:
        """A member, perhaps by the classic protocol."""
        kind: type[MemberProcess] = ConsumerMember
        is_dynamic = not self._has_instance[number]
        if self._is_mixed and is_dynamic and self._protocols.random() < CLASSIC:
            kind = ClassicMember
        member = kind(self.world, f"beating-{number}", GROUP, self._habits, self.begun)
        if not is_dynamic:
            member.instance_id = f"instance-{number}"
        return member

    async def finish(self) -> None:
        """All have what they may have, as their coordinator says; then all leave."""
        await super().finish()
        for twin in self.twins:
            twin.kill()
        client = CoordinatorClient(self.world, "admin", GROUP, self.rng)
        await self._until_stable(client)
        await check_offsets(self.world, client, GROUP)
        for member in self.current.values():
            await self.until_left(member)
        described = await self._describe(client)
        away = [member.instance_id for member in (described.members if described else ())]
        require(None not in away, f"{GROUP} has members, and all have left")
        if away:
            await asyncio.sleep(AWAY_SESSIONS * self.session_ms / 1000)
            described = await self._describe(client)
            require(not (described and described.members), f"{away} are away, and stay in {GROUP}")
        client.close()

    # -- the target assignment ---------------------------------------------------------------------

    async def _until_stable(self, client: CoordinatorClient) -> None:
        end_s = self.world.loop.time() + STABLE_S_MAX
        while True:
            for number, member in list(self.current.items()):
                if member.is_fenced:  # perhaps by a twin of the time before, once it wakes
                    self.begin(number)
            reason = self._instability() or self._otherwise(await self._describe(client))
            if reason is None:
                return
            require(self.world.loop.time() < end_s, f"{GROUP} is not reconciled: {reason}")
            await asyncio.sleep(0.1)

    def _instability(self) -> str | None:
        members = list(self.current.values())
        if all(each.is_settled for each in members) and len({m.generation for m in members}) == 1:
            return self._assigned_otherwise(members)
        return str(
            [(m.member_id, m.generation, m.beats, sorted(m.held ^ m.target)) for m in members]
        )

    def _assigned_otherwise(self, members: Iterable[MemberProcess]) -> str | None:
        """Each partition has one owner, which wants its topic; owners of the same have as many."""
        image = self.world.machines.image()
        owners: Counter[Place] = Counter(place for member in members for place in member.held)
        wanted: set[Place] = set()
        for member in members:
            names = [name for name in image.topics if _wants(member.subscription, name)]
            own = {
                (image.topics[name].topic_id.hex(), index)
                for name in names
                for index in range(len(image.topics[name].partitions))
            }
            if not member.held <= own:
                return f"{member.member_id} has {sorted(member.held - own)}, and wants {names}"
            wanted |= own
        if owners != Counter(wanted):
            return f"owned: {sorted(owners.items())}; wanted: {sorted(wanted)}"
        sizes = [len(member.held) for member in members]
        is_uniform = all(
            member.subscription == self._habits.subscriptions[0] for member in members
        ) and self._habits.subscriptions[0].assignor in (None, "uniform")
        if is_uniform and max(sizes) - min(sizes) > 1:
            return f"the members have {sizes} partitions"
        return None

    async def _describe(self, client: CoordinatorClient) -> Any:
        """The group, None if it is a classic one."""
        while True:
            try:
                answer = await client.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)
            except Lost:
                continue
            error = ErrorCode(answer.groups[0].error_code)
            if error is ErrorCode.NONE:
                return answer.groups[0]
            if error is ErrorCode.GROUP_ID_NOT_FOUND and self._is_mixed:
                return None
            require(error in NOT_NOW, f"ConsumerGroupDescribe was answered {error.name}")
            client.forget()
            await asyncio.sleep(PAUSE_S)

    def _otherwise(self, described: Any) -> str | None:
        """Why the coordinator does not describe what the members have."""
        if described is None:
            is_wrong = any(isinstance(member, ConsumerMember) for member in self.current.values())
            return "it is a classic group" if is_wrong else None
        if described.group_state != "Stable":
            return f"it is {described.group_state}"
        held = {member.member_id: member.held for member in self.current.values()}
        told, targets = (
            {
                member.member_id: places_of(getattr(member, name).topic_partitions)
                for member in described.members
            }
            for name in ("assignment", "target_assignment")
        )
        if not held == told == targets:
            return f"members have {held}, described: {told} of {targets}"
        epochs = {member.member_epoch for member in described.members}
        epochs |= {member.generation for member in self.current.values()}
        epochs |= {described.group_epoch, described.assignment_epoch}
        return None if len(epochs) == 1 else f"it is in the epochs {sorted(epochs)}"


def _wants(subscription: Subscription, name: str) -> bool:
    if name in subscription.names:
        return True
    prefixes = [part.removesuffix(".*") for part in subscription.regex.split("|") if part]
    return any(name.startswith(prefix) for prefix in prefixes)
