"""Commits of members of KIP-848 groups: the epoch fences zombies, partition by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.consumer_groups import Life, id_of
from tidelog.coordinators.groups.consumer.commits import Commit, commit_error, fetch_error
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_records import ConsumerGroupMemberMetadataValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.consumer.member import ConsumerMember

NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH
T = id_of("t")
pytestmark = pytest.mark.usefixtures("epochs_from_1")


def lagging() -> Life:
    """Member a is in epoch 3 with partition 0 since epoch 1 and partition 1 since epoch 3; b is in
    epoch 2 and has all that a had to give up."""
    life = Life(t=2)
    life.join("a", "t")
    life.join("b", "t")
    life.beat("a", 1)
    life.beat("a", 1, {T: frozenset({0})})
    life.beat("b", 2)
    life.beat("b", -1)
    life.beat("a", 2)
    assert life.group.members["a"].assigned == {T: {0: 1, 1: 3}}
    return life


@pytest.mark.parametrize(
    ("epoch", "errors"),
    [
        (3, [NONE, NONE, NONE]),  # of the current epoch: whatever it commits
        (2, [NONE, STALE, STALE]),
        (1, [NONE, STALE, STALE]),
        (0, [STALE, STALE, STALE]),
        (4, [STALE, STALE, STALE]),
        (-1, [STALE, STALE, STALE]),
    ],
)
def test_a_lagging_member_commits_what_it_has_had_long_enough(
    epoch: int, errors: list[ErrorCode]
) -> None:
    members = lagging().group.members
    partitions = [(T, 0), (T, 1), (T, 2)]
    commit = Commit("a", epoch)
    assert [commit_error(members, commit, [each]) for each in partitions] == errors
    assert commit_error(members, commit, partitions) is errors[-1], "one refuses all"


def test_what_must_be_revoked_may_still_be_committed() -> None:
    life = Life(t=2)
    life.join("a", "t")
    life.join("b", "t")
    life.beat("a", 1)
    member = life.group.members["a"]
    assert member.revoking == {T: {1: 1}}
    life.group.members["a"] = member._replace(epoch=2)
    assert commit_error(life.group.members, Commit("a", 1), [(T, 1)]) is NONE


def test_commits_from_outside_of_the_group() -> None:
    members = lagging().group.members
    partitions = [(T, 0)]

    def error(commit: Commit, of: Mapping[str, ConsumerMember] = members) -> ErrorCode:
        return commit_error(of, commit, partitions)

    assert error(Commit("", -1), {}) is NONE
    assert error(Commit("", 0), {}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(Commit("", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(Commit("", -1, is_transactional=True)) is NONE
    assert error(Commit("", -1, "i", is_transactional=True)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(Commit("b", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(Commit("a", 3, version=8)) is ErrorCode.UNSUPPORTED_VERSION
    assert error(Commit("a", 3, version=0, is_transactional=True)) is NONE


def test_a_member_of_the_classic_protocol_gets_its_own_errors() -> None:
    group = lagging().group
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()
    member = group.members["a"]
    said = member.subscription._replace(classic=classic)
    group.members["a"] = member._replace(subscription=said)
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert commit_error(group.members, Commit("a", 3, version=8), [(T, 0)]) is NONE
    assert commit_error(group.members, Commit("a", 4), [(T, 0)]) is illegal
    assert commit_error(group.members, Commit("a", 2), [(T, 1)]) is illegal
    assert fetch_error(group.members, "a", 2) is illegal


def test_only_the_current_epoch_fetches() -> None:
    members = lagging().group.members
    assert fetch_error(members, None, -1) is NONE
    assert fetch_error(members, "a", 3) is NONE
    assert fetch_error(members, "a", 2) is STALE
    assert fetch_error(members, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_error(members, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
