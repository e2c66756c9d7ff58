"""Fetch (API 1): records from the logs of this broker, to consumers and followers.

Behaviour. A request names partitions, or continues a session (KIP-227, `fetch_sessions.py`) and
names only the changes. Partitions are read in order until `max_bytes` is reached; the first batch
of the first partition with data is sent whatever its size. With fewer than `min_bytes` and no error
the request is parked (`DelayedFetch`) until an append or a watermark brings enough, `max_wait_ms`
is over, or another request arrives on the connection: responses keep their order, so the next would
wait for this one, and a Fetch may always answer early. Segment bytes are sent as they are on disk.

A partition of an unknown topic gets its error but does not end the wait, as in Kafka. An
incremental response leaves out partitions without changes.

A follower's fetch offsets are its progress: they are recorded after the read, and the response
carries the high watermark that results. With the rack-aware `replica.selector.class`, consumers are
sent to an in-sync follower in their rack (KIP-392).

`fetch_remote.py` reads, and waits for, records in the remote tier.

A consumer above its quota gets an empty response with the time for which it is throttled.

Version notes. 4: isolation level. 5: log start offset. 6: KAFKA_STORAGE_ERROR (before:
NOT_LEADER_OR_FOLLOWER). 7 (KIP-227): sessions. 9 (KIP-320): current leader epoch. 10: the client
reads zstd; older ones get it too. 11 (KIP-392): rack; consumers may read from a follower. 12
(KIP-595): flexible, last fetched epoch, diverging epoch. 13 (KIP-516): topic ids. 15 (KIP-903):
replica state. 16 (KIP-951): current leader and endpoints beside NOT_LEADER_OR_FOLLOWER and
FENCED_LEADER_EPOCH. 17, 18: fields of the Raft log, read and ignored.
"""

from __future__ import annotations

from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from tidelog.api.fetch_delayed import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    DelayedFetch,
    FetchWork,
)
from tidelog.network.wide_requests import PART_MAX, in_turns
from tidelog.replication.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
    next_epoch,
)
from tidelog.replication.partition import ReadResult
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchResponse
from tidelog_protocol.plain_answers import FETCH_FLEXIBLE_FROM, fetch_body, fetched
from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Sequence

    from tidelog.api.fetch_remote import RemoteFetches
    from tidelog.config.broker import BrokerConfig
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.quotas.client_quotas import FetchQuota
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Rng
    from tidelog.security.authorizer import Authorizer, Caller
    from tidelog_protocol.messages.data import FetchRequest
    from tidelog_protocol.schema import Buffer

    _PlainTopic = tuple[str, bytes, list[tuple[bytes, Sequence[Buffer], int]]]

__all__ = ["FetchApi"]

_Topic = FetchResponse.FetchableTopicResponse
_PartitionData = _Topic.PartitionData

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

