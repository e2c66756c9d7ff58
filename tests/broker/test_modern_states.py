"""The tables of the states of groups and of their members (Kafka's CurrentAssignmentBuilder)."""

from __future__ import annotations

import pytest

from tidelog.coordinators.groups.consumer.member import ConsumerMember
from tidelog.coordinators.groups.consumer.records import RECORDS as CONSUMERS
from tidelog.coordinators.groups.modern.reconciliation import must_wait
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.states import (
    MemberState,
    ModernGroupState,
    is_reconciled,
    state_of,
)
from tidelog.coordinators.groups.share.records import RECORDS as SHARES
from tidelog.coordinators.groups.streams.member import StreamsMember
from tidelog.coordinators.groups.streams.records import RECORDS as STREAMS


class Group:
    """One that has members of the last assignment, unless it is told otherwise."""

    def __init__(self, kind: str, **changes: bool) -> None:
        self.type = kind
        self.epoch, self.assignment_epoch = 5, 5 - changes.get("is_behind", False)
        self.is_empty = changes.get("is_empty", False)
        self.is_ready = changes.get("is_ready", True)
        self.is_reconciled = changes.get("is_reconciled", True)


@pytest.mark.parametrize(
    ("kind", "changes", "state"),
    [
        ("consumer", {"is_empty": True, "is_behind": True}, ModernGroupState.EMPTY),
        ("consumer", {"is_behind": True, "is_reconciled": False}, ModernGroupState.ASSIGNING),
        ("consumer", {"is_reconciled": False}, ModernGroupState.RECONCILING),
        ("consumer", {}, ModernGroupState.STABLE),
        ("share", {"is_empty": True}, ModernGroupState.EMPTY),
        ("share", {"is_behind": True, "is_reconciled": False}, ModernGroupState.STABLE),
        ("streams", {"is_empty": True, "is_ready": False}, ModernGroupState.EMPTY),
        ("streams", {"is_ready": False, "is_behind": True}, ModernGroupState.NOT_READY),
        ("streams", {"is_behind": True}, ModernGroupState.ASSIGNING),
        ("streams", {"is_reconciled": False}, ModernGroupState.RECONCILING),
        ("streams", {}, ModernGroupState.STABLE),
    ],
)
def test_a_group_is_in_the_first_state_that_holds(
    kind: str, changes: dict[str, bool], state: ModernGroupState
) -> None:
    assert state_of(Group(kind, **changes)) is state


@pytest.mark.parametrize(
    ("state", "epoch", "waits"),
    [  # of one that owns nothing, something, or what it must give up
        (MemberState.STABLE, 5, (True, True, True)),
        (MemberState.STABLE, 4, (False, False, False)),
        (MemberState.UNREVOKED, 4, (False, False, True)),
        (MemberState.UNRELEASED, 5, (False, False, False)),
        (MemberState.UNKNOWN, 4, (False, "again", "again")),
    ],
)
def test_a_member_waits_by_its_state(
    state: MemberState, epoch: int, waits: tuple[bool | str, ...]
) -> None:
    member = ConsumerMember("m", epoch=epoch, state=state)
    found: list[bool | str] = []
    for owns_any, owns_revoked in ((False, False), (True, False), (True, True)):
        try:
            found.append(
                must_wait(member, 5, owns_any=owns_any, owns_revoked=owns_revoked, refusal="again")
            )
        except RefusedError as refused:
            found.append(str(refused))
    assert tuple(found) == waits


def test_who_waits_for_others_is_not_reconciled() -> None:
    member = ConsumerMember("m", epoch=5)
    assert is_reconciled(member, 5)
    assert not is_reconciled(member, 6)
    assert not is_reconciled(member._replace(state=MemberState.UNRELEASED), 5)


def test_records_have_the_numbers_of_kafkas_states() -> None:
    def written(records, member):
        return records.assignment_record("g", member).value.state

    for number, state in enumerate(MemberState):
        consumer = ConsumerMember("m", state=state)
        streams = StreamsMember("m", state=state)
        expected = 127 if state is MemberState.UNKNOWN else number
        assert written(CONSUMERS, consumer) == expected
        assert written(STREAMS, streams) == min(127, expected + 1)
    for records, first in ((CONSUMERS, 0), (SHARES, 0), (STREAMS, 1)):
        states = [records.state_of(first + n) for n in range(4)]
        assert states == [*MemberState]
        assert records.state_of(127) is MemberState.UNKNOWN
    assert STREAMS.state_of(0) is MemberState.UNKNOWN
