"""DescribeGroups, ListGroups, DeleteGroups in every version."""

from __future__ import annotations

import pytest

from broker.group_broker import GroupBroker, version_range
from broker.test_group_coordinator import commit_request, join_request, stable_member
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)

NONE = ErrorCode.NONE


@pytest.fixture
def broker() -> GroupBroker:
    """A stable group, one that rebalances, one of offsets alone."""
    broker = GroupBroker()
    stable_member(broker, "stable", group_instance_id=None)
    broker.send(join_request("joining"), 3)
    broker.ask(commit_request("simple", 1), 7)
    return broker


@pytest.mark.parametrize("version", version_range(ApiKey.DESCRIBE_GROUPS))
def test_describe(broker: GroupBroker, version: int) -> None:
    names = ["stable", "joining", "simple", "nobody"]
    answer = broker.ask(DescribeGroupsRequest(groups=names), version)
    stable, joining, simple, nobody = answer.groups
    assert [each.group_id for each in answer.groups] == names
    assert [each.group_state for each in answer.groups] == [
        "Stable",
        "PreparingRebalance",
        "Empty",
        "Dead",
    ]
    assert [each.protocol_type for each in answer.groups] == ["consumer", "consumer", "", ""]
    assert (stable.protocol_data, joining.protocol_data) == ("range", "")
    (member,) = stable.members
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert member.member_metadata.startswith(b"\x00\x00\x00\x00\x00\x01")
    assert member.member_assignment == b"all"
    (member,) = joining.members
    assert (member.member_metadata, member.member_assignment) == (b"", b"")
    assert simple.error_code == NONE
    assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    assert nobody.error_message == ("Group nobody not found." if version >= 6 else None)
    assert {each.authorized_operations for each in answer.groups} == {-(1 << 31)}


def test_authorized_operations_are_all_that_a_group_has(broker: GroupBroker) -> None:
    request = DescribeGroupsRequest(groups=["stable", "nobody"], include_authorized_operations=True)
    assert [each.authorized_operations for each in broker.ask(request, 5).groups] == [3400, 3400]
    assert broker.ask(request, 6).groups[1].authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", version_range(ApiKey.LIST_GROUPS))
def test_list(broker: GroupBroker, version: int) -> None:
    answer = broker.ask(ListGroupsRequest(), version)
    assert answer.error_code == NONE
    listed = {each.group_id: each for each in answer.groups}
    assert {name: each.protocol_type for name, each in listed.items()} == {
        "stable": "consumer",
        "joining": "consumer",
        "simple": "",
    }
    if version >= 4:
        assert listed["joining"].group_state == "PreparingRebalance"
    if version >= 5:
        assert {each.group_type for each in answer.groups} == {"classic"}


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        (["Stable"], [], {"stable"}),
        ([" stable", "EMPTY "], [], {"stable", "simple"}),
        (["nonsense"], [], set()),
        ([], ["Classic"], {"stable", "joining", "simple"}),
        ([], ["consumer"], set()),
        ([], ["nonsense"], set()),
        (["empty"], ["consumer", "classic"], {"simple"}),
    ],
)
def test_list_filters(
    broker: GroupBroker, states: list[str], types: list[str], names: set[str]
) -> None:
    answer = broker.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert {each.group_id for each in answer.groups} == names


def test_delete_does_not_wait_for_the_timer_of_a_session_that_ended(broker: GroupBroker) -> None:
    """A busy loop reads requests before it looks at its timers."""
    request = DeleteGroupsRequest(groups_names=["stable"])
    broker.time.seconds += 9.9  # the session has 10 s
    assert broker.ask(request, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    broker.time.seconds += 0.1
    assert broker.ask(request, 2).results[0].error_code == NONE
    broker.time.pass_(60)
    (gone,) = broker.ask(DescribeGroupsRequest(groups=["stable"]), 5).groups
    assert gone.group_state == "Dead"


@pytest.mark.parametrize("version", version_range(ApiKey.DELETE_GROUPS))
def test_delete(broker: GroupBroker, version: int) -> None:
    names = ["simple", "stable", "joining", "nobody", "simple", ""]
    answer = broker.ask(DeleteGroupsRequest(groups_names=names), version)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("simple", NONE),
        ("stable", ErrorCode.NON_EMPTY_GROUP),
        ("joining", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert broker.ask(DeleteGroupsRequest(), version).results == []
