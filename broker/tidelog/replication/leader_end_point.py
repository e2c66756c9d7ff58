"""A follower's requests to its leader: fetches, and the ends of logs and leader epochs.

`replica_fetcher.py`, `starts.py` and `aux_state.py` use an end point: `RemoteLeader` for another
broker, `local_leader.py` for a replica that moves on this one. Kafka: LeaderEndPoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidelog.network.peers import PeerError
from tidelog_protocol.errors import error_name
from tidelog_protocol.messages.data import ListOffsetsRequest, OffsetForLeaderEpochRequest
from tidelog_storage.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.network.peers import PeerChannel
    from tidelog.replication.fetch_state import FetchState
    from tidelog.replication.fetcher_session import Key
    from tidelog_protocol.messages.data import FetchRequest

__all__ = ["LeaderEndPoint", "RemoteLeader", "key_of", "offset_at"]


class LeaderEndPoint(Protocol):
    """A leader's answers; PeerError if there is none."""

    async def fetch(self, request: FetchRequest, /) -> Any:
        """Return the response to a Fetch."""
        ...

    async def list_offsets(self, states: Sequence[FetchState], timestamp: int, /) -> dict[Key, Any]:
        """Return where the leader's logs begin or end, by a special timestamp; answers by key."""
        ...

    async def end_of_epoch(self, state: FetchState, leader_epoch: int, /) -> OffsetAndEpoch:
        """Return where a leader epoch ends in the leader's log. PeerError also for an error."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class RemoteLeader:
    """A leader on another broker."""

    def __init__(self, channel: PeerChannel, node_id: int) -> None:
        """It owns and closes `channel`; `node_id` is this broker's."""
        self._channel = channel
        self._node_id = node_id

    async def fetch(self, request: FetchRequest) -> Any:
        """See `LeaderEndPoint`."""
        return await self._channel.ask(request)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    async def list_offsets(self, states: Sequence[FetchState], timestamp: int) -> dict[Key, Any]:
        """See `LeaderEndPoint`."""
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

    async def end_of_epoch(self, state: FetchState, leader_epoch: int) -> OffsetAndEpoch:
        """See `LeaderEndPoint`."""
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


async def offset_at(leader: LeaderEndPoint, state: FetchState, timestamp: int) -> OffsetAndEpoch:
    """`list_offsets` of one partition. PeerError also for an error of it."""
    answer = (await leader.list_offsets([state], timestamp)).get(key_of(state))
    if answer is None or answer.error_code:
        raise PeerError("no answer" if answer is None else error_name(answer.error_code))
    return OffsetAndEpoch(answer.offset, answer.leader_epoch)


def key_of(state: FetchState) -> Key:
    """Return topic id and partition."""
    partition = state.partition
    return (partition.topic_id, partition.topic_partition.partition)
