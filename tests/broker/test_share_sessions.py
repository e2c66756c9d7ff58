"""Share sessions: epochs, the partitions of an answer, limits, owners."""

from __future__ import annotations

import pytest

import tidelog.shares.sessions as sessions_module
from tidelog.shares.records import ShareError
from tidelog.shares.sessions import FINAL_EPOCH, ShareSession, ShareSessions
from tidelog_protocol.errors import ErrorCode

A, B, C = ((bytes(15) + bytes([number]), 0) for number in (1, 2, 3))


def error_of(sessions: ShareSessions, epoch: int) -> ErrorCode:
    with pytest.raises(ShareError) as caught:
        sessions.resume("g", "m", epoch)
    return caught.value.code


def test_epochs_follow_each_other_and_wrap() -> None:
    sessions = ShareSessions(1)
    assert error_of(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = sessions.open("g", "m", [A], owner=1)
    assert session.epoch == 1
    assert sessions.resume("g", "m", 1).epoch == 2
    assert error_of(sessions, 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = 2**31 - 1
    assert sessions.resume("g", "m", 2**31 - 1).epoch == 1
    assert sessions.resume("g", "m", FINAL_EPOCH) is session
    assert session.epoch == 1


def test_the_first_partition_changes_with_each_epoch() -> None:
    session = ShareSession("g", "m", [A, B, C], owner=None)
    orders = []
    for epoch in range(1, 5):
        session.epoch = epoch
        orders.append(session.rotated(9))
    assert orders == [[A, B, C], [B, C, A], [C, A, B], [A, B, C]]
    session.update((), [A, B, C])
    assert session.rotated(9) == []


def test_of_more_than_are_read_others_come_first_in_each_epoch() -> None:
    keys = [(bytes(16), index) for index in range(5)]
    session = ShareSession("g", "m", keys, None)
    firsts = []
    for epoch in range(1, 5):
        session.epoch = epoch
        firsts.append(session.rotated(2)[0][1])
    assert firsts == [0, 2, 4, 1]


def test_an_answer_names_what_is_new_or_failed() -> None:
    session = ShareSession("g", "m", [A], owner=None)
    session.update([A, B], [])

    def is_named(key: tuple[bytes, int], *, records: bool = False, error: bool = False) -> bool:
        return session.must_answer(key, has_records=records, has_error=error)

    assert not is_named(A)
    assert is_named(B)
    assert not is_named(B)
    assert is_named(A, records=True)
    assert list(session.partitions) == [B, A], "it is read last next time"
    assert is_named(B, error=True)
    assert is_named(B), "so that the client sees that the error is over"
    assert not is_named(B)
    assert not is_named(C)
    assert is_named(C, error=True), "it was forgotten while it was read"
    assert C not in session.partitions


def test_their_number_is_limited() -> None:
    sessions = ShareSessions(2)
    sessions.open("g", "m", [A], owner=1)
    sessions.open("g", "n", [A], owner=2)
    with pytest.raises(ShareError, match="limit"):
        sessions.open("g", "o", [A], owner=3)
    sessions.open("g", "m", [B], owner=3)  # in the place of its older one
    assert len(sessions) == 2


def test_they_end_with_their_owner() -> None:
    sessions = ShareSessions(9)
    sessions.open("g", "m", [A], owner=1)
    sessions.open("h", "m", [A], owner=1)
    other = sessions.open("h", "n", [A], owner=2)
    assert sessions.owns(1)
    closed, empty = sessions.owner_closed(1)
    assert [(each.group_id, each.member_id) for each in closed] == [("g", "m"), ("h", "m")]
    assert empty == ["g"]
    assert not sessions.owns(1)
    assert sessions.get("h", "n") is other
    # a member that came back on another connection keeps its session
    sessions.open("h", "n", [A], owner=3)
    assert sessions.owner_closed(2) == ([], [])
    sessions.remove("h", "n")
    assert sessions.owner_closed(3) == ([], ["h"])


def test_all_sessions_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "PARTITIONS_MAX", 5)
    sessions = ShareSessions(9)
    small = sessions.open("g", "m", [A, B], owner=1)
    large = sessions.open("g", "n", [A, B, C], owner=1)
    assert (sessions.partition_count, sessions.close_largest()) == (5, [])
    sessions.update(small, [B, C], [A])
    assert (sessions.partition_count, sessions.close_largest()) == (5, [])
    sessions.update(small, [A], [])
    assert sessions.partition_count == 6
    assert sessions.close_largest() == [small], "the first of the largest"
    assert sessions.get("g", "m") is None
    assert sessions.partition_count == 3
    sessions.update(large, [], [A, B, C])
    sessions.owner_closed(1)
    assert sessions.partition_count == 0
