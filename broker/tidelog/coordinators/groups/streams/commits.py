"""May a member commit or fetch offsets? The fencing by member epochs of KIP-1071. Pure.

A member that lags behind its epoch may still commit what its active tasks read, if it has had them
since an epoch no later than the one it names. The rules are those of Kafka 4.3.1's StreamsGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.groups.consumer.commits import Commit
    from tidelog.coordinators.groups.streams.group import StreamsGroup
    from tidelog.coordinators.groups.streams.member import StreamsMember

    TopicPartition = tuple[str, int]
    """A topic's name and a partition."""

__all__ = ["commit_error", "fetch_error"]

_MEMBER_EPOCH_VERSION = 9  # of OffsetCommit, the first for members of KIP-1071


def commit_error(
    group: StreamsGroup, commit: Commit, partitions: Iterable[TopicPartition]
) -> ErrorCode:
    """Return the error of a commit; one partition that may not be committed refuses all."""
    member = group.members.get(commit.member_id)
    error = _whole_error(group, member, commit)
    if member is None or error is not ErrorCode.NONE or commit.epoch == member.epoch:
        return error
    for topic, partition in partitions:
        since = _assigned_since(member, group.subtopology_of(topic), partition)
        if since is None or commit.epoch < since:
            return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE


def _whole_error(group: StreamsGroup, member: StreamsMember | None, commit: Commit) -> ErrorCode:
    """Return the error that does not depend on the partitions."""
    if commit.epoch < 0 and not group.members:  # an admin client
        return ErrorCode.NONE
    is_unnamed = (commit.member_id, commit.epoch, commit.instance_id) == ("", -1, None)
    if commit.is_transactional and is_unnamed:
        return ErrorCode.NONE
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not commit.is_transactional and commit.version < _MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.STALE_MEMBER_EPOCH if commit.epoch > member.epoch else ErrorCode.NONE


def fetch_error(group: StreamsGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return the error of an OffsetFetch; only the member's own epoch will do."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH


def _assigned_since(member: StreamsMember, subtopology: str | None, partition: int) -> int | None:
    """Return the epoch at which the member got an active task that it has or must give back."""
    if subtopology is None:
        return None
    for held in (member.assigned, member.revoking):
        since = held.active.get(subtopology, {}).get(partition)
        if since is not None:
            return since
    return None
