"""What clients were told, and what that obliges the broker to.

A *fact* is a record at an offset that some client knows of: acknowledged to its producer or seen by
a consumer. Facts hold for ever, but for three things: a DeleteRecords or retention that moves the
log start above them, the deletion of the topic, and a power failure before they were durable.
"""

from __future__ import annotations

from typing import Any

Key = tuple[bytes, int]  # topic id, partition
RETENTION = ("retention.bytes", "retention.ms")


class Violation(AssertionError):  # noqa: N818 - a verdict, not an error of the simulator
    """The broker broke a promise."""


def require(condition: object, message: str) -> None:
    """Raise a Violation unless the condition holds."""
    if not condition:
        raise Violation(message)


class PartitionHistory:
    """What is known of one partition by those who use it."""

    def __init__(self, topic: TopicHistory, index: int) -> None:
        self.topic, self.index = topic, index
        self.facts: dict[int, bytes] = {}
        self.acked_end = 0  # after the last acknowledged offset
        self.delete_bound = 0  # no DeleteRecords asked for more
        self.sent: set[bytes] = set()  # every value that may be in the log
        self.cuts: list[tuple[int, int]] = []  # (life that lost its power, log end after it)

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    def learn(self, offset: int, value: bytes, life: int, *, acked: bool) -> None:
        """A client was told by a broker of that life that `value` lies at `offset`."""
        lost_from = min((end for of, end in self.cuts if of >= life), default=None)
        if lost_from is not None and offset >= lost_from:
            require(
                not (acked and self.topic.is_durable),
                f"{self}: offset {offset} was acknowledged after its fsync, and is lost",
            )
            return
        known = self.facts.setdefault(offset, value)
        require(known == value, f"{self}: offset {offset} was {known!r} and is {value!r} to others")
        if acked:
            self.acked_end = max(self.acked_end, offset + 1)

    def floor(self, recovery_point: int) -> int:
        """Everything below it is durable: the broker's own word, or the topic's promise."""
        return max(recovery_point, self.acked_end if self.topic.is_durable else 0)

    def cut(self, life: int, log_end_offset: int) -> None:
        """The power failed in `life`, and the log ends here now: later facts are void."""
        self.cuts.append((life, log_end_offset))
        for offset in [offset for offset in self.facts if offset >= log_end_offset]:
            del self.facts[offset]
        self.acked_end = min(self.acked_end, log_end_offset)


class TopicHistory:
    """A topic as the admin knows it. `state`: exists, deleting (asked for, not heard) or gone."""

    def __init__(self, name: str, topic_id: bytes, partitions: int, config: dict[str, str]) -> None:
        self.name, self.topic_id, self.config = name, topic_id, config
        self.state = "exists"
        self.loses_records = False  # by leaving the remote tier
        self.partitions_first = self.partitions_min = self.partitions_max = partitions
        self.partitions: dict[int, PartitionHistory] = {}

    @property
    def is_durable(self) -> bool:
        """Whether an acknowledgement promises an fsync."""
        return self.config.get("flush.messages") == "1"

    @property
    def has_retention(self) -> bool:
        """Whether old segments may go, though nobody deletes records."""
        return self.loses_records or not self.config.keys().isdisjoint(RETENTION)

    def partition(self, index: int) -> PartitionHistory:
        """One partition's history."""
        if index not in self.partitions:
            self.partitions[index] = PartitionHistory(self, index)
        return self.partitions[index]


class Committed:
    """The offsets one group commits to one partition: numbers that rise with each attempt.

    `told`: the highest that a coordinator has told anybody, acknowledged or not.
    """

    def __init__(self) -> None:
        self.tried = 0
        self.acked = self.told = -1

    @property
    def least(self) -> int:
        """No later answer of the coordinator is below it."""
        return max(self.acked, self.told)

    def next(self) -> int:
        """A number to commit that was never used."""
        self.tried += 1
        return self.tried


class History:
    """Everything clients know."""

    def __init__(self) -> None:
        self.topics: dict[bytes, TopicHistory] = {}
        self.committed: dict[tuple[str, str, int], Committed] = {}
        self.power_failures: list[int] = []  # lives that ended so
        self.counts: dict[str, int] = {}

    def topic(self, topic_id: bytes) -> TopicHistory | None:
        """By id."""
        return self.topics.get(topic_id)

    def existing(self) -> list[TopicHistory]:
        """Topics that must exist."""
        return [topic for topic in self.topics.values() if topic.state == "exists"]

    def commits(self, group: str, topic: str, index: int) -> Committed:
        """The commits of a group to a partition."""
        return self.committed.setdefault((group, topic, index), Committed())

    def count(self, what: str, by: int = 1) -> None:
        """Keep statistics."""
        self.counts[what] = self.counts.get(what, 0) + by

    def power_failed_since(self, life: int) -> bool:
        """Whether a power failure ended this life or a later one."""
        return any(failed >= life for failed in self.power_failures)

    def summary(self) -> dict[str, Any]:
        """Counts, sorted."""
        return dict(sorted(self.counts.items()))
