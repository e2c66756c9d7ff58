"""What consumer, share and streams groups share: deadlines, targets that change, refusals."""

from __future__ import annotations

import pytest

from support.consumer_groups import Life
from support.share_groups import ShareLife
from support.streams_groups import StreamsLife
from tidelog.coordinators.groups.consumer.member import ConsumerMember
from tidelog.coordinators.groups.consumer.records import RECORDS
from tidelog.coordinators.groups.modern.deadlines import Deadlines
from tidelog.coordinators.groups.modern.draft import target_records
from tidelog.coordinators.groups.modern.records import Record, group_type, removes_group
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.now import Now
from tidelog_protocol.errors import ErrorCode

A = ConsumerMember("a", epoch=3)


def test_a_session_ends_once() -> None:
    deadlines = Deadlines()
    deadlines.alive("a", 100)
    deadlines.alive("a", 150)
    assert deadlines.next_ms({"a": A}) == 150
    assert deadlines.late({"a": A}, Now(149, 0)) == set()
    assert deadlines.late({"a": A}, Now(150, 0)) == {"a"}
    assert deadlines.late({"a": A}, Now(151, 0)) == set()
    assert deadlines.next_ms({"a": A}) is None


def test_who_is_due_is_looked_for_only_once_a_deadline_has_come() -> None:
    deadlines = Deadlines()
    deadlines.alive("a", 100)
    assert deadlines.next_ms({"a": A}) == 100
    deadlines.alive("a", 150)
    assert deadlines.next_ms({"a": A}) == 100, "too early, which costs one look"
    assert deadlines.late({"a": A}, Now(100, 0)) == set()
    assert deadlines.next_ms({"a": A}) == 150
    deadlines.changed(A, 20, Now(100, 0))
    assert deadlines.next_ms({"a": A}) == 120, "an earlier one counts at once"
    assert deadlines.next_ms({}) is None


def test_a_member_has_its_time_to_revoke_in_one_epoch() -> None:
    deadlines = Deadlines()
    deadlines.changed(A, 10, Now(0, 0))
    assert deadlines.next_ms({"a": A}) == 10
    assert deadlines.late({"a": A._replace(epoch=4)}, Now(10, 0)) == set(), "it has gone on"
    deadlines.changed(A, 10, Now(0, 0))
    assert deadlines.late({"a": A}, Now(10, 0)) == {"a"}
    deadlines.changed(A, 10, Now(0, 0))
    deadlines.changed(A, None, Now(5, 0))
    assert deadlines.next_ms({"a": A}) is None


def test_of_many_that_are_late_some_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.coordinators.groups.modern.deadlines.LATE_AT_ONCE", 2)
    deadlines = Deadlines()
    members = {name: ConsumerMember(name) for name in "abc"}
    for name in members:
        deadlines.alive(name, 10)
    deadlines.changed(members["c"], 5, Now(0, 0))
    assert deadlines.late(members, Now(10, 0)) == {"a", "b"}
    assert deadlines.next_ms(members) == 5, "the rest is due"
    assert deadlines.late(members, Now(10, 0)) == {"c"}
    assert deadlines.next_ms(members) is None


def test_members_that_are_gone_have_no_deadline() -> None:
    more = {"a": 5, "b": 5}
    deadlines = Deadlines(more)
    deadlines.alive("a", 10)
    deadlines.alive("b", 20)
    deadlines.changed(A, 1, Now(0, 0))
    assert deadlines.next_ms({"b": ConsumerMember("b")}) == 5
    assert more == {"b": 5}
    assert deadlines.late({"b": ConsumerMember("b")}, Now(30, 0)) == {"b"}


def test_only_targets_that_change_are_written() -> None:
    before = {"a": {b"t": frozenset({1})}, "b": {b"t": frozenset({2})}}
    after = {"c": {}, "a": before["a"], "b": {b"t": frozenset({3})}}
    found = target_records(RECORDS, "g", before, after)
    assert [each.key.member_id for each in found] == ["b", "c"]
    assert [RECORDS.target_of(each.value) for each in found] == [after["b"], {}]


@pytest.mark.parametrize(
    "life", [Life(), ShareLife(), StreamsLife()], ids=lambda each: each.group.type
)
def test_every_type_removes_a_group_last_of_all(life: Life | ShareLife | StreamsLife) -> None:
    group = life.group
    removed = group.tombstones()
    assert {group_type(each) for each in removed} == {group.type}
    assert sum(map(removes_group, removed)) == 1
    assert not removes_group(Record(group.records.target_epoch_key(group_id="g")))
    with pytest.raises(RefusedError) as refused:
        group.must_have("gone")
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
