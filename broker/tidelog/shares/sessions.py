"""Share sessions (KIP-932): the partitions that a member of a share group reads here.

It owns the sessions of this broker, their epochs, and the choice of partitions in a response.
`api/share_fetch.py` calls it. A session ends with its connection: its records are released then.
Pure: it does not know connections, only that each session has an owner.

Kafka: ShareSession, ShareSessionCache, CachedSharePartition, SharePartitionManager.newContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.fetch_sessions import next_epoch
from tidelog.shares.records import ShareError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "ShareSession", "ShareSessions", "TopicIdPartition"]

INITIAL_EPOCH = 0  # opens a session
FINAL_EPOCH = -1  # closes it
PARTITIONS_MAX = 1_000_000  # of all sessions, as of all fetch sessions: 0.2 GB

TopicIdPartition = tuple[bytes, int]
"""Topic id and partition."""


class ShareSession:
    """The partitions of one member, and the epoch of its next request.

    `partitions` are in the order in which they are read; the value says whether the next response
    includes the partition even without records.
    """

    __slots__ = ("epoch", "group_id", "member_id", "owner", "partitions")

    def __init__(
        self,
        group_id: str,
        member_id: str,
        partitions: Iterable[TopicIdPartition],
        owner: object,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.owner = owner
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, False)

    def update(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add and forget partitions; the next response includes those that are new."""
        for key in added:
            self.partitions.setdefault(key, True)
        for key in forgotten:
            self.partitions.pop(key, None)

    def rotated(self, read_max: int) -> list[TopicIdPartition]:
        """Return the partitions, beginning with another one in each epoch; with those behind the
        last ones if a request reads at most `read_max`, and there are more."""
        keys = list(self.partitions)
        if keys:
            step = 1 if len(keys) <= read_max else read_max
            first = (self.epoch - 1) * step % len(keys)  # the epoch of this request
            keys = keys[first:] + keys[:first]
        return keys

    def must_answer(self, key: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Return whether a response includes this partition; one with records is read last next
        time."""
        is_due = self.partitions.get(key)
        if is_due is None:
            return has_records or has_error
        if has_records:
            del self.partitions[key]
        self.partitions[key] = has_error
        return is_due or has_records or has_error


class ShareSessions:
    """All share sessions of this broker, at most `sessions_max`.

    All together have at most `PARTITIONS_MAX` partitions: above it the largest one is closed. Each
    request may add thousands to its session, which Kafka does not limit.
    """

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._owned: dict[object, dict[tuple[str, str], None]] = {}
        self._members: dict[str, int] = {}
        """Number of sessions, by group."""
        self._groups: dict[object, dict[str, None]] = {}
        """The groups that an owner has read, also those whose sessions are closed."""
        self.partition_count = 0
        """Number of partitions in all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """Return a member's session, or None."""
        return self._sessions.get((group_id, member_id))

    def open(
        self,
        group_id: str,
        member_id: str,
        partitions: Iterable[TopicIdPartition],
        owner: object,
    ) -> ShareSession:
        """Open a session in the place of an older one of the member."""
        self.remove(group_id, member_id)
        if len(self._sessions) >= self._sessions_max:
            raise ShareError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                "The limit of share sessions is reached.",
            )
        session = ShareSession(group_id, member_id, partitions, owner)
        self._sessions[group_id, member_id] = session
        self.partition_count += len(session.partitions)
        self._members[group_id] = self._members.get(group_id, 0) + 1
        self._owned.setdefault(owner, {})[group_id, member_id] = None
        self._groups.setdefault(owner, {})[group_id] = None
        return session

    def update(
        self,
        session: ShareSession,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
    ) -> None:
        """Add and forget partitions of an open session."""
        before = len(session.partitions)
        session.update(added, forgotten)
        self.partition_count += len(session.partitions) - before

    def close_largest(self) -> list[ShareSession]:
        """Close the largest sessions while all have too many partitions; return them."""
        closed = []
        while self.partition_count > PARTITIONS_MAX:
            largest = max(self._sessions.values(), key=lambda each: len(each.partitions))
            self.remove(largest.group_id, largest.member_id)
            closed.append(largest)
        return closed

    def owns(self, owner: object) -> bool:
        """Return whether an owner has had a session, and is not closed."""
        return owner in self._groups

    def resume(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session that a request continues; advance its epoch unless it closes it."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ShareError(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found.")
        if epoch != FINAL_EPOCH:
            if session.epoch != epoch:
                raise ShareError(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The share session epoch is invalid."
                )
            session.epoch = next_epoch(epoch)
        return session

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        """Close a session; None if there was none."""
        session = self._pop((group_id, member_id))
        if session is not None:
            owned = self._owned.get(session.owner)
            if owned is not None:
                owned.pop((group_id, member_id), None)
        return session

    def _pop(self, key: tuple[str, str]) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            left = self._members[session.group_id] = self._members[session.group_id] - 1
            if not left:
                del self._members[session.group_id]
        return session

    def owner_closed(self, owner: object) -> tuple[list[ShareSession], list[str]]:
        """Close the sessions of a connection; return them, and the groups it has read of which no
        member has a session any more."""
        closed = [s for key in self._owned.pop(owner, {}) if (s := self._pop(key)) is not None]
        groups = self._groups.pop(owner, {})
        return closed, [group_id for group_id in groups if not self.has_members(group_id)]

    def has_members(self, group_id: str) -> bool:
        """Return whether any member of a group has a session here."""
        return group_id in self._members
