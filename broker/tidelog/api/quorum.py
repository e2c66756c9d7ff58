"""Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1) and FetchSnapshot (59) of the
metadata log.

Behaviour. Served only on the CONTROLLER listener, to voters and observers; there Fetch reads only
the metadata log. A request for another cluster is refused as a whole, one for another partition
with an error for that partition. All others go to the state machine; the answer has its epoch and
leader at that time. A fetch records the progress of its replica. It waits, up to its own limit,
until there are records past its offset or a newer high watermark. A follower below the log's start
is sent to the newest snapshot, and so is one at the start with another history.

Version notes. Fetch 17, Vote 1, BeginQuorumEpoch 1, EndQuorumEpoch 1 and FetchSnapshot 1: directory
ids, which static voters do not need, and the address of the leader (KIP-853). Fetch 18: the
follower's high watermark (KIP-1166). Vote 2: pre-votes (KIP-996).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.api.describe_quorum import QuorumView, Replica
from tidelog.cluster.metadata.log import NotControllerError
from tidelog.cluster.metadata.settings import METADATA_PARTITION, METADATA_TOPIC_ID
from tidelog.cluster.quorum import events as e
from tidelog.cluster.quorum.core import Role
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchResponse
from tidelog_protocol.messages.quorum import (
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchSnapshotResponse,
    VoteResponse,
)
from tidelog_protocol.schema import Struct
from tidelog_storage.types import UNDEFINED_OFFSET, Records

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.quorum.driver import Quorum
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog_protocol.messages.data import FetchRequest
    from tidelog_protocol.messages.quorum import (
        BeginQuorumEpochRequest,
        EndQuorumEpochRequest,
        FetchSnapshotRequest,
        VoteRequest,
    )

__all__ = ["QuorumApi", "view_of"]

_Endpoint = TypeVar("_Endpoint", bound=Struct)

log = logging.getLogger("tidelog.api.quorum")

WAIT_S_MAX = 30.0
ENDPOINTS_SINCE = 17  # version of Fetch
SNAPSHOT_BYTES_MAX = 1 << 20  # of one response, as the loop reads the file


class QuorumApi:
    """Handlers of the quorum's requests, for the CONTROLLER listener."""

    def __init__(self, quorum: Quorum, address_of: Callable[[int], tuple[str, int] | None]) -> None:
        """`address_of` returns where other nodes reach a controller, None if it is unknown."""
        self._quorum = quorum
        self._address_of = address_of
        self._parked: dict[_ParkedFetch, None] = {}
        quorum.on_progress.append(self._progress)

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.VOTE: self.vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self.begin_epoch,
            ApiKey.END_QUORUM_EPOCH: self.end_epoch,
            ApiKey.FETCH: self.fetch,
            ApiKey.FETCH_SNAPSHOT: self.fetch_snapshot,
        }

    def _is_own(self, directory_id: bytes) -> bool:
        """Return whether a request for a voter with this directory is for this node (KIP-853)."""
        own = self._quorum.metadata.own
        return own is None or directory_id in (own.directory_id, e.NO_DIRECTORY)

    @property
    def _listener(self) -> str:
        """The listener of the controllers; none in a static quorum, whose addresses are known."""
        own = self._quorum.metadata.own
        return own.endpoints[0][0] if own is not None and own.endpoints else ""

    def _is_other_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self._quorum.cluster_id

    # ---- elections ----------------------------------------------------------------------------

    def _step(self, context: RequestContext, event: e.Event) -> e.Reply | None:
        """Return the reply to an event. None, which closes the connection, if this node has left
        the quorum or its disk fails; `on_failure` of the metadata log has the reason."""
        try:
            return self._quorum.step(event)
        except (NotControllerError, OSError) as error:
            log.debug("no answer to %s: %r", type(event).__name__, error)
            context.close()
            return None

    def vote(self, context: RequestContext, request: VoteRequest) -> VoteResponse | None:
        """Answer a Vote request, which may be a pre-vote."""
        if self._is_other_cluster(request.cluster_id):
            return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not _names_the_log(request.topics):
            return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topics[0].partitions[0]
        end = e.LogEnd(asked.last_offset_epoch, asked.last_offset)
        event = e.VoteAsked(
            asked.replica_id, asked.replica_epoch, end, asked.pre_vote, asked.replica_directory_id
        )
        is_own = request.voter_id in (-1, self._quorum.node_id)
        if not (is_own and self._is_own(asked.voter_directory_id)):
            error = self._quorum.core.vote_refusal(event) or ErrorCode.INVALID_VOTER_KEY
            return self._vote_response(e.Reply(error))
        reply = self._step(context, event)
        return None if reply is None else self._vote_response(reply)

    def _vote_response(self, reply: e.Reply) -> VoteResponse:
        partition = VoteResponse.PartitionData(vote_granted=reply.granted, **self._common(reply))
        topic = VoteResponse.TopicData(topic_name=METADATA_PARTITION.topic, partitions=[partition])
        return VoteResponse(
            topics=[topic], node_endpoints=self._leader_endpoints(VoteResponse.NodeEndpoint)
        )

    def begin_epoch(
        self, context: RequestContext, request: BeginQuorumEpochRequest
    ) -> BeginQuorumEpochResponse | None:
        """Answer a BeginQuorumEpoch request: a leader announces itself."""
        if self._is_other_cluster(request.cluster_id):
            return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not _names_the_log(request.topics):
            return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topics[0].partitions[0]
        reply: e.Reply | None = e.Reply(ErrorCode.INVALID_VOTER_KEY)
        is_own = self._is_own(asked.voter_directory_id)
        if request.voter_id in (-1, self._quorum.node_id) and is_own:
            for endpoint in request.leader_endpoints:
                if endpoint.name == self._listener:
                    self._quorum.learn(asked.leader_id, endpoint.host, endpoint.port)
            reply = self._step(context, e.EpochBegun(asked.leader_id, asked.leader_epoch))
        if reply is None:
            return None
        partition = BeginQuorumEpochResponse.PartitionData(**self._common(reply))
        topic = BeginQuorumEpochResponse.TopicData(
            topic_name=METADATA_PARTITION.topic, partitions=[partition]
        )
        return BeginQuorumEpochResponse(
            topics=[topic],
            node_endpoints=self._leader_endpoints(BeginQuorumEpochResponse.NodeEndpoint),
        )

    def end_epoch(
        self, context: RequestContext, request: EndQuorumEpochRequest
    ) -> EndQuorumEpochResponse | None:
        """Answer an EndQuorumEpoch request: a leader resigns."""
        if self._is_other_cluster(request.cluster_id):
            return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not _names_the_log(request.topics):
            return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topics[0].partitions[0]
        preferred = tuple(
            asked.preferred_successors
            or [candidate.candidate_id for candidate in asked.preferred_candidates]
        )
        event = e.EpochEnded(asked.leader_id, asked.leader_epoch, preferred)
        reply = self._step(context, event)
        if reply is None:
            return None
        partition = EndQuorumEpochResponse.PartitionData(**self._common(reply))
        topic = EndQuorumEpochResponse.TopicData(
            topic_name=METADATA_PARTITION.topic, partitions=[partition]
        )
        return EndQuorumEpochResponse(
            topics=[topic],
            node_endpoints=self._leader_endpoints(EndQuorumEpochResponse.NodeEndpoint),
        )

    def _common(self, reply: e.Reply) -> dict[str, Any]:
        core = self._quorum.core
        return {
            "partition_index": 0,
            "error_code": reply.error,
            "leader_id": core.leader_id,
            "leader_epoch": core.epoch,
        }

    # ---- the log ------------------------------------------------------------------------------

    def fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse | Deferred:
        """Answer a Fetch of the metadata log; see the module's docstring."""
        if self._is_other_cluster(request.cluster_id):
            return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        topics = request.topics
        if len(topics) != 1 or [p.partition for p in topics[0].partitions] != [0]:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = topics[0].partitions[0]
        if topics[0].topic_id != METADATA_TOPIC_ID:  # versions below 13 have names alone
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        answer = self._read(asked, replica_id)
        if answer is None and request.max_wait_ms <= 0:
            answer = self._fetch_response(asked)
        if answer is not None:
            return _as_of(context.api_version, answer)
        return _ParkedFetch(self, context, asked, request.max_wait_ms / 1000).deferred

    def _read(
        self, asked: FetchRequest.FetchTopic.FetchPartition, replica_id: int
    ) -> FetchResponse | None:
        """Record a replica's progress; return the response, or None if there is nothing new."""
        quorum = self._quorum
        error = self._refusal(asked.current_leader_epoch)
        if min(asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) < 0:
            error = ErrorCode.INVALID_REQUEST
        if error:
            return self._fetch_response(asked, error=error)
        offset, log = asked.fetch_offset, quorum.metadata.log
        if self._is_forgotten(offset, asked.last_fetched_epoch):
            return self._snapshot(asked)
        known = log.end_offset_for_epoch(asked.last_fetched_epoch)
        if known.offset == UNDEFINED_OFFSET:
            return self._fetch_response(asked, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        if known.leader_epoch != asked.last_fetched_epoch or known.offset < offset:
            diverging = FetchResponse.EpochEndOffset(
                epoch=known.leader_epoch, end_offset=known.offset
            )
            return self._fetch_response(asked, diverging_epoch=diverging)
        directory_id = asked.replica_directory_id
        if replica_id >= 0 and quorum.counts(replica_id, directory_id):
            quorum.step(e.ReplicaFetched(replica_id, offset, directory_id))
        return self.look(asked)

    def _is_forgotten(self, offset: int, last_epoch: int) -> bool:
        """Return whether the replica needs a snapshot: its end is below the log's start, or at the
        start with another epoch than the snapshot's (Kafka's validateOffsetAndEpoch)."""
        metadata = self._quorum.metadata
        start, first = metadata.log.log_start_offset, metadata.log.epochs.earliest_entry
        if offset < start:
            return True
        if not start or (offset > start and first is not None and last_epoch >= first.epoch):
            return False  # nearly every fetch
        oldest = metadata.snapshotter.oldest()
        if oldest is None:
            return False
        return last_epoch < oldest[1] or (offset == start and last_epoch != oldest[1])

    def look(self, asked: FetchRequest.FetchTopic.FetchPartition) -> FetchResponse | None:
        """Return the response to a valid fetch, or None while there is nothing new."""
        metadata = self._quorum.metadata
        error = self._refusal(asked.current_leader_epoch)
        if error:
            return self._fetch_response(asked, error=error)
        if asked.fetch_offset < metadata.log.log_end_offset:
            outcome = metadata.read(asked.fetch_offset)
            if not isinstance(outcome, Records):
                return self._snapshot(asked)
            return self._fetch_response(asked, records=outcome.parts)
        if asked.high_watermark < metadata.high_watermark:
            return self._fetch_response(asked)
        return None

    def _refusal(self, epoch: int) -> ErrorCode:
        core = self._quorum.core
        if epoch < core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > core.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if core.role is not Role.LEADER or self._quorum.is_out:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _snapshot(self, asked: FetchRequest.FetchTopic.FetchPartition) -> FetchResponse:
        newest = self._quorum.metadata.snapshotter.newest()
        if newest is None:
            return self._fetch_response(asked, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        snapshot_id = FetchResponse.SnapshotId(end_offset=newest[0], epoch=newest[1])
        return self._fetch_response(asked, snapshot_id=snapshot_id)

    def fetch_snapshot(
        self, context: RequestContext, request: FetchSnapshotRequest
    ) -> FetchSnapshotResponse:
        """Answer a FetchSnapshot request with a piece of a snapshot (KIP-630)."""
        if self._is_other_cluster(request.cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        topics = request.topics
        if (
            len(topics) != 1
            or topics[0].name != METADATA_PARTITION.topic
            or [p.partition for p in topics[0].partitions] != [0]
        ):
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = topics[0].partitions[0]
        wanted = asked.snapshot_id
        quorum = self._quorum
        answer = FetchSnapshotResponse.PartitionSnapshot(
            index=0,
            error_code=self._refusal(asked.current_leader_epoch),
            snapshot_id=FetchSnapshotResponse.SnapshotId(
                end_offset=wanted.end_offset, epoch=wanted.epoch
            ),
            current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(
                leader_id=quorum.metadata.leader_id, leader_epoch=quorum.core.epoch
            ),
            position=asked.position,
            unaligned_records=b"",
        )
        if not answer.error_code:
            limit = max(1, min(request.max_bytes, SNAPSHOT_BYTES_MAX))
            try:
                answer.size, answer.unaligned_records = quorum.metadata.snapshotter.read(
                    wanted.end_offset, wanted.epoch, max(0, asked.position), limit
                )
            except FileNotFoundError:
                answer.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
            if not answer.error_code and not 0 <= asked.position < answer.size:
                answer.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        topic = FetchSnapshotResponse.TopicSnapshot(
            name=METADATA_PARTITION.topic, partitions=[answer]
        )
        return FetchSnapshotResponse(
            topics=[topic],
            node_endpoints=self._leader_endpoints(FetchSnapshotResponse.NodeEndpoint),
        )

    def _fetch_response(
        self,
        asked: FetchRequest.FetchTopic.FetchPartition,
        *,
        error: ErrorCode = ErrorCode.NONE,
        **fields: Any,
    ) -> FetchResponse:
        quorum = self._quorum
        leader = FetchResponse.LeaderIdAndEpoch(
            leader_id=quorum.metadata.leader_id, leader_epoch=quorum.core.epoch
        )
        fields.setdefault("records", b"")
        partition = FetchResponse.PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=-1 if error else quorum.metadata.high_watermark,
            log_start_offset=quorum.metadata.log.log_start_offset,
            current_leader=leader,
            **fields,
        )
        topic = FetchResponse.FetchableTopicResponse(
            topic=METADATA_PARTITION.topic, topic_id=METADATA_TOPIC_ID, partitions=[partition]
        )
        endpoints = self._leader_endpoints(FetchResponse.NodeEndpoint)
        return FetchResponse(responses=[topic], node_endpoints=endpoints)

    def _leader_endpoints(self, table: type[_Endpoint]) -> list[_Endpoint]:
        """Return the address of the leader, which another node may not know (KIP-853)."""
        leader_id = self._quorum.core.leader_id
        address = self._address_of(leader_id)
        if address is None:
            return []
        host, port = address
        return [table(node_id=leader_id, host=host, port=port)]

    # ---- waiting ------------------------------------------------------------------------------

    def park(self, fetch: _ParkedFetch) -> None:
        """Park a fetch, to be checked again after each change."""
        self._parked[fetch] = None

    def forget(self, fetch: _ParkedFetch) -> None:
        """Drop a fetch that was answered or cancelled."""
        self._parked.pop(fetch, None)

    def nothing_new(self, asked: FetchRequest.FetchTopic.FetchPartition) -> FetchResponse:
        """Return the response of a fetch that waited in vain."""
        return self.look(asked) or self._fetch_response(asked)

    def _progress(self) -> None:
        for fetch in list(self._parked):
            fetch.look()


class _ParkedFetch:
    """A parked fetch of the metadata log.

    Case a: records or a high watermark arrive: the answer has them.
    Case b: this node no longer leads: the answer says so.
    Case c: the deadline, or another request waits behind it: the answer is empty.
    Case d: the connection closes: dropped.
    """

    def __init__(
        self,
        api: QuorumApi,
        context: RequestContext,
        asked: FetchRequest.FetchTopic.FetchPartition,
        wait_s: float,
    ) -> None:
        self._api = api
        self._asked = asked
        self._version = context.api_version
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(wait_s, WAIT_S_MAX), self._end)
        api.park(self)
        self.deferred = context.defer(on_hurry=self._end, on_cancel=self._forget)

    def look(self) -> None:
        """Check after a change."""
        answer = self._api.look(self._asked)
        if answer is not None:
            self._forget()
            self.deferred.complete(_as_of(self._version, answer))

    def _end(self) -> None:
        self._forget()
        self.deferred.complete(_as_of(self._version, self._api.nothing_new(self._asked)))

    def _forget(self) -> None:
        self._timer.cancel()
        self._api.forget(self)


def _as_of(version: int, answer: FetchResponse) -> FetchResponse:
    """Return an answer to a fetch of a version, of which older ones get no address of the leader
    (RaftUtil.singletonFetchResponse)."""
    if version < ENDPOINTS_SINCE:
        answer.node_endpoints = []
    return answer


def view_of(quorum: Quorum) -> QuorumView:
    """Return what DescribeQuorum shows."""
    core, metadata = quorum.core, quorum.metadata
    now_ms, now = quorum.clock.wall_ms(), quorum.clock.monotonic()

    def replica(node_id: int) -> Replica:
        progress = core.progress.get(node_id)
        voter = metadata.voter(node_id)
        if node_id == quorum.node_id:
            own = metadata.own
            directory_id = e.NO_DIRECTORY if own is None else own.directory_id
            return Replica(node_id, metadata.log.log_end_offset, now_ms, now_ms, directory_id)
        directory_id = e.NO_DIRECTORY if voter is None else voter.directory_id
        if progress is None or progress.end_offset < 0:
            return Replica(node_id, -1, -1, -1, directory_id)
        caught_up_ms = -1
        if progress.caught_up_at > float("-inf"):
            caught_up_ms = now_ms - round((now - progress.caught_up_at) * 1000)
        fetched_ms = now_ms - round((now - progress.fetched_at) * 1000)
        if metadata.own is not None or node_id not in core.voters:
            directory_id = progress.directory_id
        return Replica(node_id, progress.end_offset, fetched_ms, caught_up_ms, directory_id)

    # Kafka drops observers that have not fetched lately (LeaderState.cleanupInactiveObservers): one
    # was a voter, and was away since this epoch began.
    observers = [
        node_id
        for node_id, progress in core.progress.items()
        if node_id not in core.voters and progress.end_offset >= 0
    ]
    return QuorumView(
        leader_id=metadata.leader_id,
        leader_epoch=core.epoch,
        is_leader=core.role is Role.LEADER and not quorum.is_out,
        high_watermark=metadata.high_watermark,
        voters=[replica(voter) for voter in core.voters],
        observers=[replica(node_id) for node_id in observers],
    )


def _names_the_log(topics: Any) -> bool:
    return (
        len(topics) == 1
        and topics[0].topic_name == METADATA_PARTITION.topic
        and [partition.partition_index for partition in topics[0].partitions] == [0]
    )
