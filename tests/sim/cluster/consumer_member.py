"""A member of a consumer group by its own protocol (KIP-848), as a client library is one.

It beats, gives up what it may not have any more, says so, and only then takes what is new. It says
all about itself when it joins and after each error, as the answer may be lost; else what changed.
"""

from __future__ import annotations

import asyncio
import contextlib
from copy import copy
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.groups import NOT_NOW
from sim.cluster.member_process import BEAT_S, COMMIT, MemberProcess
from sim.history import Violation, require
from sim.observed_beats import places_of
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from histories.calls import Place
    from sim.cluster.member_process import Habits

ABANDON = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID}
)
LATE = ABANDON | {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.STALE_MEMBER_EPOCH}
LEAVE, LEAVE_FOR_A_WHILE = -1, -2
REVOKE_LATER = 0.3  # with each heartbeat
HANG_UP = 0.06  # with each heartbeat
HANG_UP_WITH_NEWS = 0.25  # with one that says that it has something else: its epoch may move
SLEEP = 0.03
SLEEP_S = (0.3, 4.0)
NEW_SUBSCRIPTION = 0.02
KEEP_ID = 0.5
COMMIT_LATE = 0.3  # of what it gives up
LATE_S = (0.0, 0.3, 1.0)
LISTS_EACH = 0.1  # a topic comes once for each partition, which Kafka understands

_Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


class ConsumerMember(MemberProcess):
    """One process. It ends when it is killed, has left, or another one has its instance id."""

    commit_version = 9
    late = LATE

    def __init__(self, world: Any, name: str, group: str, habits: Habits, number: int) -> None:
        """`number` tells the processes of one name apart."""
        super().__init__(world, name, group, habits, number)
        self.subscription = self.rng.choice(habits.subscriptions)
        self._lists_each = self.rng.random() < LISTS_EACH
        self._begin_again(new_id=True)

    async def run(self) -> None:
        """Beat, and do as members do."""
        while not (self.is_leaving or self.is_fenced):
            try:
                await asyncio.sleep(self.rng.uniform(*BEAT_S))
                await self._reconcile()
                hang_up = HANG_UP if self.held == self._said else HANG_UP_WITH_NEWS
                if not self.world.is_quiet and self.rng.random() < hang_up:
                    await self.hang_up(self._request(), 1)
                await self._beat()
                if self.epoch > 0 and self.rng.random() < COMMIT:
                    await self.commit_some(self.held)
                if not self.world.is_quiet:
                    await self._misbehave()
            except Lost:
                self._says_all, self.beats = True, 0
        self.client.close()

    # -- what is held ------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Its member epoch."""
        return self.generation

    def _begin_again(self, *, new_id: bool) -> None:
        self.generation, self.beats = 0, 0
        self.held = self.target = frozenset()
        self._said: frozenset[Place] | None = None
        self._says_all = True
        if new_id:
            self.member_id = f"{self.name}-{self.rng.getrandbits(64):016x}"

    async def _reconcile(self) -> None:
        """Revoke first, some time; then take."""
        gone = self.held - self.target
        if gone and not self.world.is_quiet and self.rng.random() < REVOKE_LATER:
            return
        if gone and self.rng.random() < COMMIT:
            await self.commit_some(gone)
        if gone and not self.world.is_quiet and self.rng.random() < COMMIT_LATE:
            self._threads.append(self.world.spawn(self.name, self._commit_late(gone)))
        new = self.target - self.held
        self.held = self.target
        if new:
            self.world.history.count("partitions taken")
            await self.look(new)

    async def _commit_late(self, gone: frozenset[Place]) -> None:
        """A thread of the process commits, in the epoch of now, what has been given up by then."""
        thread = copy(self)
        thread.client = self.new_client()
        await asyncio.sleep(self.rng.choice(LATE_S))
        with contextlib.closing(thread.client), contextlib.suppress(Lost):
            await thread.commit_some(gone)
            self.world.history.count("late commits of what was given up")

    # -- requests ----------------------------------------------------------------------------------

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        owned = None
        if self._says_all or self.held != self._said:
            owned = self._listed()
            self._said = self.held
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=owned,
        )
        if self._says_all:
            request.rebalance_timeout_ms = self.habits.rebalance_ms
            request.subscribed_topic_names = list(self.subscription.names)
            request.subscribed_topic_regex = self.subscription.regex
            request.server_assignor = self.subscription.assignor
        return request

    def _listed(self) -> list[Any]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.held):
            by_topic.setdefault(topic, []).append(index)
        return [
            _Owned(topic_id=bytes.fromhex(topic), partitions=some)
            for topic, indexes in by_topic.items()
            for some in ([[index] for index in indexes] if self._lists_each else [indexes])
        ]

    async def _beat(self) -> None:
        response = await self.client.ask(self._request(), 1)
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            await self._trouble(error)
            return
        self._says_all = False
        self.generation = response.member_epoch
        if response.assignment is not None:
            self.target = places_of(response.assignment.topic_partitions)
        is_new = self.target != self.held
        self.beats = 0 if is_new else self.beats + 1
        self.world.history.count("heartbeats of KIP-848")

    async def _trouble(self, error: ErrorCode) -> None:
        self._says_all, self.beats = True, 0
        if error in NOT_NOW:
            self.client.forget()
            await asyncio.sleep(PAUSE_S)
        elif error in ABANDON:
            self.world.history.count(f"members answered {error.name}")
            self._begin_again(new_id=self.rng.random() >= KEEP_ID)
        elif error is ErrorCode.UNRELEASED_INSTANCE_ID:
            self.world.history.count("instances not released")
            await asyncio.sleep(PAUSE_S)
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self.world.history.count("processes fenced")
            self.is_fenced = True
        else:
            raise Violation(f"ConsumerGroupHeartbeat of {self.name} was answered {error.name}")

    async def leave(self) -> None:
        """Leave for good; a static member may only be away."""
        epoch = LEAVE
        if self.instance_id is not None and self.rng.random() < 0.7:
            epoch = LEAVE_FOR_A_WHILE
        while self.epoch > 0:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
            )
            self.held = frozenset()
            try:
                error = ErrorCode((await self.client.ask(request, 1)).error_code)
            except Lost:
                if not self.world.is_quiet:
                    return
                continue
            if error not in NOT_NOW:
                is_known = error is ErrorCode.NONE or error in LATE
                require(is_known, f"a member that leaves was answered {error.name}")
                return
            self.client.forget()
            await asyncio.sleep(PAUSE_S)

    # -- bad manners -------------------------------------------------------------------------------

    async def _misbehave(self) -> None:
        """Now and then it stands still, or wants something else."""
        chance = self.rng.random()
        if chance < SLEEP:
            await asyncio.sleep(self.rng.uniform(*SLEEP_S))
            self.world.history.count("members that sleep")
            if self.epoch > 0:
                await self.commit_some(self.held)  # it does not know yet that it is late
        elif chance < SLEEP + NEW_SUBSCRIPTION:
            self.subscription = self.rng.choice(self.habits.subscriptions)
            self._says_all = True
