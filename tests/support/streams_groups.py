"""A streams group with its records, topics, time and clients, for tests of the pure core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.consumer_groups import WALL_MS, SomeTopics
from tidelog.coordinators.groups.modern.records import Record
from tidelog.coordinators.groups.now import Now
from tidelog.coordinators.groups.streams.group import StreamsGroup
from tidelog.coordinators.groups.streams.requests import StreamsHeartbeat, check
from tidelog.coordinators.groups.streams.tasks import NO_TASKS, TaskSets
from tidelog.coordinators.groups.streams.views import StreamsLimits
from tidelog_protocol.compiler import codec
from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.groups.streams.group import StreamsStep
    from tidelog.coordinators.groups.streams.requests import StreamsAnswer
    from tidelog.coordinators.groups.streams.tasks import HeldTasks

Subtopology = StreamsGroupTopologyValue.Subtopology
TopicInfo = StreamsGroupTopologyValue.TopicInfo

AT_ONCE = StreamsLimits(assignment_interval_ms=0, initial_rebalance_delay_ms=0)


def word_count(epoch: int = 0) -> StreamsGroupTopologyValue:
    """Lines are split into words, which are counted: one subtopology writes to the other."""
    return StreamsGroupTopologyValue(
        epoch=epoch,
        subtopologies=[
            Subtopology(
                subtopology_id="0", source_topics=["lines"], repartition_sink_topics=["words"]
            ),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name="words")],
                state_changelog_topics=[TopicInfo(name="counts")],
            ),
        ],
    )


def again(record: Record) -> Record:
    """The record, written and read."""
    values = []
    for part in record:
        each = None if part is None else codec(type(part), 0)
        values.append(None if each is None else each.decode(each.encode(part)))
    return Record(*values)


def sets_of(held: HeldTasks) -> TaskSets:
    active = {key: frozenset(each) for key, each in held.active.items()}
    return TaskSets(active, held.standby, held.warmup)


class StreamsLife:
    """One group; every record is written, read again from its bytes, and replayed."""

    def __init__(self, limits: StreamsLimits = AT_ONCE, **counts: int) -> None:
        self.topics = SomeTopics(**counts)
        self.limits = limits
        self.group = StreamsGroup("g", limits)
        self.log: list[Record] = []
        self.ticks_ms = 0

    @property
    def now(self) -> Now:
        return Now(self.ticks_ms, WALL_MS + self.ticks_ms)

    def heartbeat(self, request: StreamsHeartbeat) -> StreamsAnswer:
        check("g", request)
        self.last: StreamsStep = self.group.heartbeat(request, self.topics, self.now)
        self.append(self.last.records)
        return self.last.answer

    def append(self, records: Iterable[Record]) -> None:
        for record in records:
            read = again(record)
            assert read == record
            self.log.append(read)
            self.group.replay(read)

    def create(self) -> None:
        """The topics that the last heartbeat missed are created."""
        for topic in self.last.missing_topics:
            self.topics.counts[topic.name] = topic.partitions
        self.group.topics_changed()

    def expire(self) -> None:
        self.append(self.group.expire(self.topics, self.now))

    def loaded(self) -> StreamsGroup:
        """The group as another broker loads it."""
        group = StreamsGroup("g", self.limits)
        for record in self.log:
            group.replay(record)
        group.resume(self.now)
        return group


class Client:
    """A member that does what it is asked, and says with each heartbeat what it owns."""

    def __init__(self, life: StreamsLife, member_id: str, process_id: str = "") -> None:
        self.life = life
        self.member_id = member_id
        self.process_id = process_id or f"process of {member_id}"
        self.epoch = 0
        self.owned = NO_TASKS

    def join(self, **fields: Any) -> StreamsAnswer:
        fields = {"topology": word_count(), "rebalance_timeout_ms": 60_000, **fields}
        self.epoch, self.owned = 0, NO_TASKS
        return self.beat(process_id=self.process_id, **fields)

    def beat(self, **fields: Any) -> StreamsAnswer:
        active, standby, warmup = self.owned
        owned = {"active": active, "standby": standby, "warmup": warmup}
        answer = self.life.heartbeat(
            StreamsHeartbeat(self.member_id, self.epoch, **{**owned, **fields})
        )
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.owned = sets_of(answer.assigned)
        return answer

    @property
    def active(self) -> set[str]:
        return {f"{key}_{n}" for key, each in self.owned.active.items() for n in each}

    @property
    def standby(self) -> set[str]:
        return {f"{key}_{n}" for key, each in self.owned.standby.items() for n in each}
