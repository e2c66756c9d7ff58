"""A share group with its records, its topics and its time, for tests of the pure core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.consumer_groups import WALL_MS, SomeTopics
from support.share_persister import MemoryPersister
from tidelog.awaiting import answer_of
from tidelog.coordinators.groups.modern.records import decode, encode
from tidelog.coordinators.groups.now import Now
from tidelog.coordinators.groups.share.group import ShareGroup
from tidelog.coordinators.groups.share.records import partitions_record
from tidelog.coordinators.groups.share.requests import ShareHeartbeat, check
from tidelog.coordinators.groups.share.views import ShareLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.requests import Answer
    from tidelog.coordinators.groups.share.group import ShareStep
    from tidelog.coordinators.groups.share.partitions import TopicPartitions
    from tidelog.coordinators.share.values import Deletion, Initialization, Outcome


class ShareLife:
    """One group; every record is written, read again from its bytes, and replayed."""

    def __init__(self, limits: ShareLimits | None = None, **counts: int) -> None:
        self.topics = SomeTopics(**counts)
        self.limits = limits or ShareLimits(assignment_interval_ms=0)
        self.group = ShareGroup("g", self.limits)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.ticks_ms = 0
        self.begun: dict[bytes, TopicPartitions] = {}

    @property
    def now(self) -> Now:
        return Now(self.ticks_ms, WALL_MS + self.ticks_ms)

    def heartbeat(self, request: ShareHeartbeat) -> Answer:
        check("g", request)
        self.last: ShareStep = self.group.heartbeat(request, self.topics, self.now)
        self.append(self.last.records)
        self.group.begun(self.last.initialize, self.now)
        self.begun = self.last.initialize or self.begun
        return self.last.answer

    def append(self, records: Iterable[Record]) -> None:
        for record in records:
            key, value = encode(record)
            self.log.append((key, value))
            again = decode(key, value)
            assert again == record
            self.group.replay(again)

    def join(self, member_id: str, *names: str, **fields: Any) -> Answer:
        return self.heartbeat(ShareHeartbeat(member_id, 0, topic_names=names, **fields))

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Answer:
        return self.heartbeat(ShareHeartbeat(member_id, epoch, **fields))

    def initialized(self) -> None:
        """The share coordinator has initialized what a heartbeat began last."""
        after = self.group.partitions.initialized_now(self.begun)
        self.append([partitions_record("g", after)])

    def failed(self) -> None:
        """The share coordinator could not."""
        after = self.group.partitions.failed(self.begun)
        self.append([partitions_record("g", after)])

    def expire(self) -> None:
        self.append(self.group.expire(self.topics, self.now))

    def loaded(self) -> ShareGroup:
        """The group as another broker loads it."""
        group = ShareGroup("g", self.limits)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            group.replay(record)
        return group


class SlowPersister(MemoryPersister):
    """It may hold its answers, and notes its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.is_holding = False
        self._held: list[Callable[[None], None]] = []

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.is_holding:
            await answer_of(self._held.append)

    def release(self) -> None:
        """Give the answers that it holds, and hold no more."""
        self.is_holding = False
        held, self._held = self._held, []
        for answer in held:
            answer(None)

    async def initialize(self, group_id: str, items: Sequence[Initialization]) -> list[Outcome]:
        await self._called("initialize")
        return await super().initialize(group_id, items)

    async def delete(self, group_id: str, items: Sequence[Deletion]) -> list[Outcome]:
        await self._called("delete")
        return await super().delete(group_id, items)
