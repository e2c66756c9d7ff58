"""Tables of the quorum over the metadata log.

Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum and FetchSnapshot; Fetch (in `data`) reads
the log itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uint16,
    uuid,
)

if TYPE_CHECKING:
    from tidelog_protocol.schema import Records

__all__ = [
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "VoteRequest",
    "VoteResponse",
]


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    """A replica stands for election (KIP-595).

    v1: directory ids of candidate and voter, id of the intended voter (KIP-853)
    v2: pre-votes, which change no epoch (KIP-996)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = int32()
            replica_epoch: int = int32()  # a candidate's is one more than before
            replica_id: int = int32()
            replica_directory_id: bytes = uuid("1+")
            voter_directory_id: bytes = uuid("1+")
            last_offset_epoch: int = int32()  # of the last record
            last_offset: int = int64()  # the log end offset
            pre_vote: bool = boolean("2+")

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[TopicData] = array(TopicData)

    PartitionData = TopicData.PartitionData


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    """Whether the vote is granted, and the leader if known (KIP-595).

    v1: the leader's endpoint, tagged (KIP-853)
    v2: answers pre-votes too (KIP-996)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()  # -1 unknown
            leader_epoch: int = int32()  # the latest known
            vote_granted: bool = boolean()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)

    PartitionData = TopicData.PartitionData


class BeginQuorumEpochRequest(Message, api_key=53, versions="0-1", flexible="1+"):
    """A new leader announces itself to the voters (KIP-595).

    v1: flexible; id and directory id of the intended voter, the leader's endpoints (KIP-853)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = int32()
            voter_directory_id: bytes = uuid("1+")
            leader_id: int = int32()
            leader_epoch: int = int32()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class LeaderEndpoint(Struct):
        name: str = string()  # of the listener
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+")

    PartitionData = TopicData.PartitionData


class BeginQuorumEpochResponse(Message, api_key=53, versions="0-1", flexible="1+"):
    """The leader and epoch the voter knows (KIP-595).

    v1: flexible; the leader's endpoint, tagged (KIP-853)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()  # -1 unknown
            leader_epoch: int = int32()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)

    PartitionData = TopicData.PartitionData


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    """A leader resigns and names preferred successors (KIP-595).

    v1: flexible; candidates with directory ids instead of successors, the leader's endpoints
      (KIP-853)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            class ReplicaInfo(Struct):
                candidate_id: int = int32()
                candidate_directory_id: bytes = uuid()

            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32()
            preferred_successors: list[int] = array(int32, "0")  # in order of preference
            preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+")  # likewise

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class LeaderEndpoint(Struct):
        name: str = string()  # of the listener
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+")

    PartitionData = TopicData.PartitionData
    ReplicaInfo = PartitionData.ReplicaInfo


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    """The leader and epoch the voter knows (KIP-595).

    v1: flexible; the leader's endpoint, tagged (KIP-853)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()  # -1 unknown
            leader_epoch: int = int32()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)

    PartitionData = TopicData.PartitionData


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    """Ask the leader of a quorum for its replicas; the same in all versions (KIP-595)."""

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = int32()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    topics: list[TopicData] = array(TopicData)

    PartitionData = TopicData.PartitionData


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    """Voters and observers, with the log end offset of each (KIP-595).

    v1: when each last fetched, and was last caught up (KIP-836)
    v2: error messages, directory ids, the nodes' endpoints (KIP-853)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            class ReplicaState(Struct):
                replica_id: int = int32()
                replica_directory_id: bytes = uuid("2+")
                log_end_offset: int = int64()  # -1 unknown
                last_fetch_timestamp: int = int64("1+", default=-1)  # ms; -1 unknown
                last_caught_up_timestamp: int = int64("1+", default=-1)  # ms; -1 unknown

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string("2+", nullable="2+")
            leader_id: int = int32()  # -1 unknown
            leader_epoch: int = int32()
            high_watermark: int = int64()
            current_voters: list[ReplicaState] = array(ReplicaState)
            observers: list[ReplicaState] = array(ReplicaState)

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class Node(Struct):
        class Listener(Struct):
            name: str = string()
            host: str = string()
            port: int = uint16()

        node_id: int = int32()
        listeners: list[Listener] = array(Listener)

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")

    PartitionData = TopicData.PartitionData
    ReplicaState = PartitionData.ReplicaState
    Listener = Node.Listener


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    """Ask for bytes of a snapshot (KIP-630).

    v1: directory id of the replica, tagged (KIP-853)
    """

    class TopicSnapshot(Struct):
        class PartitionSnapshot(Struct):
            class SnapshotId(Struct):
                end_offset: int = int64()
                epoch: int = int32()

            partition: int = int32()
            current_leader_epoch: int = int32()
            snapshot_id: SnapshotId = struct(SnapshotId)
            position: int = int64()  # of the first byte wanted
            replica_directory_id: bytes = uuid("1+", tag=0)

        name: str = string()
        partitions: list[PartitionSnapshot] = array(PartitionSnapshot)

    cluster_id: str | None = string(nullable="0+", tag=0, default=None)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[TopicSnapshot] = array(TopicSnapshot)

    PartitionSnapshot = TopicSnapshot.PartitionSnapshot
    SnapshotId = PartitionSnapshot.SnapshotId


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    """Bytes of a snapshot, cut anywhere (KIP-630).

    v1: the leader's endpoint, tagged (KIP-853)
    """

    class TopicSnapshot(Struct):
        class PartitionSnapshot(Struct):
            class SnapshotId(Struct):
                end_offset: int = int64()
                epoch: int = int32()

            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32()  # -1 unknown
                leader_epoch: int = int32()

            index: int = int32()
            error_code: int = int16()
            snapshot_id: SnapshotId = struct(SnapshotId)
            current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, tag=0)
            size: int = int64()  # of the whole snapshot
            position: int = int64()  # of the first byte sent
            unaligned_records: Records | None = record_data()  # may begin and end within a batch

        name: str = string()
        partitions: list[PartitionSnapshot] = array(PartitionSnapshot)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicSnapshot] = array(TopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)

    PartitionSnapshot = TopicSnapshot.PartitionSnapshot
    SnapshotId = PartitionSnapshot.SnapshotId
    LeaderIdAndEpoch = PartitionSnapshot.LeaderIdAndEpoch
