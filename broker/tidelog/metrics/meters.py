"""Counts and gauges of one broker, named as the MBeans of Apache Kafka.

Whoever does the work marks it here, on the loop; `prometheus.py` reads. A meter costs a dictionary
look-up, so the data path of plain topics has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["BROKER_TOPIC_METRICS", "Meters", "Name", "Sample"]


class Name(NamedTuple):
    """Of an MBean: `domain:type=kind,name=name`."""

    domain: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.domain}:type={self.kind},name={self.name}"


class Sample(NamedTuple):
    """One value; `labels` are the MBean's further keys, as (key, value) pairs."""

    labels: tuple[tuple[str, str], ...]
    value: float


BROKER_TOPIC_METRICS = ("kafka.server", "BrokerTopicMetrics")


class Meters:
    """The meters of one broker."""

    def __init__(self) -> None:
        self._counts: dict[Name, dict[tuple[tuple[str, str], ...], float]] = {}
        self._gauges: dict[Name, Callable[[], Iterable[Sample]]] = {}

    def mark(self, name: Name, amount: float = 1, *, topic: str | None = None) -> None:
        """Count something: for all topics together and, if it has one, for its topic."""
        counts = self._counts.setdefault(name, {})
        counts[()] = counts.get((), 0) + amount
        if topic is not None:
            labels = (("topic", topic),)
            counts[labels] = counts.get(labels, 0) + amount

    def mark_topic(self, name: str, topic: str, amount: float = 1) -> None:
        """`mark` one of `kafka.server:type=BrokerTopicMetrics`."""
        self.mark(Name(*BROKER_TOPIC_METRICS, name), amount, topic=topic)

    def gauge(self, name: Name, read: Callable[[], Iterable[Sample]]) -> None:
        """Let `read` tell the values of this moment whenever somebody asks."""
        assert name not in self._gauges, f"{name} is told twice"
        self._gauges[name] = read

    def forget_topic(self, topic: str) -> None:
        """The topic is gone: so are its counts."""
        for counts in self._counts.values():
            counts.pop((("topic", topic),), None)

    def count(self, name: Name, *, topic: str | None = None) -> float:
        """What was marked so far, 0 if nothing was."""
        labels = () if topic is None else (("topic", topic),)
        return self._counts.get(name, {}).get(labels, 0)

    def counts(self) -> Iterator[tuple[Name, list[Sample]]]:
        """All counts, sorted by name."""
        for name in sorted(self._counts):
            yield name, [Sample(*item) for item in sorted(self._counts[name].items())]

    def gauges(self) -> Iterator[tuple[Name, list[Sample]]]:
        """All gauges with their values now, sorted by name."""
        for name in sorted(self._gauges):
            yield name, sorted(self._gauges[name]())
