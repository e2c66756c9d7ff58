"""Creates the internal topics of streams groups, and keeps for a while why that failed.

No request waits for it: the members' heartbeats say which topics are missing until they are there.
A topic whose creation has failed is not tried again before its failure is forgotten, as in Kafka's
AutoTopicCreationManager. `StreamsMembership` has
asked before whether the member may create them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.streams.wire import creatable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidelog.coordinators.groups.streams.topology import InternalTopic
    from tidelog_protocol.messages.admin import CreateTopicsRequest

    CreateAll = Callable[
        [Sequence[CreateTopicsRequest.CreatableTopic], Callable[[Mapping[str, str]], None]], None
    ]
    """Begins to create topics; calls back once, with the reasons of failures by topic."""

__all__ = ["TopicCreation"]

_FAILURES_MAX = 1000  # topics; Kafka's bound


class _Failure(NamedTuple):
    """Why a topic was not created, and when that is forgotten."""

    reason: str
    until: float


class TopicCreation:
    """Topics that are being created, and those that could not be."""

    def __init__(self, create_all: CreateAll, now: Callable[[], float]) -> None:
        """`now` returns the seconds of the time of sessions."""
        self._create_all = create_all
        self._now = now
        self._creating: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def begin(self, topics: Iterable[InternalTopic], retry_ms: int) -> None:
        """Create topics, but those that are being created or have failed within `retry_ms`."""
        failed = self.failures(self._failures)
        chosen = [
            topic
            for topic in topics
            if topic.name not in self._creating and topic.name not in failed
        ]
        if not chosen:
            return
        names = [each.name for each in chosen]
        self._creating.update(names)
        self._create_all([creatable(each) for each in chosen], partial(self._done, names, retry_ms))

    def _done(self, names: Sequence[str], retry_ms: int, reasons: Mapping[str, str]) -> None:
        self._creating.difference_update(names)
        now = self._now()
        kept = {name: each for name, each in self._failures.items() if each.until > now}
        kept |= {name: _Failure(each, now + retry_ms / 1000) for name, each in reasons.items()}
        last = sorted(kept.items(), key=lambda item: item[1].until)[-_FAILURES_MAX:]
        self._failures = dict(last)

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Return why topics could not be created, of those of these that have failed lately."""
        now = self._now()
        found = ((name, self._failures.get(name)) for name in names)
        return {name: each.reason for name, each in found if each is not None and each.until > now}
