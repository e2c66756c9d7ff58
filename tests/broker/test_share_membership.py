"""Share groups over real logs: members, sessions, restarts, administration; all through dispatch.

The share coordinator is a made-up one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.group_broker import GroupBroker
from broker.test_consumer_membership import join as consumer_join
from broker.test_group_coordinator import commit_request, join_request, stable_member
from support.share_groups import SlowPersister
from tidelog.awaiting import called_back, drive
from tidelog.control import broker_state
from tidelog.coordinators.groups.share.driven import DrivenPersister, DrivenTasks
from tidelog.coordinators.groups.share.group import ShareGroup
from tidelog.coordinators.share.values import Deletion, Initialization, Outcome
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog_protocol.messages.group_offsets import OffsetDeleteRequest, OffsetFetchRequest
from tidelog_protocol.messages.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NONE = ErrorCode.NONE
A, B = b"a" * 16, b"b" * 16
SESSION_S = 45


def new_broker(**settings: str) -> GroupBroker:
    return GroupBroker(group_share_assignment_interval_ms="0", **settings)


def beat(broker: GroupBroker, member_id: str, epoch: int, **fields: Any) -> Any:
    fields = {"group_id": "g", **fields}
    return broker.ask(
        ShareGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields), 1
    )


def join(broker: GroupBroker, member_id: str, *names: str, **fields: Any) -> Any:
    return beat(broker, member_id, 0, subscribed_topic_names=list(names or ("a",)), **fields)


def numbers(answer: Any) -> dict[bytes, list[int]] | None:
    assert answer.error_code == NONE, (ErrorCode(answer.error_code), answer.error_message)
    if answer.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


def described(broker: GroupBroker, group_id: str = "g", **fields: Any) -> Any:
    return broker.ask(ShareGroupDescribeRequest(group_ids=[group_id], **fields), 1).groups[0]


def group_of(broker: GroupBroker, group_id: str = "g") -> ShareGroup:
    found = broker.admin.find(group_id)
    assert isinstance(found, ShareGroup)
    return found


def reader(broker: GroupBroker, member_id: str = "m") -> None:
    """A member that reads topic a, in epoch 3."""
    join(broker, member_id)
    beat(broker, member_id, 2)


def refused(answer: Any) -> tuple[ErrorCode, str | None]:
    return ErrorCode(answer.error_code), answer.error_message


def test_a_member_joins_reads_and_leaves() -> None:
    broker = new_broker()
    answer = join(broker, "m", "a", "b")
    assert numbers(answer) == {}
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 2, 5000)
    assert broker.persister.states.keys() == {("g", A, 0), ("g", A, 1), ("g", A, 2), ("g", B, 0)}
    assert {each.state_epoch for each in broker.persister.states.values()} == {2}
    answer = beat(broker, "m", 2)
    assert answer.member_epoch == 3
    assert numbers(answer) == {A: [0, 1, 2], B: [0]}
    assert numbers(beat(broker, "m", 3)) is None
    assert beat(broker, "m", -1).member_epoch == -1
    assert group_of(broker).is_empty
    assert refused(beat(broker, "m", 3)) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Member m is not a member of group g.",
    )


def test_an_answer_does_not_wait_for_the_share_coordinator() -> None:
    broker = new_broker()
    broker.persister.is_holding = True
    assert numbers(join(broker, "m")) == {}
    assert numbers(beat(broker, "m", 2)) is None
    assert broker.persister.calls == ["initialize"]
    broker.persister.release()
    assert numbers(beat(broker, "m", 2)) == {A: [0, 1, 2]}


def test_a_failed_initialization_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    broker = new_broker()
    broker.persister.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    join(broker, "m")
    assert not group_of(broker).partitions.initializing
    assert "The next heartbeat of a member tries again" in caplog.text
    broker.persister.failure = NONE
    assert numbers(beat(broker, "m", 2)) is None
    assert numbers(beat(broker, "m", 2)) == {A: [0, 1, 2]}


def test_a_group_that_is_deleted_meanwhile_is_not_made_again() -> None:
    broker = new_broker()
    broker.persister.is_holding = True
    join(broker, "m")
    beat(broker, "m", -1)
    deletion = broker.send(DeleteGroupsRequest(groups_names=["g"]), 2)
    broker.persister.release()
    assert deletion.answer.results[0].error_code == NONE
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_live_through_a_crash() -> None:
    broker = new_broker()
    reader(broker)
    before = group_of(broker)
    broker.kill()
    after = group_of(broker)
    assert after is not before
    assert (after.members, after.targets) == (before.members, before.targets)
    assert (after.partitions, after.epoch) == (before.partitions, before.epoch)
    assert numbers(beat(broker, "m", 3)) is None
    broker.time.pass_(SESSION_S)
    assert group_of(broker).is_empty


def test_an_initialization_under_way_at_a_crash_is_begun_again() -> None:
    broker = new_broker()
    broker.persister.is_holding = True
    join(broker, "m")
    broker.persister = SlowPersister()  # the answer never comes
    broker.kill()
    beat(broker, "m", 2)
    assert numbers(beat(broker, "m", 2)) == {A: [0, 1, 2]}


def test_deleted_topics_leave_the_group() -> None:
    broker = new_broker()
    join(broker, "m", "a", "b")
    beat(broker, "m", 2)
    del broker.topics["a"]
    broker.apply()
    assert group_of(broker).partitions.initialized.keys() == {B}
    assert numbers(beat(broker, "m", 3)) == {B: [0]}


def test_settings_of_the_group_take_effect() -> None:
    broker = new_broker()
    own = {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "7000"}
    broker.group_configs = {"g": own}
    broker.apply()
    assert join(broker, "m").heartbeat_interval_ms == 7000
    broker.time.pass_(49)
    assert group_of(broker).members
    broker.time.pass_(1)
    assert group_of(broker).is_empty
    join(broker, "m")
    broker.group_configs = {}
    broker.apply()
    assert beat(broker, "m", group_of(broker).members["m"].epoch).heartbeat_interval_ms == 5000


def test_a_cluster_without_the_feature_refuses_all_of_it() -> None:
    broker = new_broker()
    broker.features = {}
    broker.apply()
    assert refused(join(broker, "m")) == (ErrorCode.UNSUPPORTED_VERSION, None)
    assert refused(described(broker)) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_a_full_group() -> None:
    broker = new_broker(group_share_max_size="1")
    join(broker, "m")
    assert refused(join(broker, "n"))[0] == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_sessions_end_by_order() -> None:
    broker = new_broker()
    reader(broker)
    join(broker, "n")
    assert broker.coordinator.end_sessions("g", "n") == 1
    assert group_of(broker).members.keys() == {"m"}
    assert broker.coordinator.end_sessions("g") == 1
    assert group_of(broker).is_empty


def test_description() -> None:
    broker = new_broker()
    reader(broker)
    group = described(broker, include_authorized_operations=True)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert (group.assignor_name, group.authorized_operations) == ("simple", 3400)
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == ("m", 3, "c")
    assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", ["a"])
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (A, "a", [0, 1, 2])
    assert described(broker, "other").error_message == "Group other not found."
    assert described(broker, "other").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(described(broker, "")) == (ErrorCode.INVALID_GROUP_ID, None)


def test_lists_and_other_descriptions() -> None:
    broker = new_broker()
    reader(broker)
    (listed,) = broker.ask(ListGroupsRequest(types_filter=["share"]), 5).groups
    assert (listed.group_id, listed.group_type) == ("g", "share")
    assert (listed.protocol_type, listed.group_state) == ("share", "Stable")
    assert not broker.ask(ListGroupsRequest(types_filter=["consumer"]), 5).groups
    (classic,) = broker.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert classic.error_message == "Group g is not a classic group."
    state = broker_state._group(1, group_of(broker), broker.image, {})
    assert (state.generation, state.protocol, state.state) == (3, "simple", "Stable")
    assert state.members[0].assignment == {"a": (0, 1, 2)}


def test_deletion_of_a_group_deletes_its_state_first() -> None:
    broker = new_broker()
    reader(broker)
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert broker.ask(delete, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    beat(broker, "m", -1)
    broker.persister.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = broker.ask(delete, 2).results[0].error_code
    assert error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group_of(broker).partitions.deleting == {A: "a"}
    broker.persister.failure = NONE
    assert broker.ask(delete, 2).results[0].error_code == NONE
    assert broker.persister.states == {}
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND
    broker.kill()
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_does_not_expire() -> None:
    broker = new_broker()
    reader(broker)
    beat(broker, "m", -1)
    broker.admin.expire_offsets()
    assert group_of(broker).is_empty


def classic_joins(broker: GroupBroker) -> Any:
    return broker.ask(join_request("g"), 9)


def consumer_joins(broker: GroupBroker) -> Any:
    return consumer_join(broker, "n")


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize(
    ("request_of", "code", "message"),
    [
        (classic_joins, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None),
        (consumer_joins, ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group."),
    ],
)
def test_members_of_other_protocols_are_refused(
    request_of: Callable[[GroupBroker], Any], code: ErrorCode, message: str | None, is_empty: bool
) -> None:
    broker = new_broker()
    reader(broker)
    if is_empty:
        beat(broker, "m", -1)
    answer = request_of(broker)
    assert answer.error_code == code
    assert getattr(answer, "error_message", None) == message
    group_of(broker)


def test_share_members_do_not_join_groups_of_other_protocols() -> None:
    broker = new_broker()
    stable_member(broker)
    consumer_join(broker, "n", group_id="h")
    for group_id in ("g", "h"):
        assert refused(join(broker, "m", group_id=group_id)) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} is not a share group.",
        )
        assert (
            described(broker, group_id).error_message == f"Group {group_id} is not a share group."
        )
    for epoch, message in ((1, "Share group i not found."), (-1, "Group i not found.")):
        assert refused(beat(broker, "m", epoch, group_id="i")) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            message,
        )


def test_a_share_group_has_no_committed_offsets() -> None:
    broker = new_broker()
    reader(broker)
    answer = broker.ask(commit_request("g", 7), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    fetch = OffsetFetchRequest(group_id="g", topics=None)
    assert broker.ask(fetch, 7).error_code == NONE
    delete = OffsetDeleteRequest(group_id="g", topics=[])
    assert broker.ask(delete, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_persister_runs_in_tasks_that_end_with_it() -> None:
    class Slow(SlowPersister):
        async def initialize(self, group_id: str, items: Any) -> list[Outcome]:
            await asyncio.sleep(0)
            return await super().initialize(group_id, items)

        async def delete(self, group_id: str, items: Any) -> list[Outcome]:
            await asyncio.sleep(3600)
            return []

    async def play() -> None:
        slow = Slow()
        tasks = DrivenTasks()
        driven = DrivenPersister(slow, tasks)
        items = [Initialization(A, 0, 1)]
        found = await called_back(lambda on_done: drive(driven.initialize("g", items), on_done))
        assert found == [Outcome()]
        assert slow.states.keys() == {("g", A, 0)}
        await asyncio.sleep(0)
        answers: list[Any] = []
        drive(driven.delete("g", [Deletion(A, 0)]), answers.append)
        (task,) = tasks._tasks
        tasks.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert answers == []

    asyncio.run(play())