# Answered without reading a log, after all others and in this order, as in Kafka.
_UNKNOWN: dict[int, int] = {
    ErrorCode.UNKNOWN_TOPIC_ID: 1,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 2,
}
_TELLS_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class FetchApi:
    """Handler of Fetch, with the broker's fetch sessions."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        config: BrokerConfig,
        rng: Rng,
        remote: RemoteFetches | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`remote` is None if this broker has no remote tier."""
        self._authorizer = authorizer
        self.replica_manager = replica_manager
        self._remote = remote
        self.sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            lambda: int.from_bytes(rng.bytes(4), "big"),
        )
        self._counts = replica_manager.counts
        self._quota: FetchQuota | None = None
        self._max_bytes = config.fetch_max_bytes
        self._rack_aware = config.replica_selector_class == RACK_AWARE_SELECTOR

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.FETCH: self.fetch}

    def limit_by(self, quota: FetchQuota | None) -> None:
        """Limit what consumers fetch from now on; None lifts it."""
        self._quota = quota

    def fetch(
        self, context: RequestContext, request: FetchRequest
    ) -> FetchResponse | list[Buffer] | Deferred | Coroutine[Any, Any, Any]:
        """Resolve the session, read, then answer or park."""
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            return self._refuse(context.api_version, request)
        fetch = FetchWork(context.api_version, request, self._max_bytes, context.peer.listener)
        if self._authorizer is not None:
            _restrict(fetch, self._authorizer.caller(context.peer.principal, context.client_host))
        if fetch.replica_id < 0:
            self._note_consumer(fetch, context, request)
        if fetch.epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.sessions.remove(request.session_id)  # a full fetch closes the session it names
            fetch.requests = self._full_requests(fetch.version, request)
        else:
            session = self._resume(fetch.version, request)
            if isinstance(session, ErrorCode):
                return FetchResponse(error_code=session)
            if session.partitions:
                fetch.session = session
                fetch.requests = list(session.partitions.values())
            else:  # the request removed the last partition: the session is closed
                fetch.epoch = FINAL_EPOCH
        if len(fetch.requests) > PART_MAX:
            return self._fetch_wide(context, fetch, request.max_wait_ms)
        return self._answer_or_park(context, fetch, self._read(fetch), request.max_wait_ms)

    def _answer_or_park(
        self, context: RequestContext, fetch: FetchWork, results: list[ReadResult], max_wait_ms: int
    ) -> FetchResponse | list[Buffer] | Deferred:
        answer: FetchResponse | list[Buffer] | Deferred | None
        remote = self._remote
        if remote and (answer := remote.fetch(context, fetch, results, self.answer)) is not None:
            return answer
        if max_wait_ms > 0 and _must_wait(results, fetch.min_bytes):
            answer = self._park(context, fetch, results, max_wait_ms)
        else:
            answer = self.answer(fetch, results)
        if fetch.moved:
            self.replica_manager.wake_moved(fetch)
        return answer

    def _fetch_wide(
        self, context: RequestContext, fetch: FetchWork, max_wait_ms: int
    ) -> Coroutine[Any, Any, Any]:
        """Read thousands of partitions in parts, and serve others between them."""

        def finish(context: RequestContext, results: list[ReadResult]) -> Any:
            if max_wait_ms > 0 and _must_wait(results, fetch.min_bytes):
                self._read_news(fetch, results)
            results = _unknown_last(fetch, results)
            return self._answer_or_park(context, fetch, results, max_wait_ms)

        answer: Coroutine[Any, Any, Any] = in_turns(self._read_parts(fetch), context, finish)
        return answer

    def _read_parts(self, fetch: FetchWork) -> Generator[None, None, list[ReadResult]]:
        requests, left = fetch.requests, fetch.max_bytes
        results: list[ReadResult] = []
        for start in range(0, len(requests), PART_MAX):
            part = requests[start : start + PART_MAX]
            read = self._read_part(fetch, part, left, min_one_batch=left == fetch.max_bytes)
            results += read
            left = max(0, left - sum(result.size for result in read))
            yield
        return results

    def _read_news(self, fetch: FetchWork, results: list[ReadResult]) -> None:
        """Read partitions again that were empty and are not any more: once the request is parked,
        only later changes wake it."""
        news = [
            index
            for index, (request, result) in enumerate(zip(fetch.requests, results, strict=True))
            if not result.size and not result.error and self._has_news(fetch, request)
        ]
        if news:
            left = max(0, fetch.max_bytes - sum(result.size for result in results))
            again = self._read_part(
                fetch,
                [fetch.requests[index] for index in news],
                left,
                min_one_batch=left == fetch.max_bytes,
                record_progress=False,  # already recorded
            )
            for index, result in zip(news, again, strict=True):
                results[index] = result

    def _has_news(self, fetch: FetchWork, request: FetchedPartition) -> bool:
        partition = self.replica_manager.partition(request.topic or "", request.partition)
        return (
            isinstance(partition, ErrorCode)
            or partition.end_offset(fetch.isolation) != request.fetch_offset
            or partition.leader_error(request.current_leader_epoch, leader_only=fetch.leader_only)
            is not None
        )

    def _note_consumer(
        self, fetch: FetchWork, context: RequestContext, request: FetchRequest
    ) -> None:
        if self._quota is not None:
            _limit(fetch, self._quota, context)
        if self._rack_aware:
            fetch.rack = request.rack_id

    def _read(self, fetch: FetchWork) -> list[ReadResult]:
        """Read all partitions; those of unknown topics go to the end of the response."""
        if fetch.allows is None:
            results = self.replica_manager.read(fetch.requests, fetch, max_bytes=fetch.max_bytes)
        else:
            results = self._read_part(fetch, fetch.requests, fetch.max_bytes)
        return _unknown_last(fetch, results)

    def _read_part(
        self,
        fetch: FetchWork,
        requests: Sequence[FetchedPartition],
        max_bytes: int,
        **options: bool,
    ) -> list[ReadResult]:
        """Read some partitions; those of topics that the client may not read are refused."""
        read = self.replica_manager.read
        allows = fetch.allows
        if allows is None:
            return read(requests, fetch, max_bytes=max_bytes, **options)
        may = [allows(request.topic) for request in requests]
        allowed = iter(read(compress(requests, may), fetch, max_bytes=max_bytes, **options))
        return [
            next(allowed) if each else ReadResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED, aborted=())
            for each in may
        ]

    def _full_requests(self, version: int, request: FetchRequest) -> list[FetchedPartition]:
        if version < 13:
            return [
                FetchedPartition(topic.topic, ZERO_UUID, partition)
                for topic in request.topics
                for partition in topic.partitions
            ]
        names = self._topic_names()
        return [
            FetchedPartition(names.get(topic.topic_id), topic.topic_id, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]

    def _topic_names(self) -> dict[bytes, str]:
        image = self.replica_manager.image
        return {} if image is None else image.topic_names  # type: ignore[return-value]

    def _resume(self, version: int, request: FetchRequest) -> FetchSession | ErrorCode:
        """Bring a session up to date; without partitions left it is closed."""
        sessions = self.sessions
        session = sessions.resolve(
            request.session_id, request.session_epoch, uses_topic_ids=version >= 13
        )
        if isinstance(session, ErrorCode):
            return session
        names = self._topic_names()
        if request.topics:
            session.add(request.topics, names)
        if request.forgotten_topics_data:
            session.forget(request.forgotten_topics_data)
        if not session.partitions:
            sessions.remove(session.session_id)
            return session
        sessions.advance(session, self.replica_manager.clock.wall_ms())
        if session.unresolved:
            session.resolve_names(names)
        return session

    def _park(
        self, context: RequestContext, fetch: FetchWork, results: list[ReadResult], max_wait_ms: int
    ) -> FetchResponse | list[Buffer] | Deferred:
        operation = DelayedFetch(self.replica_manager, self.answer, fetch, results)
        if operation.crosses_segments:
            return self.answer(fetch, results)
        operation.deferred = context.defer(operation.hurry, operation.cancel)
        self.replica_manager.fetch_purgatory.park(operation, operation.indexes, max_wait_ms)
        return operation.deferred

    # ---- answers ------------------------------------------------------------------------------

    def answer(self, fetch: FetchWork, results: list[ReadResult]) -> FetchResponse | list[Buffer]:
        """Build the response from these results; open or update the session."""
        requests = fetch.requests
        session = fetch.session
        if fetch.throttle_ms is not None and (
            session is None or session.epoch == next_epoch(fetch.epoch)
        ):
            time_ms = fetch.throttle_ms(sum(result.size for result in results))
            if time_ms > 0:  # the client asks again, and the session is as it was
                session_id = 0 if session is None else session.session_id
                return FetchResponse(throttle_time_ms=time_ms, session_id=session_id)
        if session is None:
            session_id = self._open_session(fetch, results) if fetch.epoch == INITIAL_EPOCH else 0
            return self._response(fetch, requests, results, session_id)
        if session.epoch != next_epoch(fetch.epoch):
            # Another connection continued the session while this request was parked.
            return FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id
            )
        named: list[FetchedPartition] = []
        named_results: list[ReadResult] = []
        for partition, result in zip(requests, results, strict=True):
            size = result.size
            if session.must_answer(
                partition,
                result.error,
                result,
                has_news=size > 0 or result.diverging is not None or result.preferred_replica >= 0,
            ):
                named.append(partition)
                named_results.append(result)
                if size:
                    session.move_to_end(partition)
        return self._response(fetch, named, named_results, session.session_id)

    def _open_session(self, fetch: FetchWork, results: list[ReadResult]) -> int:
        """Open a session with this response's state; 0 if the cache is full."""
        for partition, result in zip(fetch.requests, results, strict=True):
            partition.high_watermark = result.high_watermark
            partition.local_log_start_offset = result.log_start_offset
        return self.sessions.create(
            {partition.key(): partition for partition in fetch.requests},
            privileged=fetch.replica_id >= 0,
            uses_topic_ids=fetch.version >= 13,
            now_ms=self.replica_manager.clock.wall_ms(),
        )

    def _response(
        self,
        fetch: FetchWork,
        requests: Sequence[FetchedPartition],
        results: Sequence[ReadResult],
        session_id: int,
    ) -> FetchResponse | list[Buffer]:
        """Build the whole response; already encoded if it holds only records."""
        if self._counts is not None and fetch.replica_id < 0:
            for request, result in zip(requests, results, strict=True):
                if result.size:
                    self._counts.bytes_out.by_topic[request.topic or ""] += result.size
        if fetch.version >= FETCH_FLEXIBLE_FROM:
            topics = _plain_topics(requests, results)
            if topics is not None:
                return fetch_body(fetch.version, session_id, topics)
        return self._message(fetch, requests, results, session_id)

    def _message(
        self,
        fetch: FetchWork,
        requests: Sequence[FetchedPartition],
        results: Sequence[ReadResult],
        session_id: int,
    ) -> FetchResponse:
        """Build the message; consecutive partitions of one topic share its entry."""
        topics: list[_Topic] = []
        topic_name: str | None = ""
        topic_id = b""
        failed = False
        partitions: list[_PartitionData] = []
        for request, result in zip(requests, results, strict=True):
            if request.topic_id != topic_id or request.topic != topic_name:
                topic_id = request.topic_id
                topic_name = request.topic
                partitions = []
                topics.append(
                    _Topic(topic=topic_name or "", topic_id=topic_id, partitions=partitions)
                )
            data = _PartitionData(
                partition_index=request.partition,
                error_code=result.error,
                high_watermark=result.high_watermark,
                last_stable_offset=result.last_stable_offset,
                log_start_offset=result.log_start_offset,
                aborted_transactions=None,
                records=result.records or b"",
            )
            partitions.append(data)
            if result.preferred_replica >= 0:
                data.preferred_read_replica = result.preferred_replica
            if result.aborted is not None:
                data.aborted_transactions = [
                    FetchResponse.AbortedTransaction(
                        producer_id=entry.producer_id, first_offset=entry.first_offset
                    )
                    for entry in result.aborted
                ]
            if result.diverging is not None:
                data.diverging_epoch = FetchResponse.EpochEndOffset(
                    epoch=result.diverging.leader_epoch, end_offset=result.diverging.offset
                )
            if result.error:
                failed = True
        response = FetchResponse(session_id=session_id, responses=topics)
        if failed:
            self._explain_errors(fetch, requests, response)
        return response

    def _refuse(self, version: int, request: FetchRequest) -> FetchResponse:
        """Answer UNKNOWN_SERVER_ERROR for everything, as Kafka does with an invalid request."""
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        return FetchResponse(
            error_code=error,
            session_id=request.session_id,
            responses=[
                _Topic(
                    topic=topic.topic,
                    partitions=[
                        _PartitionData(
                            partition_index=partition.partition,
                            error_code=error,
                            high_watermark=-1,
                            records=b"",
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
                if version < 13
            ],
        )

    def _explain_errors(
        self, fetch: FetchWork, requests: Sequence[FetchedPartition], response: FetchResponse
    ) -> None:
        """Replace errors that old clients do not know; name the leader for new ones (KIP-951)."""
        answers = (data for topic in response.responses for data in topic.partitions)
        image = self.replica_manager.image
        nodes = {}
        for request, data in zip(requests, answers, strict=True):
            if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR and fetch.version <= 5:
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if fetch.version < 16 or data.error_code not in _TELLS_LEADER or image is None:
                continue
            state = image.partition(request.topic or "", request.partition)
            if state is not None:
                data.current_leader = FetchResponse.LeaderIdAndEpoch(
                    leader_id=state.leader, leader_epoch=state.leader_epoch
                )
                if fetch.replica_id < 0:
                    nodes[state.leader] = image.brokers.get(state.leader)
        response.node_endpoints = [
            FetchResponse.NodeEndpoint(
                node_id=node.node_id, host=address[0], port=address[1], rack=node.rack
            )
            for node in nodes.values()
            if node is not None and (address := node.address(fetch.listener)) is not None
        ]


def _limit(fetch: FetchWork, quota: FetchQuota, context: RequestContext) -> None:
    """Let a consumer fetch no more at once than its quota allows."""
    fetch.max_bytes = quota.bytes_max(context, fetch.max_bytes)
    fetch.min_bytes = min(fetch.min_bytes, fetch.max_bytes)
    fetch.throttle_ms = partial(quota.throttle_ms, context)


def _plain_topics(
    requests: Sequence[FetchedPartition], results: Sequence[ReadResult]
) -> list[_PlainTopic] | None:
    """Return the arguments of `fetch_body`; None if a partition has more than records."""
    topics: list[_PlainTopic] = []
    topic_name: str | None = ""
    topic_id = b""
    partitions: list[tuple[bytes, Sequence[Buffer], int]] = []
    for request, result in zip(requests, results, strict=True):
        aborted = result.aborted
        if result.error or aborted or result.diverging is not None or result.preferred_replica >= 0:
            return None
        if request.topic_id != topic_id or request.topic != topic_name:
            topic_id = request.topic_id
            topic_name = request.topic
            partitions = []
            topics.append((topic_name or "", topic_id, partitions))
        size = result.size
        start = fetched(
            request.partition,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            is_committed=aborted is not None,
            size=size,
        )
        partitions.append((start, result.records, size))
    return topics


def _restrict(fetch: FetchWork, caller: Caller) -> None:
    """Let consumers read topics for which they have READ. Followers need CLUSTER_ACTION, also to
    hear that a topic is unknown."""
    if caller.is_super:
        return
    from tidelog.security.acls import Operation, ResourceType  # noqa: PLC0415 - authorizers alone

    if fetch.replica_id < 0:
        fetch.allows = lambda topic: (
            topic is None or caller.allows(Operation.READ, ResourceType.TOPIC, topic)
        )
    elif not caller.allows_cluster(Operation.CLUSTER_ACTION):
        fetch.allows = lambda _: False


def _unknown_last(fetch: FetchWork, results: list[ReadResult]) -> list[ReadResult]:
    """Move the partitions of unknown topics to the end, if there are any."""
    for result in results:
        if result.error and result.error in _UNKNOWN:
            pairs = list(zip(fetch.requests, results, strict=True))
            pairs.sort(key=lambda pair: _UNKNOWN.get(pair[1].error, 0))
            fetch.requests = [request for request, _ in pairs]
            return [result for _, result in pairs]
    return results


def _must_wait(results: list[ReadResult], min_bytes: int) -> bool:
    """Return whether to wait: fewer than `min_bytes`, no divergence, no error but unknown
    topics."""
    size = 0
    unknown = 0
    for result in results:
        size += result.size
        if result.diverging is not None or result.preferred_replica >= 0:
            return False
        if result.error:
            if result.error not in _UNKNOWN:
                return False
            unknown += 1
    return size < min_bytes and unknown < len(results)
