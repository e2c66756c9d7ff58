"""Perform the decisions of this node's state machine: timers, requests, the copy of the log.

It owns the `QuorumCore` of this node, its timer, and the tasks that send requests to other voters.
Every event passes through `step`, which performs the effects before it returns, so no await
separates a check from its use. The server (start, stop) and `api/quorum.py` call it.

Tasks: one that fetches while this node follows (one per epoch and leader; `fetcher.py`), one that
flushes while it leads, and one for each request to another voter. After each await they check the
core's role and epoch again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.log import METADATA_PARTITION, NotControllerError
from tidelog.cluster.quorum import events as e
from tidelog.cluster.quorum.core import QuorumCore, Role, Timeouts
from tidelog.cluster.quorum.fetcher import Fetcher
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    VoteRequest,
)
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from tidelog.cluster.metadata.replicated import ReplicatedMetadataLog
    from tidelog.network.peers import PeerChannel
    from tidelog.seams import Clock, Rng

__all__ = ["Quorum"]

log = logging.getLogger("tidelog.cluster.quorum")

RETRY_S = 0.05
FETCH_WAIT_S_MAX = 0.5  # how long a leader may park a fetch, as in Kafka
LEAVE_S_MAX = 0.5  # how long a stopping leader waits for the others' answers


class Quorum:
    """This node's part in the metadata quorum."""

    def __init__(
        self,
        metadata: ReplicatedMetadataLog,
        channels: Mapping[int, PeerChannel],
        *,
        node_id: int,
        cluster_id: str,
        clock: Clock,
        rng: Rng,
        timeouts: Timeouts | None = None,
        request_timeout_s: float = 2.0,
    ) -> None:
        """`channels` lead to the CONTROLLER listener of each voter but this node; the voters are
        these, and this node unless it only observes (then it isn't in `metadata`'s voters)."""
        self.metadata = metadata
        self.channels = dict(channels)
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.rng = rng
        self._timeouts = timeouts or Timeouts()
        self.request_timeout_s = request_timeout_s
        # A parked fetch must be answered well before a follower, or the leader itself (check
        # quorum), takes the silence for a failure of the leader.
        patience_s = min(request_timeout_s, self._timeouts.fetch_s)
        self.fetch_wait_s = min(FETCH_WAIT_S_MAX, patience_s / 2)
        self._core: QuorumCore | None = None
        self._noted = e.Election()  # on disk, as far as this node knows
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._flusher: asyncio.Task[None] | None = None
        self._fetcher = Fetcher(self)
        self._stopped = False
        self._strangers: set[int] = set()  # voters that answered as nodes of another cluster
        self.on_progress: list[Callable[[], None]] = []
        """Called when records were appended, the high watermark moved or the role changed: parked
        fetches look again."""

    @property
    def core(self) -> QuorumCore:
        """The state machine; only after `start`."""
        assert self._core is not None, "start() comes first"
        return self._core

    # ---- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to take part; the metadata log is open, and requests may arrive."""
        self.metadata.on_append = self._appended
        self._noted = self.metadata.read_election()
        self._begin()

    def _begin(self) -> None:
        self._core = QuorumCore(
            node_id=self.node_id,
            voters=self.metadata.voters,
            stored=self._noted,
            log_end=lambda: e.LogEnd(*self.metadata.log_end()),
            rng=self.rng,
            timeouts=self._timeouts,
            now=self.clock.monotonic(),
        )
        self.metadata.leader_is(self._core.leader_id, self._core.epoch)
        self._arm()
        self._fetcher.follow()

    def _begin_again(self) -> None:
        """Restart from the state on disk, as after a crash: no other node knows anything newer."""
        log.warning("node %d has no descriptor left to note a vote with", self.node_id)
        self.metadata.step_down()
        self._begin()
        self._progress()

    async def stop(self) -> None:
        """Leave the quorum. A leader notifies the others, so that one of them takes over at
        once."""
        if self._core is not None and self._core.role is Role.LEADER and not self.is_out:
            self.step(e.Leave())
            leaving = [
                task for task in self._tasks if task.get_name().startswith("quorum-EndEpoch")
            ]
            if leaving:
                await asyncio.wait(leaving, timeout=LEAVE_S_MAX)
        self.abandon()
        tasks = [*self._tasks, *filter(None, [self._flusher, self._fetcher.task])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Leave the quorum without notice."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for channel in self.channels.values():
            channel.close()
        self._progress()

    @property
    def is_out(self) -> bool:
        """Whether this node has left the quorum."""
        return self._stopped or self.metadata.has_failed

    # ---- steps --------------------------------------------------------------------------------

    def step(self, event: e.Event) -> e.Reply:
        """Pass an event to the core and perform its effects.

        The reply answers events that are requests. NotControllerError if this node takes part no
        more or cannot note its vote now, OSError if its disk fails.
        """
        if self.is_out:
            raise NotControllerError("this node has left the quorum")
        core = self.core
        reply = e.Reply()
        for effect in core.step(event, self.clock.monotonic()):
            if isinstance(effect, e.Reply):
                reply = effect
            else:
                self._perform(effect)
        if core.leads_committed and not self.metadata.is_leader and not self.metadata.has_failed:
            log.info("node %d is the active controller, epoch %d", self.node_id, core.epoch)
            self.metadata.lead()
        self._arm()
        return reply

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Persist(election):
                self._note(election)
            case e.RoleChanged():
                self._role_changed()
            case e.HighWatermarkMoved(offset):
                self.metadata.advance(offset)
                self._progress()
            case _:
                for voter, request in self._requests(effect):
                    self._ask(f"{type(effect).__name__}-{voter}", request)

    def _note(self, election: e.Election) -> None:
        """Make it durable. A process without descriptors is no failure of the disk."""
        try:
            self.metadata.write_election(election)
        except OSError as error:
            if not lacks_descriptors(error):
                raise
            self._begin_again()
            raise NotControllerError("this node cannot note its vote now") from error
        self._noted = election

    def _requests(self, effect: e.Effect) -> list[tuple[int, Coroutine[Any, Any, None]]]:
        """Return the requests to other voters, by voter."""
        match effect:
            case e.AskVotes(epoch, pre_vote):
                return [
                    (voter, self._ask_vote(voter, epoch, pre_vote=pre_vote))
                    for voter in self.core.others
                ]
            case e.BeginEpoch(epoch, voters):
                return [(voter, self._begin_epoch(voter, epoch)) for voter in voters]
            case e.EndEpoch(epoch, preferred):
                return [
                    (voter, self._end_epoch(voter, epoch, preferred)) for voter in self.core.others
                ]
        raise AssertionError(f"no rule for {effect}")

    def _role_changed(self) -> None:
        """Apply the core's current role. If a step changed it twice, only the last one counts."""
        core, metadata = self.core, self.metadata
        if core.role is not Role.LEADER:
            metadata.step_down()
        leader_id = e.NOBODY if core.role is Role.RESIGNED else core.leader_id
        metadata.leader_is(leader_id, core.epoch)
        if core.role is Role.LEADER and metadata.log_end()[0] < core.epoch:
            try:
                metadata.begin_epoch(core.epoch)
            except (OSError, StorageError) as error:
                log.error("node %d cannot lead: %s", self.node_id, error)
                asyncio.get_running_loop().call_soon(self._leave)
        self._fetcher.follow()
        self._progress()

    def _arm(self) -> None:
        """Set the timer to the core's deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.core.deadline
        if deadline != float("inf") and not self.is_out:
            delay_s = max(0.0, deadline - self.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.is_out:
            try:
                self.step(e.Tick())
            except (NotControllerError, OSError):
                log.error("cannot record the vote")  # the reason was logged

    def _leave(self) -> None:
        """Resign, because a leader that cannot write must let another one lead."""
        if not self.is_out:
            self.step(e.Leave())

    def _progress(self) -> None:
        for listener in list(self.on_progress):
            listener()

    # ---- the leader's own records -------------------------------------------------------------

    def _appended(self) -> None:
        if self._flusher is None:
            loop = asyncio.get_running_loop()
            self._flusher = loop.create_task(self._flush(), name="quorum-flush")
        self._progress()

    async def _flush(self) -> None:
        """Flush this node's appends: then they count for the majority."""
        try:
            while not self.is_out and self.core.role is Role.LEADER:
                end = self.metadata.next_offset
                durable = await self.metadata.flush()
                if self.is_out:
                    return
                self.step(e.LocalFlushed(durable))
                if self.metadata.next_offset == end:
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, the image is not right now
            self.metadata.fail(error)
        finally:
            self._flusher = None

    # ---- asking other voters ------------------------------------------------------------------

    def _ask(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"quorum-{name}")
        self._tasks[task] = None
        task.add_done_callback(self._asked)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None and not self.is_out:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    async def _ask_vote(self, voter: int, epoch: int, *, pre_vote: bool) -> None:
        """Ask for a vote until there is an answer or the election is over."""
        role = Role.PROSPECTIVE if pre_vote else Role.CANDIDATE
        while not self.is_out and self.core.role is role and self.core.epoch == epoch:
            last_epoch, end = self.metadata.log_end()
            partition = VoteRequest.PartitionData(
                partition_index=0,
                replica_epoch=epoch,
                replica_id=self.node_id,
                last_offset_epoch=last_epoch,
                last_offset=end,
                pre_vote=pre_vote,
            )
            topic = VoteRequest.TopicData(
                topic_name=METADATA_PARTITION.topic, partitions=[partition]
            )
            request = VoteRequest(cluster_id=self.cluster_id, voter_id=voter, topics=[topic])
            try:
                response = await self.channels[voter].ask(request, timeout_s=self.request_timeout_s)
            except PeerError:
                await asyncio.sleep(RETRY_S)
                continue
            if self.is_out or not self._is_understood(voter, response):
                return
            answer = response.topics[0].partitions[0]
            granted = answer.vote_granted and answer.error_code == ErrorCode.NONE
            self.step(
                e.VoteAnswered(
                    voter, epoch, pre_vote, granted, answer.leader_epoch, answer.leader_id
                )
            )
            return

    async def _begin_epoch(self, voter: int, epoch: int) -> None:
        """Announce the leader to a voter; repeat until it fetches."""
        partition = BeginQuorumEpochRequest.PartitionData(
            partition_index=0, leader_id=self.node_id, leader_epoch=epoch
        )
        topic = BeginQuorumEpochRequest.TopicData(
            topic_name=METADATA_PARTITION.topic, partitions=[partition]
        )
        request = BeginQuorumEpochRequest(
            cluster_id=self.cluster_id, voter_id=voter, topics=[topic]
        )
        await self._tell(voter, request)

    async def _end_epoch(self, voter: int, epoch: int, preferred: tuple[int, ...]) -> None:
        partition = EndQuorumEpochRequest.PartitionData(
            partition_index=0,
            leader_id=self.node_id,
            leader_epoch=epoch,
            preferred_candidates=[
                EndQuorumEpochRequest.PartitionData.ReplicaInfo(candidate_id=candidate)
                for candidate in preferred
            ],
        )
        topic = EndQuorumEpochRequest.TopicData(
            topic_name=METADATA_PARTITION.topic, partitions=[partition]
        )
        await self._tell(voter, EndQuorumEpochRequest(cluster_id=self.cluster_id, topics=[topic]))

    async def _tell(self, voter: int, request: Any) -> None:
        """Send once; of the answer only a newer epoch matters."""
        try:
            response = await self.channels[voter].ask(request, timeout_s=self.request_timeout_s)
        except PeerError:
            return
        if self.is_out or not self._is_understood(voter, response):
            return
        answer = response.topics[0].partitions[0]
        self.step(e.EpochTold(answer.leader_epoch, answer.leader_id))

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
            if 2 * len(self._strangers) > len(self.metadata.voters):
                self.metadata.fail(_of_another_cluster(self.cluster_id))
        return False

    # ---- catching up --------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Wait until `image` has everything that the leader has committed so far.

        PeerError or NotControllerError if no leader answers; the caller limits the time.
        """
        if self.metadata.is_leader:
            return
        channel = self.channels.get(self.metadata.leader_id)
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
        await self.metadata.wait_for(answer.high_watermark - 1)


def _of_another_cluster(cluster_id: str) -> StorageError:
    return StorageError(
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"the directories here have cluster id {cluster_id}, most of controller.quorum.voters have"
        " another: give this node directories of their cluster, or correct the voters",
    )
