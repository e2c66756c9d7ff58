"""Tables of the requests that change the voters of the metadata quorum (KIP-853): AddRaftVoter,
RemoveRaftVoter and UpdateRaftVoter."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uint16,
    uuid,
)

__all__ = [
    "AddRaftVoterRequest",
    "AddRaftVoterResponse",
    "RemoveRaftVoterRequest",
    "RemoveRaftVoterResponse",
    "UpdateRaftVoterRequest",
    "UpdateRaftVoterResponse",
]


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    """Make a controller that follows the metadata log a voter.

    v1: whether to answer before the change is committed (KIP-1186)
    """

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    """Whether the voter was added."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    """Remove a voter; it may be the leader."""

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    """Whether the voter was removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateRaftVoterRequest(Message, api_key=82, versions="0", flexible="0+"):
    """A voter reports its addresses and the levels of `kraft.version` that it supports."""

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    class KRaftVersionFeature(Struct):
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class UpdateRaftVoterResponse(Message, api_key=82, versions="0", flexible="0+"):
    """Whether the leader took the report, and the leader that this node knows."""

    class CurrentLeader(Struct):
        leader_id: int = int32(default=-1)
        leader_epoch: int = int32(default=-1)
        host: str = string()
        port: int = int32()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = struct(CurrentLeader, tag=0)
