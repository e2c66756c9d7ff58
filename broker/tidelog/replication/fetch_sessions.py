"""Incremental fetch sessions (KIP-227): a client's last requests and responses.

It owns the sessions of this broker, their epochs, the choice of partitions in an incremental
response, and the eviction from a full cache. `api/fetch.py` calls it. Pure: time (milliseconds) and
session ids come as arguments; it does not know logs.

A session's partitions keep their order. One whose records were just sent moves to the end, so that
every partition gets its turn under `max_bytes`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "FINAL_EPOCH",
    "INITIAL_EPOCH",
    "INVALID_SESSION_ID",
    "FetchSession",
    "FetchSessionCache",
    "FetchedPartition",
    "PartitionKey",
    "next_epoch",
]

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0  # a full fetch that asks for a session
FINAL_EPOCH = -1  # a full fetch without a session
PARTITIONS_MAX = 1_000_000
"""Partitions of all sessions: 0.4 GB."""

_EPOCH_MAX = 2**31 - 1

PartitionKey = tuple["str | bytes", int]
"""Topic name and partition; topic id and partition from Fetch v13 on. Sessions never mix them."""


def next_epoch(epoch: int) -> int:
    """Return the next epoch: 1, 2, ... and then 1 again, because 0 and -1 are special."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class FetchedPartition:
    """One partition of a fetch: the request, and in a session the last response.

    `topic` is None while the id is unknown to this broker. `high_watermark` and
    `local_log_start_offset` are those of the last response, -1 before the first and after an error,
    so that the next valid one is always sent. `fetcher_log_start_offset` is the follower's own.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "fetcher_log_start_offset",
        "high_watermark",
        "last_fetched_epoch",
        "local_log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: bytes, request: Any) -> None:
        """`request`: a FetchRequest.FetchPartition."""
        self.topic = topic
        self.topic_id = topic_id
        self.partition: int = request.partition
        self.current_leader_epoch: int = request.current_leader_epoch
        self.fetch_offset: int = request.fetch_offset
        self.last_fetched_epoch: int = request.last_fetched_epoch
        self.fetcher_log_start_offset: int = request.log_start_offset
        self.max_bytes: int = request.partition_max_bytes
        self.high_watermark = -1
        self.local_log_start_offset = -1

    def update_request(self, request: Any) -> None:
        """Update from a later request of the session."""
        self.current_leader_epoch = request.current_leader_epoch
        self.fetch_offset = request.fetch_offset
        self.last_fetched_epoch = request.last_fetched_epoch
        self.fetcher_log_start_offset = request.log_start_offset
        self.max_bytes = request.partition_max_bytes

    def key(self) -> PartitionKey:
        """Return its key in a session: by id if the request had ids."""
        return (self.topic or "" if self.topic_id == ZERO_UUID else self.topic_id, self.partition)


class FetchSession:
    """The partitions of one client, and the epoch of its next request.

    `privileged` sessions are those of followers. `cached_size` is the size the cache counted last.
    `unresolved`: the topic of some partition may still be unknown here.
    """

    __slots__ = (
        "cached_size",
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "privileged",
        "session_id",
        "unresolved",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        *,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: dict[PartitionKey, FetchedPartition],
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = len(partitions)
        self.unresolved = uses_topic_ids

    def forget(self, topics: Iterable[Any]) -> None:
        """Drop partitions (FetchRequest.ForgottenTopic: names, or ids from v13); unknown ones are
        ignored."""
        partitions = self.partitions
        for topic in topics:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for index in topic.partitions:
                partitions.pop((name, index), None)

    def add(self, topics: Iterable[Any], topic_names: Mapping[bytes, str]) -> None:
        """Add and update the partitions of a request (FetchRequest.FetchTopic)."""
        partitions = self.partitions
        by_id = self.uses_topic_ids
        for topic in topics:
            if by_id:
                topic_id: bytes = topic.topic_id
                name: str | None = topic_names.get(topic_id)
                label: str | bytes = topic_id
            else:
                topic_id = ZERO_UUID
                label = name = topic.topic
            if name is None:
                self.unresolved = True
            for request in topic.partitions:
                known = partitions.get((label, request.partition))
                if known is not None:
                    known.update_request(request)
                else:
                    partition = FetchedPartition(name, topic_id, request)
                    partitions[(label, request.partition)] = partition

    def resolve_names(self, topic_names: Mapping[bytes, str]) -> None:
        """Set the names of topics that are now known; a name once found is kept.

        A topic created again with the same name then gets INCONSISTENT_TOPIC_ID, as in Kafka.
        """
        self.unresolved = False
        for partition in self.partitions.values():
            if partition.topic is None:
                partition.topic = topic_names.get(partition.topic_id)
                if partition.topic is None:
                    self.unresolved = True

    def must_answer(
        self, partition: FetchedPartition, error: int, result: Any, *, has_news: bool
    ) -> bool:
        """Return whether an incremental response includes this partition, and record its values.

        `has_news`: records, a preferred replica or a divergence. `result` has `high_watermark` and
        `log_start_offset`.
        """
        answer = has_news
        if partition.high_watermark != result.high_watermark:
            partition.high_watermark = result.high_watermark
            answer = True
        if partition.local_log_start_offset != result.log_start_offset:
            partition.local_log_start_offset = result.log_start_offset
            answer = True
        if error:
            partition.high_watermark = -1  # so that it is included once the error is gone
            answer = True
        return answer

    def move_to_end(self, partition: FetchedPartition) -> None:
        """Move a partition whose records were sent to the end."""
        key = partition.key()
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition


class FetchSessionCache:
    """All incremental sessions of this broker, at most `slots_max` of them.

    A new session replaces another one only if (a) that one is unused for `eviction_ms`, or (b) the
    new one is a follower's and that one is not, or (c) the new one has at least as many partitions
    and that one is older than `eviction_ms` (any age for a follower against a client).

    All together have at most `PARTITIONS_MAX` partitions: above it the largest one is closed, a
    client's first. Each request may add thousands to its session, which Kafka does not limit.
    """

    __slots__ = (
        "_evictable_by_all",
        "_evictable_by_privileged",
        "_eviction_ms",
        "_random_id",
        "_sessions",
        "_slots_max",
        "evictions",
        "partitions_cached",
    )

    def __init__(
        self, slots_max: int, random_id: Callable[[], int], *, eviction_ms: int = 120_000
    ) -> None:
        """`random_id` returns 31 random bits, so that a restarted broker has no session with an old
        id."""
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._random_id = random_id
        self._sessions: dict[int, FetchSession] = {}  # in order of use, oldest first
        self._evictable_by_all: list[tuple[bool, int, int]] = []
        self._evictable_by_privileged: list[tuple[bool, int, int]] = []
        self.evictions = 0
        self.partitions_cached = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session of an id, or None."""
        return self._sessions.get(session_id)

    def resolve(
        self, session_id: int, epoch: int, *, uses_topic_ids: bool
    ) -> FetchSession | ErrorCode:
        """Return the session that an incremental request continues, or the error."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def advance(self, session: FetchSession, now_ms: int) -> None:
        """Mark a session as used and advance its epoch."""
        self._touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)

    def create(
        self,
        partitions: dict[PartitionKey, FetchedPartition],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> int:
        """Open a session and return its id; INVALID_SESSION_ID if the cache has only better
        ones."""
        if len(self._sessions) >= self._slots_max and not self._evict(
            (privileged, len(partitions), 0), now_ms
        ):
            return INVALID_SESSION_ID
        session = FetchSession(
            self._new_id(),
            privileged=privileged,
            uses_topic_ids=uses_topic_ids,
            partitions=partitions,
            now_ms=now_ms,
        )
        self._sessions[session.session_id] = session
        self.partitions_cached += session.cached_size
        if not privileged:
            insort(self._evictable_by_privileged, _evictable_key(session))
        self._close_largest()
        return session.session_id if session.session_id in self._sessions else INVALID_SESSION_ID

    def _close_largest(self) -> None:
        while self.partitions_cached > PARTITIONS_MAX:
            largest = max(
                self._sessions.values(), key=lambda each: (not each.privileged, each.cached_size)
            )
            self.remove(largest.session_id)
            self.evictions += 1

    def remove(self, session_id: int) -> bool:
        """Close a session; False if there was none."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        key = _evictable_key(session)
        _discard(self._evictable_by_all, key)
        _discard(self._evictable_by_privileged, key)
        self.partitions_cached -= session.cached_size
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._random_id() & _EPOCH_MAX
            if session_id != INVALID_SESSION_ID and session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        sessions = self._sessions
        sessions[session.session_id] = sessions.pop(session.session_id)
        session.last_used_ms = now_ms
        size = len(session.partitions)
        if size != session.cached_size:
            key = _evictable_key(session)
            _discard(self._evictable_by_all, key)
            _discard(self._evictable_by_privileged, key)
            self.partitions_cached += size - session.cached_size
            session.cached_size = size
            if not session.privileged:
                insort(self._evictable_by_privileged, _evictable_key(session))
            self._close_largest()
            if session.session_id not in self._sessions:
                return
        if now_ms - session.created_ms > self._eviction_ms:
            key = _evictable_key(session)
            _include(self._evictable_by_all, key)
            _include(self._evictable_by_privileged, key)

    def _evict(self, key: tuple[bool, int, int], now_ms: int) -> bool:
        """Evict a session for one of this key: a stale one first, else the least valuable."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            victim = oldest.session_id
        else:
            evictable = self._evictable_by_privileged if key[0] else self._evictable_by_all
            if not evictable or key < evictable[0]:
                return False
            victim = evictable[0][2]
        self.remove(victim)
        self.evictions += 1
        return True


def _evictable_key(session: FetchSession) -> tuple[bool, int, int]:
    return (session.privileged, session.cached_size, session.session_id)


def _discard(ordered: list[tuple[bool, int, int]], key: tuple[bool, int, int]) -> None:
    index = bisect_left(ordered, key)
    if index < len(ordered) and ordered[index] == key:
        del ordered[index]


def _include(ordered: list[tuple[bool, int, int]], key: tuple[bool, int, int]) -> None:
    index = bisect_left(ordered, key)
    if index == len(ordered) or ordered[index] != key:
        ordered.insert(index, key)
