"""Handlers of membership, in every version, through dispatch and codecs."""

from __future__ import annotations

import asyncio

import pytest

from broker.group_broker import GroupBroker, Pending, topic, version_range
from broker.test_group_coordinator import join_request, stable_member
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.replication.internal_topics import partition_for
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

NONE = ErrorCode.NONE


def join(broker: GroupBroker, version: int, **more) -> Pending:
    """Join as clients do: again with the id, if one is told first."""
    pending = broker.send(join_request(**more), version)
    if not pending.parked and pending.answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        pending = broker.send(join_request(member_id=pending.answer.member_id, **more), version)
    return pending


@pytest.mark.parametrize("version", version_range(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(version: int) -> None:
    broker = GroupBroker(partitions=4)
    offsets = broker.topics[GROUP_METADATA_TOPIC]
    elsewhere = topic(GROUP_METADATA_TOPIC, offsets.topic_id, 4, leader=2).partitions
    broker.topics[GROUP_METADATA_TOPIC] = offsets._replace(
        partitions=(*offsets.partitions[:2], *elsewhere[2:])
    )
    broker.apply()
    for key in ["g", "h", "i", "j", "k"]:
        answer = broker.ask(FindCoordinatorRequest(key=key, coordinator_keys=[key]), version)
        found = answer.coordinators[0] if version >= 4 else answer
        node = 1 if partition_for(key, 4) < 2 else 2
        assert (found.node_id, found.host, found.port) == (node, "127.0.0.1", 22411 + node)
        assert found.error_code == NONE
        if version:
            assert found.error_message == ("" if version >= 4 else "NONE")


def test_find_coordinator_without_a_living_leader() -> None:
    broker = GroupBroker(partitions=1)
    broker.topics[GROUP_METADATA_TOPIC] = topic(GROUP_METADATA_TOPIC, b"_" * 16, 1, leader=-1)
    broker.apply()
    answer = broker.ask(FindCoordinatorRequest(key="g"), 2)
    assert (answer.error_code, answer.node_id, answer.port) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        -1,
        -1,
    )
    assert answer.error_message == "The coordinator is not available."


@pytest.mark.parametrize(("version", "key_type"), [(6, 2), (2, 9)])
def test_coordinators_that_do_not_run_are_refused(version: int, key_type: int) -> None:
    broker = GroupBroker()
    request = FindCoordinatorRequest(key="t", coordinator_keys=["t"], key_type=key_type)
    answer = broker.ask(request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert broker.created == []


def test_the_first_find_coordinator_creates_the_topic() -> None:
    broker = GroupBroker(partitions=0)
    answer = broker.ask(join_request("g"), 3)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR

    async def find() -> Pending:
        pending = broker.send(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        await asyncio.gather(*broker.dispatcher._tasks)
        return pending

    found = asyncio.run(find()).answer.coordinators[0]
    assert (found.error_code, found.node_id) == (NONE, 1)
    assert broker.created == [GROUP_METADATA_TOPIC]
    stable_member(broker)


@pytest.mark.parametrize("version", version_range(ApiKey.JOIN_GROUP))
def test_two_members_join_in_every_version(version: int) -> None:
    broker = GroupBroker()
    pending = [join(broker, version), join(broker, version)]
    assert all(each.parked for each in pending)
    broker.time.pass_(0)
    leader, follower = (each.answer for each in pending)
    assert (leader.error_code, leader.generation_id) == (NONE, 1)
    assert leader.leader == follower.leader == leader.member_id
    assert leader.protocol_name == "range"
    assert leader.protocol_type == ("consumer" if version >= 7 else None)
    assert {member.member_id for member in leader.members} == {
        leader.member_id,
        follower.member_id,
    }
    assert follower.members == []
    assert leader.member_id.startswith("c-0000")
    member = broker.coordinator.find("g")[1].members[leader.member_id]
    assert member.client_host == "/127.0.0.1"
    assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)


@pytest.mark.parametrize("version", [0, 3, 6, 7, 9])
@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_are_refused(version: int, more: dict[str, object], error: ErrorCode) -> None:
    broker = GroupBroker()
    answer = broker.ask(join_request(**more), version)
    assert answer.error_code == error
    assert answer.generation_id == -1
    assert answer.protocol_name == (None if version >= 7 else "")
    assert answer.member_id == more.get("member_id", "")


def test_static_member_skips_the_assignment_only_from_v9() -> None:
    for version, leads in [(8, False), (9, True)]:
        broker = GroupBroker()
        first = join(broker, version, group_instance_id="i")
        broker.time.pass_(0)
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=first.answer.member_id,
            group_instance_id="i",
            protocol_type="consumer",
            protocol_name="range",
        )
        assert broker.ask(sync, 5).error_code == NONE
        again = join(broker, version, group_instance_id="i").answer
        assert (again.error_code, again.generation_id) == (NONE, 1)
        assert (again.skip_assignment, len(again.members)) == (leads, int(leads))
        old = first.answer.member_id
        assert again.leader == (again.member_id if leads else old)
        heartbeat = HeartbeatRequest(
            group_id="g", generation_id=1, member_id=old, group_instance_id="i"
        )
        assert broker.ask(heartbeat, 4).error_code == ErrorCode.FENCED_INSTANCE_ID
        broker.kill()  # the new id was written before it was told
        heartbeat.member_id = again.member_id
        assert broker.ask(heartbeat, 4).error_code == NONE


@pytest.mark.parametrize("version", version_range(ApiKey.SYNC_GROUP))
def test_sync_in_every_version(version: int) -> None:
    broker = GroupBroker()
    pending = [join(broker, 2), join(broker, 2)]
    broker.time.pass_(0)
    leader, follower = (each.answer.member_id for each in pending)
    syncs = [
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=follower, assignment=b"f")
            ]
            if member_id == leader
            else [],
        )
        for member_id in (follower, leader)
    ]
    parked = broker.send(syncs[0], version)
    assert parked.parked
    answer = broker.ask(syncs[1], version)
    assert (answer.error_code, answer.assignment) == (NONE, b"")
    assert (parked.answer.error_code, parked.answer.assignment) == (NONE, b"f")
    assert parked.answer.protocol_name == ("range" if version >= 5 else None)
    again = broker.ask(syncs[0], version)
    assert again.assignment == b"f"


