"""Subscriptions of a group's members, counted: a heartbeat need not look at all members. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.modern.member import Subscription

    Patterns = Mapping[str, frozenset[str]]

__all__ = ["Subscriptions", "subscribed_names"]


class Subscriptions:
    """How many members subscribe to each topic by name, and to each regular expression."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._patterns: Counter[str] = Counter()

    def copy(self) -> Subscriptions:
        """Return the same counts, which change on their own."""
        copied = Subscriptions()
        copied._names = self._names.copy()
        copied._patterns = self._patterns.copy()
        return copied

    def add(self, subscription: Subscription) -> None:
        """Count a member's subscription."""
        self._names.update(subscription.topic_names)
        if subscription.topic_regex:
            self._patterns[subscription.topic_regex] += 1

    def remove(self, subscription: Subscription) -> None:
        """Count a member's subscription no longer."""
        for name in subscription.topic_names:
            _decrement(self._names, name)
        if subscription.topic_regex:
            _decrement(self._patterns, subscription.topic_regex)

    @property
    def patterns(self) -> list[str]:
        """The regular expressions, in order."""
        return sorted(self._patterns)

    def names(self, patterns: Patterns) -> set[str]:
        """Return the topics, by name and by regular expression."""
        return set(self._names).union(*(patterns.get(each, ()) for each in self._patterns))


def subscribed_names(subscription: Subscription, patterns: Patterns) -> frozenset[str]:
    """Return the topics of one subscription, by name and by regular expression."""
    if not subscription.topic_regex:
        return subscription.topic_names
    return subscription.topic_names | patterns.get(subscription.topic_regex, frozenset())


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
