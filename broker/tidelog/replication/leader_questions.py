"""A follower's requests to its leader beside fetches: the ends of logs and leader epochs.

They use the fetcher's own channel. `starts.py` and `aux_state.py` call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ListOffsetsRequest, OffsetForLeaderEpochRequest
from tidelog_storage.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.replication.fetch_state import FetchState
    from tidelog.replication.fetcher_session import Key

__all__ = ["LeaderEndPoint", "LeaderQuestions", "error_name", "key_of"]


class LeaderEndPoint(Protocol):
    """A fetcher's connection to its leader: a `PeerChannel` to another broker, or a
    `LocalLeader`."""

    async def ask(self, request_message: Any, /) -> Any:
        """Send a request and return the response; PeerError if there is none."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class LeaderQuestions:
    """Requests to one leader; PeerError if there is no answer."""

    def __init__(self, channel: LeaderEndPoint, node_id: int) -> None:
        self._channel = channel
        self._node_id = node_id

    async def list_offsets(self, states: Sequence[FetchState], timestamp: int) -> dict[Key, Any]:
        """Return where the leader's logs begin or end, by a special timestamp; answers by key."""
        topics: dict[str, Any] = {}
        keys: dict[tuple[str, int], Key] = {}
        for state in states:
            name, index = state.partition.topic_partition
            keys[name, index] = key_of(state)
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[])
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=state.leader_epoch,
                    timestamp=timestamp,
                )
            )
        response = await self._channel.ask(
            ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values()))
        )
        return {
            keys[topic.name, answer.partition_index]: answer
            for topic in response.topics
            for answer in topic.partitions
            if (topic.name, answer.partition_index) in keys
        }

    async def offset(self, state: FetchState, timestamp: int) -> OffsetAndEpoch:
        """`list_offsets` of one partition. PeerError also for an error of it."""
        answer = (await self.list_offsets([state], timestamp)).get(key_of(state))
        if answer is None or answer.error_code:
            raise PeerError("no answer" if answer is None else error_name(answer.error_code))
        return OffsetAndEpoch(answer.offset, answer.leader_epoch)

    async def end_of_epoch(self, state: FetchState, leader_epoch: int) -> OffsetAndEpoch:
        """Return where a leader epoch ends in the leader's log. PeerError like `offset`."""
        name, index = state.partition.topic_partition
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = topic.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=state.leader_epoch, leader_epoch=leader_epoch
        )
        response = await self._channel.ask(
            OffsetForLeaderEpochRequest(
                replica_id=self._node_id, topics=[topic(topic=name, partitions=[asked])]
            )
        )
        answers = [answer for one in response.topics for answer in one.partitions]
        if len(answers) != 1 or answers[0].error_code:
            raise PeerError(error_name(answers[0].error_code) if answers else "no answer")
        return OffsetAndEpoch(answers[0].end_offset, answers[0].leader_epoch)


def key_of(state: FetchState) -> Key:
    """Return topic id and partition."""
    partition = state.partition
    return (partition.topic_id, partition.topic_partition.partition)


def error_name(error: int) -> str:
    """Return Kafka's name of an error code, else its number."""
    try:
        return ErrorCode(error).name
    except ValueError:
        return str(error)
