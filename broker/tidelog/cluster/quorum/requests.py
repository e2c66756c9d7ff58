"""The requests of one voter to the others: votes, the begin and end of an epoch.

One task for each request. The driver imports this only if there are other voters.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.log import NotControllerError
from tidelog.cluster.metadata.settings import METADATA_PARTITION
from tidelog.cluster.quorum import events as e
from tidelog.cluster.quorum.core import Role
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    VoteRequest,
)
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tidelog.cluster.metadata.voters import Voter
    from tidelog.cluster.quorum.driver import Quorum

__all__ = ["Requests", "directory_of"]

log = logging.getLogger("tidelog.cluster.quorum")

RETRY_S = 0.05


class Requests:
    """The requests that are under way."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self.tasks: dict[asyncio.Task[None], None] = {}
        self._strangers: set[int] = set()  # voters that answered as nodes of another cluster

    def send(self, effect: e.Effect) -> None:
        """Perform an effect that is requests to other voters."""
        for voter, request in self._requests(effect):
            self._ask(f"{type(effect).__name__}-{voter}", request)

    async def finish_leaving(self, seconds_max: float) -> None:
        """Wait until the others know that this leader has left."""
        leaving = [task for task in self.tasks if task.get_name().startswith("quorum-EndEpoch")]
        if leaving:
            await asyncio.wait(leaving, timeout=seconds_max)

    def _requests(self, effect: e.Effect) -> list[tuple[int, Coroutine[Any, Any, None]]]:
        """Return the requests to other voters, by voter."""
        match effect:
            case e.AskVotes(epoch, pre_vote):
                return [
                    (voter, self._ask_vote(voter, epoch, pre_vote=pre_vote))
                    for voter in self._quorum.core.others
                ]
            case e.BeginEpoch(epoch, voters):
                return [(voter, self._begin_epoch(voter, epoch)) for voter in voters]
            case e.EndEpoch(epoch, preferred):
                return [
                    (voter, self._end_epoch(voter, epoch, preferred))
                    for voter in self._quorum.core.others
                ]
        raise AssertionError(f"no rule for {effect}")

    def _ask(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"quorum-{name}")
        self.tasks[task] = None
        task.add_done_callback(self._asked)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self.tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None and not self._quorum.is_out:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    async def _ask_vote(self, voter: int, epoch: int, *, pre_vote: bool) -> None:
        """Ask for a vote until there is an answer or the election is over."""
        role = Role.PROSPECTIVE if pre_vote else Role.CANDIDATE
        while (
            not self._quorum.is_out
            and self._quorum.core.role is role
            and self._quorum.core.epoch == epoch
        ):
            last_epoch, end = self._quorum.metadata.log_end()
            partition = VoteRequest.PartitionData(
                partition_index=0,
                replica_epoch=epoch,
                replica_id=self._quorum.node_id,
                replica_directory_id=directory_of(self._quorum.metadata.own),
                voter_directory_id=directory_of(self._quorum.metadata.voter(voter)),
                last_offset_epoch=last_epoch,
                last_offset=end,
                pre_vote=pre_vote,
            )
            topic = VoteRequest.TopicData(
                topic_name=METADATA_PARTITION.topic, partitions=[partition]
            )
            request = VoteRequest(
                cluster_id=self._quorum.cluster_id, voter_id=voter, topics=[topic]
            )
            try:
                response = await self._send(voter, request)
            except PeerError:
                await asyncio.sleep(RETRY_S)
                continue
            if self._quorum.is_out or not self._is_understood(voter, response):
                return
            answer = response.topics[0].partitions[0]
            granted = answer.vote_granted and answer.error_code == ErrorCode.NONE
            self._quorum.step(
                e.VoteAnswered(
                    voter, epoch, pre_vote, granted, answer.leader_epoch, answer.leader_id
                )
            )
            return

    async def _begin_epoch(self, voter: int, epoch: int) -> None:
        """Announce the leader to a voter; repeat until it fetches."""
        partition = BeginQuorumEpochRequest.PartitionData(
            partition_index=0,
            voter_directory_id=directory_of(self._quorum.metadata.voter(voter)),
            leader_id=self._quorum.node_id,
            leader_epoch=epoch,
        )
        topic = BeginQuorumEpochRequest.TopicData(
            topic_name=METADATA_PARTITION.topic, partitions=[partition]
        )
        own = self._quorum.metadata.own
        request = BeginQuorumEpochRequest(
            cluster_id=self._quorum.cluster_id,
            voter_id=voter,
            topics=[topic],
            leader_endpoints=[
                BeginQuorumEpochRequest.LeaderEndpoint(name=name, host=host, port=port)
                for name, host, port in (() if own is None else own.endpoints)
            ],
        )
        await self._tell(voter, request)

    async def _end_epoch(self, voter: int, epoch: int, preferred: tuple[int, ...]) -> None:
        partition = EndQuorumEpochRequest.PartitionData(
            partition_index=0,
            leader_id=self._quorum.node_id,
            leader_epoch=epoch,
            preferred_candidates=[
                EndQuorumEpochRequest.PartitionData.ReplicaInfo(candidate_id=candidate)
                for candidate in preferred
            ],
        )
        topic = EndQuorumEpochRequest.TopicData(
            topic_name=METADATA_PARTITION.topic, partitions=[partition]
        )
        await self._tell(
            voter, EndQuorumEpochRequest(cluster_id=self._quorum.cluster_id, topics=[topic])
        )

    async def _send(self, voter: int, request: Any) -> Any:
        """Return the answer; PeerError without one."""
        channel = self._quorum.channels.get(voter)
        if channel is None:
            raise PeerError(f"no address of voter {voter} is known")
        return await channel.ask(request, timeout_s=self._quorum.request_timeout_s)

    async def _tell(self, voter: int, request: Any) -> None:
        """Send once; of the answer only a newer epoch matters."""
        try:
            response = await self._send(voter, request)
        except PeerError:
            return
        if self._quorum.is_out or not self._is_understood(voter, response):
            return
        answer = response.topics[0].partitions[0]
        self._quorum.step(e.EpochTold(answer.leader_epoch, answer.leader_id))

    def _is_understood(self, voter: int, response: Any) -> bool:
        """Return whether the answer is about the metadata log: voters of other clusters refuse
        requests. If most voters do, this node ends: it would wait for ever."""
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE and response.topics:
            self._strangers.discard(voter)
            return True
        log.error("voter %d answered %s", voter, code.name)
        if code is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._strangers.add(voter)
            metadata = self._quorum.metadata
            if 2 * len(self._strangers) > len(metadata.voters):
                metadata.fail(_of_another_cluster(self._quorum.cluster_id))
        return False

    async def committed(self) -> int:
        """Ask the leader for its high watermark; PeerError or NotControllerError if none
        answers."""
        quorum = self._quorum
        channel = quorum.channels.get(quorum.metadata.leader_id)
        if channel is None:
            raise NotControllerError("no controller is known")
        topic = DescribeQuorumRequest.TopicData(
            topic_name=METADATA_PARTITION.topic,
            partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
        )
        response = await channel.ask(DescribeQuorumRequest(topics=[topic]))
        if response.error_code or not response.topics:
            raise NotControllerError
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise NotControllerError
        high_watermark: int = answer.high_watermark
        return high_watermark


def directory_of(voter: Voter | None) -> bytes:
    """Return the directory of a voter that the log names; none for a static one."""
    return e.NO_DIRECTORY if voter is None else voter.directory_id


def _of_another_cluster(cluster_id: str) -> StorageError:
    return StorageError(
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"the directories here have cluster id {cluster_id}, most of controller.quorum.voters have"
        " another: give this node directories of their cluster, or correct the voters",
    )
