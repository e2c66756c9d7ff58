"""A follower's side of an incremental fetch session (KIP-227).

Owned by one `replica_fetcher.py`. Pure. The leader's side is `fetch_sessions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.replication.fetch_sessions import (
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    next_epoch,
)
from tidelog_protocol.messages.data import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["Asked", "FetcherSession", "Key"]

Key = tuple[bytes, int]
"""Topic id and partition."""


class Asked(NamedTuple):
    """The request for one partition; an answer is only valid for exactly this."""

    fetch_offset: int
    log_start_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    max_bytes: int


class FetcherSession:
    """The session with one leader.

    `asked` is the leader's state after the next request. `_changed` and `_gone` are the difference
    to its current state; both are empty right after a request.
    """

    __slots__ = ("_changed", "_epoch", "_gone", "_session_id", "asked")

    def __init__(self) -> None:
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._changed: dict[Key, None] = {}
        self._gone: dict[Key, None] = {}
        self.asked: dict[Key, Asked] = {}

    def update(self, key: Key, asked: Asked | None) -> None:
        """Set what the next requests ask of a partition; None removes it."""
        before = self.asked.get(key)
        if asked == before:
            return
        if asked is None:
            del self.asked[key]
            self._changed.pop(key, None)
            self._gone[key] = None
        else:
            self.asked[key] = asked
            self._changed[key] = None
            self._gone.pop(key, None)

    def next_request(self) -> tuple[list[Any], list[Any]]:
        """Return topics and forgotten topics of the next request: everything for a new session,
        else the changes."""
        changed, self._changed = self._changed, {}
        gone, self._gone = self._gone, {}
        if self._epoch == INITIAL_EPOCH:
            return _fetch_topics(self.asked.items()), []
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in gone:
            forgotten.setdefault(topic_id, []).append(index)
        return _fetch_topics((key, self.asked[key]) for key in changed), [
            FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in forgotten.items()
        ]

    @property
    def session_id(self) -> int:
        """The session id of the next request."""
        return self._session_id

    @property
    def epoch(self) -> int:
        """The epoch of the next request: 0 asks for a new session, and closes the named one."""
        return self._epoch

    @property
    def is_incremental(self) -> bool:
        """Whether the next request continues a session."""
        return self._epoch != INITIAL_EPOCH

    def answered(self, session_id: int) -> None:
        """Record the session id of an answer; 0 if the leader keeps no session (its cache is
        full)."""
        self._session_id = session_id
        if session_id == INVALID_SESSION_ID:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = next_epoch(self._epoch)

    def restart(self) -> None:
        """Start a new session with the next request, because the leader's state is unknown."""
        self._epoch = INITIAL_EPOCH


def _fetch_topics(partitions: Iterable[tuple[Key, Asked]]) -> list[Any]:
    topics: dict[bytes, Any] = {}
    for (topic_id, index), asked in partitions:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=index,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.fetch_offset,
                last_fetched_epoch=asked.last_fetched_epoch,
                log_start_offset=asked.log_start_offset,
                partition_max_bytes=asked.max_bytes,
            )
        )
    return list(topics.values())
