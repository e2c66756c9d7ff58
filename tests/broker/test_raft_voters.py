"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter of a quorum with static voters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.quorum_nodes import CLUSTER_ID, simulate
from tidelog.api.describe_quorum import Voter
from tidelog.api.raft_voters import RaftVotersApi
from tidelog.cluster.quorum.voter_changes import VoterChanges
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.raft_voters import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)

if TYPE_CHECKING:
    from support.quorum_nodes import QuorumNode, QuorumWorld

DIRECTORY = bytes(15) + b"\x07"
LISTENER = AddRaftVoterRequest.Listener(name="controller", host="somewhere", port=9)
FEATURE = UpdateRaftVoterRequest.KRaftVersionFeature(
    min_supported_version=0, max_supported_version=1
)

DYNAMIC_ONLY = UpdateRaftVoterRequest.KRaftVersionFeature(
    min_supported_version=1, max_supported_version=1
)


def api_of(node: QuorumNode) -> RaftVotersApi:
    voters = [Voter(n, "CONTROLLER", f"node{n}", 9093) for n in (1, 2, 3)]
    changes = VoterChanges(node.quorum, "CONTROLLER", lambda host, port: pytest.fail("static"))
    return RaftVotersApi(node.quorum, changes, lambda: voters)


def add(**fields: Any) -> AddRaftVoterRequest:
    asked = {"cluster_id": CLUSTER_ID, "timeout_ms": 1000, "voter_id": 4}
    rest = {"voter_directory_id": DIRECTORY, "listeners": [LISTENER]}
    return AddRaftVoterRequest(**{**asked, **rest, **fields})


def update(**fields: Any) -> UpdateRaftVoterRequest:
    listener = UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="somewhere", port=9)
    asked = {"cluster_id": CLUSTER_ID, "current_leader_epoch": 1, "voter_id": 2}
    rest = {"voter_directory_id": DIRECTORY, "listeners": [listener]}
    return UpdateRaftVoterRequest(**{**asked, **rest, "kraft_version_feature": FEATURE, **fields})


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({}, ErrorCode.UNSUPPORTED_VERSION, "the kraft.version feature is 0"),
        ({"cluster_id": None, "voter_id": 1}, ErrorCode.UNSUPPORTED_VERSION, "adding voter"),
        ({"cluster_id": "x"}, ErrorCode.INCONSISTENT_CLUSTER_ID, 'The given id "x" doesn\'t'),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST, "didn't include a valid voter"),
        ({"voter_directory_id": bytes(16)}, ErrorCode.INVALID_REQUEST, "valid voter"),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST, "the default listener"),
    ],
)
def test_static_voters_cannot_be_added_to(
    fields: dict[str, Any], error: ErrorCode, text: str
) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        answer = await api_of(await world.elected()).add(None, add(**fields))  # type: ignore[arg-type]
        assert answer.error_code == error
        assert text in (answer.error_message or "")

    simulate(story)


def test_only_the_leader_answers() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        follower = next(node for node in world.live if node is not leader)
        removal = RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=DIRECTORY)
        here, there = api_of(leader), api_of(follower)
        for answer in (
            await there.add(None, add()),  # type: ignore[arg-type]
            await there.remove(None, removal),  # type: ignore[arg-type]
            there.update(None, update()),  # type: ignore[arg-type]
        ):
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = await here.remove(None, removal)  # type: ignore[arg-type]
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "removing voter" in answer.error_message

    simulate(story)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"voter_id": 4}, ErrorCode.VOTER_NOT_FOUND),
        ({"kraft_version_feature": DYNAMIC_ONLY}, ErrorCode.INVALID_REQUEST),
        ({"cluster_id": "x"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_update_is_checked_and_names_the_leader(
    fields: dict[str, Any], error: ErrorCode
) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        answer = api_of(leader).update(None, update(**fields))  # type: ignore[arg-type]
        assert answer.error_code == error
        current = answer.current_leader
        assert current is not None
        assert (current.leader_id, current.leader_epoch) == (leader.node_id, 1)
        assert (current.host, current.port) == (leader.host, 9093)

    simulate(story)