@pytest.mark.parametrize(
    ("more", "version", "error"),
    [
        ({}, 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # both are mandatory
        ({"protocol_type": "consumer"}, 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": ""}, 4, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "nobody"}, 4, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m"}, 4, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 9}, 4, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_syncs_that_are_refused(more: dict[str, object], version: int, error: ErrorCode) -> None:
    broker = GroupBroker()
    member_id = stable_member(broker)
    fields = {"group_id": "g", "generation_id": 1, "member_id": member_id} | more
    assert broker.ask(SyncGroupRequest(**fields), version).error_code == error


@pytest.mark.parametrize("version", version_range(ApiKey.HEARTBEAT))
def test_heartbeat_in_every_version(version: int) -> None:
    broker = GroupBroker()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=stable_member(broker))
    assert broker.ask(request, version).error_code == NONE
    request.generation_id = 2
    assert broker.ask(request, version).error_code == ErrorCode.ILLEGAL_GENERATION
    request.group_id = "nobody"
    assert broker.ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request.group_id = ""
    assert broker.ask(request, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", version_range(ApiKey.LEAVE_GROUP))
def test_leave_in_every_version(version: int) -> None:
    broker = GroupBroker()
    member_id = stable_member(broker)
    identity = LeaveGroupRequest.MemberIdentity

    def leave(group_id: str, *member_ids: str) -> list[int]:
        members = [identity(member_id=each, reason="done") for each in member_ids]
        request = LeaveGroupRequest(group_id=group_id, member_id=member_ids[0], members=members)
        answer = broker.ask(request, version)
        if version < 3:
            return [answer.error_code]
        assert answer.error_code == NONE
        assert [each.member_id for each in answer.members] == list(member_ids)
        return [each.error_code for each in answer.members]

    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert leave("nobody", member_id) == [unknown]
    if version >= 3:
        assert leave("g", "m", member_id) == [unknown, NONE]
    else:
        assert leave("g", "m") == [unknown]
        assert leave("g", member_id) == [NONE]
    assert leave("g", member_id) == [unknown]


def test_a_join_whose_connection_goes_stays_a_member_until_its_session_ends() -> None:
    broker = GroupBroker()
    first = join(broker, 3)
    first.context.deferred.cancel()  # what the connection does when it is lost
    second = join(broker, 3)
    broker.time.pass_(0)
    assert first.parked
    assert len(broker.coordinator.find("g")[1].members) == 2
    assert second.answer.generation_id == 1
    for _ in range(3):
        broker.time.pass_(4)
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=second.answer.member_id)
        error = broker.ask(request, 3).error_code
    assert error == ErrorCode.REBALANCE_IN_PROGRESS
    again = broker.send(join_request(member_id=second.answer.member_id), 3)
    assert (again.answer.generation_id, len(again.answer.members)) == (2, 1)


def test_values_of_a_parked_join_are_its_own() -> None:
    """The receive buffer is used again while a join waits."""
    broker = GroupBroker()
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"mine")
    pending = broker.send(join_request(protocols=[protocol]), 3)
    broker.time.pass_(0)
    assert type(broker.coordinator.find("g")[1].members.joined("range")[0].metadata) is bytes
    assert pending.answer.members[0].metadata == b"mine"
