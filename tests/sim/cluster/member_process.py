"""A process that is a member of a group by either protocol: what it holds, its commits, its end."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sim.cluster.groups import NOT_NOW, CoordinatorClient
from sim.groups import GroupClient
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest

if TYPE_CHECKING:
    from collections.abc import Collection

    from histories.calls import Place
    from sim.history import TopicHistory
    from tidelog_protocol.schema import Message

BEAT_S = (0.04, 0.2)
COMMIT = 0.4


class Subscription(NamedTuple):
    """By name or by a regular expression, and the assignor that the member wants."""

    names: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None


class Habits(NamedTuple):
    """What members do, beside beating. Classic ones are eager or cooperative (KIP-429). Where there
    are such, the first subscription is by name."""

    subscriptions: tuple[Subscription, ...]
    rebalance_ms: int
    session_ms: int
    is_cooperative: bool = False


class MemberProcess(GroupClient, ABC):
    """It ends when it is killed, has left, or another process has its instance id."""

    world: Any
    late: ClassVar[Collection[ErrorCode]]  # what a commit is answered that comes too late

    def __init__(self, world: Any, name: str, group: str, habits: Habits, number: int) -> None:
        """`number` tells the processes of one name apart."""
        super().__init__(world, name, group)
        self.rng = self.client.rng = random.Random(f"{world.seed}:{name}.{number}")
        self.habits = habits
        self.subscription = habits.subscriptions[0]
        self.held: frozenset[Place] = frozenset()  # what it reads
        self.target: frozenset[Place] = frozenset()  # what it may read
        self.beats = 0  # good ones in a row
        self.is_leaving = self.is_fenced = False
        self._task: asyncio.Task[Any] | None = None
        self._threads: list[asyncio.Task[Any]] = []  # of it that commit late

    def new_client(self) -> CoordinatorClient:
        """Who asks the coordinator, wherever it is."""
        return CoordinatorClient(self.world, self.name, self.group, self.rng)

    @property
    def is_settled(self) -> bool:
        """Whether it has been in the group for a while, with what it may have."""
        return self.beats > 2 and self.held == self.target

    def begin(self) -> None:
        """Run, from now on."""
        self._task = self.world.spawn(self.name, self.run())

    def kill(self) -> None:
        """It is gone without a word."""
        assert self._task is not None
        for task in (self._task, *self._threads):
            task.cancel()
        self.client.close()

    async def ended(self) -> None:
        """Its last request is answered, or lost."""
        assert self._task is not None
        await asyncio.wait([self._task, *self._threads])

    @abstractmethod
    async def run(self) -> None:
        """Be a member, until the process ends."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group; the process has ended."""

    def topic_of(self, place: Place) -> TopicHistory | None:
        """The topic, if it stays."""
        topic: TopicHistory | None = self.world.history.topics.get(bytes.fromhex(place[0]))
        stays = topic in self.world.base_topics or topic in self.world.work.topics()
        return topic if stays else None

    async def commit_some(self, places: frozenset[Place]) -> ErrorCode:
        """Commit the next number to one of these; the error."""
        known = [place for place in sorted(places) if self.topic_of(place) is not None]
        if not known:
            return ErrorCode.NONE
        place = self.rng.choice(known)
        topic = self.topic_of(place)
        assert topic is not None
        error = await self.commit(topic.name, place[1])
        if error in NOT_NOW:
            self.client.forget()
        elif error is not ErrorCode.NONE:
            require(error in self.late, f"OffsetCommit of {self.name} was answered {error.name}")
            self.world.history.count("late commits refused")
        return error

    async def look(self, places: frozenset[Place]) -> None:
        """Where it goes on reading: at no older offset than was acknowledged, or told, before."""
        asked = {place: topic for place in sorted(places) if (topic := self.topic_of(place))}
        if not asked or self.generation <= 0:
            return
        least = {
            (topic.name, index): self.world.history.commits(self.group, topic.name, index).least
            for (_, index), topic in asked.items()
        }
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[index])
            for name, index in least
        ]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            topics=topics,
        )
        answer = (await self.client.ask(OffsetFetchRequest(groups=[group]), 9)).groups[0]
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            is_known = error in NOT_NOW or error in self.late
            require(is_known, f"OffsetFetch of {self.name} was answered {error.name}")
            return
        if self.client.life is None:
            return
        for topic in answer.topics:
            for each in topic.partitions:
                key = (topic.name, each.partition_index)
                wanted = least[key]
                require(
                    each.committed_offset >= wanted,
                    f"{self.group} committed {wanted} of {topic.name}-{each.partition_index}, and"
                    f" its next owner begins at {each.committed_offset}",
                )
                committed = self.world.history.commits(self.group, *key)
                committed.told = max(committed.told, each.committed_offset)

    async def hang_up(self, message: Message, version: int) -> None:
        """A heartbeat is sent, and its answer not waited for."""
        asking = asyncio.get_running_loop().create_task(self.client.ask(message, version))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.sleep(self.rng.uniform(0, 0.01))
        self.client.close()
        await asyncio.wait([asking])
        self.world.history.count("answers not waited for")
        raise Lost("it hung up")
