"""A member of a streams group (KIP-1071), as an instance of Kafka Streams is one.

It beats, gives tasks back that it may not have any more, says so, and only then takes new ones. It
says which tasks it has when that changes, and after a lost answer. Kafka tells a member its tasks
when they change and when it joins: where an answer may be lost that did so, the member joins again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.groups import NOT_NOW
from sim.cluster.member_process import BEAT_S, COMMIT, MemberProcess
from sim.history import Violation, require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_groups import StreamsGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from histories.calls import Place
    from sim.cluster.member_process import Habits
    from sim.history import TopicHistory

ABANDON = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID}
)
LEAVE = -1
REVOKE_LATER = 0.3  # with each heartbeat
HANG_UP = 0.06  # with each heartbeat
SLEEP = 0.03
SLEEP_S = (0.3, 4.0)
KEEP_ID = 0.5

_Topology = StreamsGroupHeartbeatRequest.Topology
_Subtopology = StreamsGroupHeartbeatRequest.Subtopology
_TopicInfo = StreamsGroupHeartbeatRequest.TopicInfo
_TaskIds = StreamsGroupHeartbeatRequest.TaskIds


def topology_of(names: tuple[str, ...]) -> StreamsGroupHeartbeatRequest.Topology:
    """The words of the first topic are counted, the others only read."""
    first, *others = names
    words, counts = internal_topics_of(first)
    word_count = [
        _Subtopology(subtopology_id="0", source_topics=[first], repartition_sink_topics=[words]),
        _Subtopology(
            subtopology_id="1",
            repartition_source_topics=[_TopicInfo(name=words)],
            state_changelog_topics=[_TopicInfo(name=counts)],
        ),
    ]
    rest = [
        _Subtopology(subtopology_id=str(number), source_topics=[name])
        for number, name in enumerate(others, 2)
    ]
    return _Topology(epoch=0, subtopologies=[*word_count, *rest])


def internal_topics_of(name: str) -> tuple[str, str]:
    """Those that the coordinator creates for a topic whose words are counted."""
    return f"{name}-words", f"{name}-counts"


def sources_of(names: tuple[str, ...]) -> dict[str, str]:
    """The topic from which each subtopology takes the number of its tasks."""
    return {"0": names[0], "1": names[0], **{str(n): name for n, name in enumerate(names[1:], 2)}}


def tasks_of(listed: Iterable[Any]) -> frozenset[Place]:
    """Subtopologies and partitions."""
    return frozenset((each.subtopology_id, n) for each in listed for n in each.partitions)


class StreamsMember(MemberProcess):
    """One process, or one of several members of a process."""

    commit_version = 9
    late = ABANDON | {ErrorCode.STALE_MEMBER_EPOCH}

    def __init__(self, world: Any, name: str, group: str, habits: Habits, number: int) -> None:
        """`number` tells the processes of one name apart."""
        super().__init__(world, name, group, habits, number)
        self.process_id = name
        self.status: tuple[int, ...] = ()  # of the group, as the last answer says
        self._begin_again(new_id=True)

    async def run(self) -> None:
        """Beat, and do as members do."""
        while not self.is_leaving:
            try:
                await asyncio.sleep(self.rng.uniform(*BEAT_S))
                await self._reconcile()
                if not self.world.is_quiet and self.rng.random() < HANG_UP:
                    await self.hang_up(self._request(), 0)
                await self._beat()
                if self.generation > 0 and self.rng.random() < COMMIT:
                    await self.commit_some(self.held)
                if not self.world.is_quiet and self.rng.random() < SLEEP:
                    await asyncio.sleep(self.rng.uniform(*SLEEP_S))
                    self.world.history.count("members that sleep")
                    await self.commit_some(self.held)  # it does not know yet that it is late
            except Lost:
                self._doubt()
        self.client.close()

    def topic_of(self, place: Place) -> TopicHistory | None:
        """The topic that a task reads, None if the coordinator created it."""
        name = sources_of(self.subscription.names)[place[0]] if place[0] != "1" else ""
        topics = (*self.world.base_topics, *self.world.work.topics())
        return next((topic for topic in topics if topic.name == name), None)

    # -- tasks -------------------------------------------------------------------------------------

    def _begin_again(self, *, new_id: bool) -> None:
        self.generation, self.beats = 0, 0
        self.held = self.target = self.standby = frozenset[Any]()
        self._said: tuple[frozenset[Place], ...] | None = None
        self._is_in_doubt = False
        if new_id:
            self.member_id = f"{self.name}-{self.rng.getrandbits(64):016x}"

    def _doubt(self) -> None:
        """An answer is lost. Standby tasks are given up, since others may be meant by now."""
        self.beats, self.standby, self._said = 0, frozenset(), None
        self._is_in_doubt = self.generation > 0

    async def _reconcile(self) -> None:
        """Give back first, some time; then take."""
        gone = self.held - self.target
        if gone and not self.world.is_quiet and self.rng.random() < REVOKE_LATER:
            return
        if gone and self.rng.random() < COMMIT:
            await self.commit_some(gone)
        new = self.target - self.held
        self.held = self.target
        if new:
            self.world.history.count("tasks taken")
            await self.look(new)

    # -- requests ----------------------------------------------------------------------------------

    def _request(self) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.generation
        )
        if self.generation == 0:
            request.rebalance_timeout_ms = self.habits.rebalance_ms
            request.process_id = self.process_id
            request.topology = topology_of(self.subscription.names)
        if (self.held, self.standby) != self._said:
            self._said = (self.held, self.standby)
            request.active_tasks = _listed(self.held)
            request.standby_tasks = _listed(self.standby)
            request.warmup_tasks = []
        return request

    async def _beat(self) -> None:
        response = await self.client.ask(self._request(), 0)
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            await self._trouble(error)
            return
        self.world.history.count("heartbeats of streams")
        self.generation = response.member_epoch
        self.status = tuple(each.status_code for each in response.status or ())
        for code in self.status:
            self.world.history.count(f"status {code} of a streams group")
        if response.active_tasks is not None:
            self.target, self.standby = (
                tasks_of(each) for each in (response.active_tasks, response.standby_tasks)
            )
            self._is_in_doubt = False
        elif self._is_in_doubt:
            self.world.history.count("members that join again after a lost answer")
            self._begin_again(new_id=False)
        self.beats = 0 if self.target != self.held else self.beats + 1

    async def _trouble(self, error: ErrorCode) -> None:
        if error in NOT_NOW:
            self._doubt()
            self.client.forget()
            await asyncio.sleep(PAUSE_S)
        elif error in ABANDON:
            self.world.history.count(f"members answered {error.name}")
            self._begin_again(new_id=self.rng.random() >= KEEP_ID)
        else:
            raise Violation(f"StreamsGroupHeartbeat of {self.name} was answered {error.name}")

    async def leave(self) -> None:
        """Leave the group."""
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=LEAVE
        )
        self.held = frozenset()
        while self.generation > 0:
            try:
                error = ErrorCode((await self.client.ask(request, 0)).error_code)
            except Lost:
                if not self.world.is_quiet:
                    return
                continue
            if error not in NOT_NOW:
                is_known = error is ErrorCode.NONE or error in ABANDON
                require(is_known, f"a member that leaves was answered {error.name}")
                return
            self.client.forget()
            await asyncio.sleep(PAUSE_S)


def _listed(tasks: frozenset[Place]) -> list[Any]:
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for subtopology, partition in sorted(tasks):
        partitions[subtopology].append(partition)
    return [_TaskIds(subtopology_id=key, partitions=each) for key, each in partitions.items()]
