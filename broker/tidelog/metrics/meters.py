"""Counts and gauges of one broker, named as the MBeans of Apache Kafka.

The code that does the work marks it here, on the loop; `prometheus.py` reads. On the data path of
plain topics, where a `mark` costs too much, there is one `TopicCount`, and only if metrics are
served.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "BROKER_TOPIC_METRICS",
    "DataPathCounts",
    "Family",
    "Labels",
    "Meters",
    "Name",
    "Sample",
    "Timer",
    "TopicCount",
]

Labels = tuple[tuple[str, str], ...]
"""The further keys of an MBean, as (key, value) pairs."""

_RECENT_MAX = 1028  # as many as Kafka's timers choose from


class Name(NamedTuple):
    """The name of an MBean: `domain:type=kind,name=name`."""

    domain: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.domain}:type={self.kind},name={self.name}"


class Sample(NamedTuple):
    """One value."""

    labels: Labels
    value: float


class Family(NamedTuple):
    """The series of one name: counters, or gauges."""

    name: str
    is_counter: bool
    samples: list[Sample]


BROKER_TOPIC_METRICS = ("kafka.server", "BrokerTopicMetrics")


class Timer:
    """The number and the durations of calls, in ms (Kafka: RateAndTimeMs)."""

    __slots__ = ("count", "recent_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.recent_ms: deque[float] = deque(maxlen=_RECENT_MAX)

    def record(self, seconds: float) -> None:
        """Record one call."""
        took_ms = 1000 * seconds
        self.count += 1
        self.total_ms += took_ms
        self.recent_ms.append(took_ms)

    @classmethod
    def merged(cls, timers: Iterable[Timer]) -> Timer:
        """Return one timer with the counts and durations of several."""
        whole = cls()
        whole.recent_ms = deque()  # all that each has
        for timer in timers:
            whole.count += timer.count
            whole.total_ms += timer.total_ms
            whole.recent_ms += timer.recent_ms
        return whole

    def quantile_ms(self, part: float) -> float:
        """Return a quantile of the latest durations; 0 if there are none."""
        ordered = sorted(self.recent_ms)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


class TopicCount:
    """A count for each topic and in total; the counting code adds to `by_topic` directly."""

    __slots__ = ("_of_deleted", "by_topic")

    def __init__(self) -> None:
        self.by_topic: defaultdict[str, int] = defaultdict(int)
        self._of_deleted = 0

    def forget(self, topic: str) -> None:
        """Remove the count of a deleted topic."""
        self._of_deleted += self.by_topic.pop(topic, 0)

    def samples(self) -> list[Sample]:
        """Return the samples for `Meters.counts`."""
        whole = self._of_deleted + sum(self.by_topic.values())
        topics = [Sample((("topic", topic),), count) for topic, count in self.by_topic.items()]
        return [Sample((), whole), *sorted(topics)]


class DataPathCounts:
    """Counts of `kafka.server:type=BrokerTopicMetrics` that Produce and Fetch keep."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self, meters: Meters) -> None:
        self.bytes_in = meters.topic_count("BytesInPerSec")
        self.bytes_out = meters.topic_count("BytesOutPerSec")
        self.messages_in = meters.topic_count("MessagesInPerSec")

    def forget(self, topic: str) -> None:
        """Remove the counts of a deleted topic."""
        for count in (self.bytes_in, self.bytes_out, self.messages_in):
            count.forget(topic)


class Meters:
    """The meters of one broker."""

    def __init__(self) -> None:
        self._counts: dict[Name, dict[Labels, float]] = {}
        self._gauges: dict[Name, list[Callable[[], Iterable[Sample]]]] = {}
        self._timers: dict[tuple[Name, Labels], Timer] = {}
        self._counted: dict[Name, Callable[[], list[Sample]]] = {}
        self._timed: dict[Name, Callable[[], list[tuple[Labels, Timer]]]] = {}
        self._topic_counts: dict[Name, TopicCount] = {}
        self.pushed: list[Callable[[], Iterable[Family]]] = []
        """Each returns series that have no MBean's name: what clients pushed (KIP-714)."""

    def topic_count(self, name: str) -> TopicCount:
        """Return a count of `kafka.server:type=BrokerTopicMetrics` for the data path; its owner
        removes deleted topics."""
        return self._topic_counts.setdefault(Name(*BROKER_TOPIC_METRICS, name), TopicCount())

    def declare(self, names: Iterable[Name]) -> None:
        """Show these from now on, even before the first count."""
        for name in names:
            self._counts.setdefault(name, {}).setdefault((), 0)

    def mark(
        self,
        name: Name,
        amount: float = 1,
        *,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Count an event: in total and, if given, for its topic, or only for its partition."""
        counts = self._counts.setdefault(name, {})
        counts[()] = counts.get((), 0) + amount
        if topic is not None:
            labels: Labels = (("topic", topic),)
            if partition is not None:
                labels = (("partition", str(partition)), *labels)
            counts[labels] = counts.get(labels, 0) + amount

    def mark_topic(self, name: str, topic: str, amount: float = 1) -> None:
        """Mark one of `kafka.server:type=BrokerTopicMetrics`."""
        self.mark(Name(*BROKER_TOPIC_METRICS, name), amount, topic=topic)

    def gauge(self, name: Name, read: Callable[[], Iterable[Sample]]) -> None:
        """Register `read`, which returns the current values; several may serve one name, with
        different labels."""
        self._gauges.setdefault(name, []).append(read)

    def counted(self, name: Name, read: Callable[[], list[Sample]]) -> None:
        """Register `read`, which returns counts that its owner keeps on a hot path."""
        self._counted[name] = read

    def timed(self, name: Name, read: Callable[[], list[tuple[Labels, Timer]]]) -> None:
        """Register `read`, which returns timers that their owner keeps on a hot path."""
        self._timed[name] = read

    def timer(self, name: Name, labels: Labels = ()) -> Timer:
        """Return the timer of this name and labels; create it on first use."""
        return self._timers.setdefault((name, labels), Timer())

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a topic that has left the remote tier."""
        label = ("topic", topic)
        for counts in self._counts.values():
            for labels in [labels for labels in counts if label in labels]:
                del counts[labels]

    def count(self, name: Name, *, topic: str | None = None) -> float:
        """Return the count so far, 0 if there is none."""
        labels = () if topic is None else (("topic", topic),)
        return self._counts.get(name, {}).get(labels, 0)

    def counts(self) -> Iterator[tuple[Name, list[Sample]]]:
        """Return all counts, sorted by name."""
        found = {name: count.samples() for name, count in self._topic_counts.items()}
        found.update({name: read() for name, read in self._counted.items()})
        for name, counts in self._counts.items():
            found[name] = [Sample(*item) for item in sorted(counts.items())]
        yield from sorted(found.items())

    def gauges(self) -> Iterator[tuple[Name, list[Sample]]]:
        """Return all gauges with their current values, sorted by name."""
        for name in sorted(self._gauges):
            yield name, sorted(sample for read in self._gauges[name] for sample in read())

    def timers(self) -> Iterator[tuple[Name, list[tuple[Labels, Timer]]]]:
        """Return all timers with their labels, sorted by name."""
        by_name = {name: read() for name, read in self._timed.items()}
        for name, labels in sorted(self._timers):
            by_name.setdefault(name, []).append((labels, self._timers[name, labels]))
        yield from sorted(by_name.items())
