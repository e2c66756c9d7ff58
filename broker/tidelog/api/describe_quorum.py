"""DescribeQuorum (API 55): the voters and observers of the metadata log, and how far each has read
it.

Behaviour. Only the active controller answers; another node answers NOT_LEADER_OR_FOLLOWER. Any
partition but that of the metadata log gets UNKNOWN_TOPIC_OR_PARTITION.

Version notes. 1 (KIP-836): when each last fetched, and was last caught up. 2 (KIP-853): error
messages, directory ids, which static voters do not have, and the endpoints of the voters.
"""

# ruff: noqa: PLC0415 - the tables of the quorum are imported by the first request of a lone broker

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.settings import METADATA_PARTITION
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse

__all__ = ["DescribeQuorumApi", "QuorumView", "Replica", "Voter"]

_UNKNOWN = "This server does not host this topic-partition."
_NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the"
    " current leader. For requests intended for any replica, this error indicates that the broker"
    " is not a replica of the topic partition."
)


class Replica(NamedTuple):
    """The leader's state of a voter or observer; times in ms, -1 for never."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    directory_id: bytes = bytes(16)


class Voter(NamedTuple):
    """Address of a voter's controller listener; no port if it has none."""

    node_id: int
    listener: str
    host: str
    port: int


class QuorumView(NamedTuple):
    """The quorum as this node sees it; the fields after `is_leader` are valid only if it leads."""

    leader_id: int
    leader_epoch: int
    is_leader: bool
    high_watermark: int
    voters: Sequence[Replica]
    observers: Sequence[Replica]


class DescribeQuorumApi:
    """Answers from a view taken for each request."""

    def __init__(
        self, look: Callable[[], QuorumView], endpoints: Callable[[], Sequence[Voter]]
    ) -> None:
        """`endpoints` returns those of all voters, this node among them."""
        self._look = look
        self._endpoints = endpoints

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.DESCRIBE_QUORUM: self.describe}

    def describe(
        self, context: RequestContext, request: DescribeQuorumRequest
    ) -> DescribeQuorumResponse:
        """Answer a DescribeQuorum request."""
        from tidelog_protocol.messages.quorum import DescribeQuorumResponse

        del context
        asked = [
            (topic.topic_name, [one.partition_index for one in topic.partitions])
            for topic in request.topics
        ]
        if asked != [(METADATA_PARTITION.topic, [METADATA_PARTITION.partition])]:
            return _unknown(asked)
        view = self._look()
        partition = DescribeQuorumResponse.PartitionData(
            leader_id=view.leader_id, leader_epoch=view.leader_epoch
        )
        if not view.is_leader:
            partition.error_code, partition.error_message = (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                _NOT_LEADER,
            )
            return _of_the_log(partition)
        partition.high_watermark = view.high_watermark
        partition.current_voters = [_state(replica) for replica in view.voters]
        partition.observers = [_state(replica) for replica in view.observers]
        answer = _of_the_log(partition)
        answer.nodes = [_node(voter) for voter in self._endpoints()]
        return answer


def _of_the_log(
    partition: DescribeQuorumResponse.TopicData.PartitionData,
) -> DescribeQuorumResponse:
    from tidelog_protocol.messages.quorum import DescribeQuorumResponse

    name = METADATA_PARTITION.topic
    topic = DescribeQuorumResponse.TopicData(topic_name=name, partitions=[partition])
    return DescribeQuorumResponse(error_message="", topics=[topic])


def _unknown(asked: Sequence[tuple[str, Sequence[int]]]) -> DescribeQuorumResponse:
    from tidelog_protocol.messages.quorum import DescribeQuorumResponse

    return DescribeQuorumResponse(
        error_message="",
        topics=[
            DescribeQuorumResponse.TopicData(
                topic_name=name,
                partitions=[
                    DescribeQuorumResponse.PartitionData(
                        partition_index=index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=_UNKNOWN,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in asked
        ],
    )


def _state(
    replica: Replica,
) -> DescribeQuorumResponse.TopicData.PartitionData.ReplicaState:
    from tidelog_protocol.messages.quorum import DescribeQuorumResponse

    return DescribeQuorumResponse.ReplicaState(
        replica_id=replica.node_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def _node(voter: Voter) -> DescribeQuorumResponse.Node:
    from tidelog_protocol.messages.quorum import DescribeQuorumResponse

    listeners = []
    if voter.port:
        listeners = [
            DescribeQuorumResponse.Listener(name=voter.listener, host=voter.host, port=voter.port)
        ]
    return DescribeQuorumResponse.Node(node_id=voter.node_id, listeners=listeners)
