"""A consumer group with its records, its topics and its time, for tests of the pure core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.records import RECORDS, encoded_assignment
from tidelog.coordinators.groups.consumer.requests import Heartbeat, check
from tidelog.coordinators.groups.consumer.views import ConsumerLimits
from tidelog.coordinators.groups.modern.records import decode, encode
from tidelog.coordinators.groups.now import Now

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.groups.consumer.member import ConsumerMember
    from tidelog.coordinators.groups.modern.member import Partitions
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.requests import Answer

WALL_MS = 1_795_000_000_000


def id_of(name: str) -> bytes:
    """The id of a topic in these tests."""
    return name.encode().ljust(16, b"-")


class SomeTopics:
    """Topics by name with their number of partitions."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.version = 7

    def find(self, name: str) -> tuple[bytes, int] | None:
        return (id_of(name), self.counts[name]) if name in self.counts else None

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name in self.counts if id_of(name) == topic_id), None)

    def matching(self, regex: str) -> frozenset[str]:
        """A star at the end is all this matches."""
        if not regex.endswith("*"):
            raise ValueError("missing argument to repetition operator: `*`")
        return frozenset(name for name in self.counts if name.startswith(regex[:-1]))

    def hash_of(self, names: Iterable[str]) -> int:
        known = sorted((name, self.counts[name]) for name in names if name in self.counts)
        return sum(ord(c) * (n + 1) for n, c in enumerate(repr(known))) if known else 0


class Life:
    """One group; every record is written, read again from its bytes, and replayed."""

    def __init__(self, limits: ConsumerLimits | None = None, **counts: int) -> None:
        self.topics = SomeTopics(**counts)
        self.limits = limits or ConsumerLimits(assignment_interval_ms=0)
        self.group = ConsumerGroup("g", self.limits)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.ticks_ms = 0

    @property
    def now(self) -> Now:
        return Now(self.ticks_ms, WALL_MS + self.ticks_ms)

    def heartbeat(self, request: Heartbeat) -> Answer:
        check("g", request, needs_member_id=True)
        step = self.group.heartbeat(request, self.topics, self.now)
        self.append(step.all_records("g"))
        if step.moved is not None:
            self.check_moved(step.moved)
        return step.answer

    def check_moved(self, moved: ConsumerMember) -> None:
        """A member that moves is the same as the one that its record makes."""
        encoded = encode(RECORDS.assignment_record("g", moved))
        assert encoded == encoded_assignment("g", moved) == self.log[-1]
        replayed = self.group.members[moved.member_id]
        assert moved._replace(subscription=replayed.subscription) == replayed

    def append(self, records: Iterable[Record]) -> None:
        for record in records:
            key, value = encode(record)
            self.log.append((key, value))
            again = decode(key, value)
            assert again == record
            self.group.replay(again)

    def join(self, member_id: str, *names: str, **fields: Any) -> Answer:
        fields = {"rebalance_timeout_ms": 60_000, "topic_names": names, "owned": {}, **fields}
        return self.heartbeat(Heartbeat(member_id, 0, **fields))

    def beat(
        self, member_id: str, epoch: int, owned: Partitions | None = None, **more: Any
    ) -> Answer:
        return self.heartbeat(Heartbeat(member_id, epoch, owned=owned, **more))

    def expire(self) -> None:
        self.append(self.group.expire(self.topics, self.now))

    def loaded(self) -> ConsumerGroup:
        """The group as another broker loads it."""
        group = ConsumerGroup("g", self.limits)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            group.replay(record)
        return group


def numbers(assigned: Partitions | None, topic: str = "t") -> list[int] | None:
    """The partitions of a topic, None if the answer has no assignment."""
    return None if assigned is None else sorted(assigned.get(id_of(topic), ()))


def held_of(group: ConsumerGroup) -> dict[tuple[bytes, int], str]:
    """The member of each partition that any has or still must revoke; no partition has two."""
    found: dict[tuple[bytes, int], str] = {}
    for name, member in group.members.items():
        for epochs in (member.assigned, member.revoking):
            for topic, each in epochs.items():
                for partition in each:
                    assert (topic, partition) not in found, "a partition is owned twice"
                    found[topic, partition] = name
    return found
