"""May a member commit or fetch offsets? The fencing by member epochs of KIP-848 and KIP-1251. Pure.

A member that lags behind its epoch may still commit what it has had since an epoch no later than
the one it names: it is not a zombie for that partition. The rules are those of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.groups.consumer.member import ConsumerMember

    Partition = tuple[bytes, int]
    """A topic's id and a partition."""

__all__ = ["Commit", "commit_error", "fetch_error"]

_MEMBER_EPOCH_VERSION = 9  # of OffsetCommit, the first for members of KIP-848


class Commit(NamedTuple):
    """What a commit says of its member; epoch -1 outside of group management."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    version: int = _MEMBER_EPOCH_VERSION  # of OffsetCommit; no matter in a transaction
    is_transactional: bool = False


def commit_error(
    members: Mapping[str, ConsumerMember], commit: Commit, partitions: Iterable[Partition]
) -> ErrorCode:
    """Return the error of a commit; one partition that may not be committed refuses all."""
    member = members.get(commit.member_id)
    error = _whole_error(members, member, commit)
    if member is None or error is not ErrorCode.NONE or commit.epoch == member.epoch:
        return error
    for topic, partition in partitions:
        since = _assigned_since(member, topic, partition)
        if since is None or commit.epoch < since:
            return _stale(member)
    return ErrorCode.NONE


def _whole_error(
    members: Mapping[str, ConsumerMember], member: ConsumerMember | None, commit: Commit
) -> ErrorCode:
    """Return the error that does not depend on the partitions."""
    if commit.epoch < 0 and not members:  # an admin client, or a consumer without a group
        return ErrorCode.NONE
    if member is None:
        is_anyone = (commit.member_id, commit.epoch, commit.instance_id) == ("", -1, None)
        is_outside = commit.is_transactional and is_anyone
        return ErrorCode.NONE if is_outside else ErrorCode.UNKNOWN_MEMBER_ID
    is_old = not commit.is_transactional and commit.version < _MEMBER_EPOCH_VERSION
    if is_old and member.subscription.classic is None:
        return ErrorCode.UNSUPPORTED_VERSION
    return _stale(member) if commit.epoch > member.epoch else ErrorCode.NONE


def fetch_error(
    members: Mapping[str, ConsumerMember], member_id: str | None, epoch: int
) -> ErrorCode:
    """Return the error of an OffsetFetch; only the member's own epoch will do."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    if member.subscription.classic is None:
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION


def _assigned_since(member: ConsumerMember, topic: bytes, partition: int) -> int | None:
    """Return the epoch at which the member got a partition that it has or must revoke."""
    for epochs in (member.assigned, member.revoking):
        since = epochs.get(topic, {}).get(partition)
        if since is not None:
            return since
    return None
