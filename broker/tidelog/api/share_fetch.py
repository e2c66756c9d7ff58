"""ShareFetch (78), ShareAcknowledge (79): records of share groups (KIP-932).

Behaviour. A member opens a share session with epoch 0 and names only changes from then on; epoch -1
closes it, and what the member held is released; those deliveries count. Acknowledgements are
handled first, each partition for itself: all of them count, or none. Then the session's partitions
are read where the group goes on, beginning with another one in each epoch. With fewer than
`min_bytes` the request is parked like a Fetch, and may be answered early when another request waits
on the connection. Whether a member belongs to the group is not checked here, as in Kafka. A session
ends with its connection. While the cluster's `share.version` is 0, both APIs are refused with
UNSUPPORTED_VERSION.

An unknown topic gets UNKNOWN_TOPIC_ID. Kafka 4.3.1 fails such a request with UNKNOWN_SERVER_ERROR.

With the limit of sessions reached the answer comes after `max_wait_ms`, so that the client does not
try again at once. A request with renewals (`is_renew_ack`) reads nothing.

A member above its quota of fetched bytes acquires nothing and gets the throttle time. What exceeds
the quota is sent, since its locks would otherwise have to end first, as in Kafka, which drops it.

Version notes. Both APIs. 1: first stable version. 2: acquire mode (KIP-1206), renewals (KIP-1222).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.features import SHARE_FEATURE
from tidelog.replication.fetch_sessions import next_epoch
from tidelog.replication.purgatory import DelayedOperation
from tidelog.security.acls import Operation, ResourceType
from tidelog.shares.fetch_work import FetchWish, PartitionAnswer, ShareFetchWork
from tidelog.shares.fetches import DelayedShareFetch
from tidelog.shares.partition_state import AckBatch
from tidelog.shares.records import AckType, ShareError
from tidelog.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_consumers import (
    ShareAcknowledgeResponse,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.quotas.client_quotas import FetchQuota
    from tidelog.security.authorizer import Authorizer
    from tidelog.shares.led_partition import LedPartition
    from tidelog.shares.sessions import ShareSession, TopicIdPartition
    from tidelog.shares.share_partitions import SharePartitions
    from tidelog_protocol.messages.share_consumers import (
        ShareAcknowledgeRequest,
        ShareFetchRequest,
    )

__all__ = ["ShareFetchApi"]

_Topic = ShareFetchResponse.ShareFetchableTopicResponse
_PartitionData = _Topic.PartitionData
_AckTopic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
_AckData = _AckTopic.PartitionData

_MEMBER_ID_CHARACTERS_MAX = 36
READ_AT_ONCE = 1000  # share partitions of a request, in one turn of the loop
LED_AT_ONCE = 100  # of these, those whose state has to be read first: about 20 ms
_RENEWALS_VERSION = 2
_ACQUIRE_MODES = (_BATCHES, _RECORD_LIMIT) = (0, 1)
_TELLS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ShareFetchApi:
    """Handlers of ShareFetch and ShareAcknowledge."""

    def __init__(
        self, shares: SharePartitions, *, max_bytes: int, authorizer: Authorizer | None = None
    ) -> None:
        """`max_bytes` is fetch.max.bytes."""
        self._authorizer = authorizer
        self.shares = shares
        self.max_bytes = max_bytes
        self.quota: FetchQuota | None = None

    def limit_by(self, quota: FetchQuota | None) -> None:
        """Limit what members fetch from now on; None lifts it."""
        self.quota = quota

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.SHARE_FETCH: self.share_fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self.share_acknowledge,
        }

    def may_read(self, context: RequestContext, topic: str) -> bool:
        """Return whether the client may read a topic."""
        if self._authorizer is None:
            return True
        caller = self._authorizer.caller(context.peer.principal, context.client_host)
        return caller.allows(Operation.READ, ResourceType.TOPIC, topic)

    def _check(self, request: Any) -> None:
        """Refuse requests while the cluster has no share groups, and those with wrong ids."""
        image = self.shares.replicas.image
        if image is None or image.features.get(SHARE_FEATURE, 0) < 1:
            raise ShareError(ErrorCode.UNSUPPORTED_VERSION)
        _check_ids(request)

    # ---- ShareFetch ---------------------------------------------------------------------------

    def share_fetch(
        self, context: RequestContext, request: ShareFetchRequest
    ) -> ShareFetchResponse | Deferred:
        """Acknowledge, read and acquire, then answer or park."""
        try:
            self._check(request)
            _check_fetch(request)
            session = self._session(context, request)
        except ShareError as error:
            response = ShareFetchResponse(error_code=error.code)  # Kafka leaves its text out
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                return self._answer_late(context, response, request.max_wait_ms)
            return response
        answering = _ShareFetch(self, context, request, session)
        answering.deferred = context.defer(answering.hurry, answering.cancel)
        answering.begin()
        return answering.deferred

    def _session(self, context: RequestContext, request: ShareFetchRequest) -> ShareSession:
        """Open, continue or close the session of the request; ShareError if it may not."""
        sessions = self.shares.sessions
        assert request.group_id is not None
        assert request.member_id is not None
        group_id, member_id, epoch = (
            request.group_id,
            request.member_id,
            request.share_session_epoch,
        )
        asked = _partitions_of(request)
        if epoch == INITIAL_EPOCH:
            if any(data.acknowledgement_batches for _, data in asked):
                raise ShareError(
                    ErrorCode.INVALID_REQUEST,
                    "The first request of a share session cannot acknowledge records.",
                )
            peer = context.peer
            is_new = not sessions.owns(peer)
            session = sessions.open(group_id, member_id, (key for key, _ in asked), peer)
            if is_new:
                peer.at_close(partial(self.shares.owner_closed, peer))
        else:
            session = sessions.resume(group_id, member_id, epoch)
            if epoch == FINAL_EPOCH:
                return session
            forgotten = (
                (topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            )
            sessions.update(session, (key for key, _ in asked), forgotten)
        self.shares.close_largest_sessions()
        if sessions.get(group_id, member_id) is not session:
            raise ShareError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        return session

    def _answer_late(
        self, context: RequestContext, response: ShareFetchResponse, wait_ms: int
    ) -> ShareFetchResponse | Deferred:
        if wait_ms <= 0:
            return response
        purgatory = self.shares.replicas.fetch_purgatory
        late = _LateAnswer(response)
        late.deferred = context.defer(on_cancel=lambda: purgatory.cancel(late))
        purgatory.park(late, (), wait_ms)
        return late.deferred

    # ---- ShareAcknowledge ---------------------------------------------------------------------

    def share_acknowledge(
        self, context: RequestContext, request: ShareAcknowledgeRequest
    ) -> ShareAcknowledgeResponse | Deferred:
        """Acknowledge records; the answer comes when that is stored."""
        try:
            self._check(request)
            if request.share_session_epoch == INITIAL_EPOCH:
                raise ShareError(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The share session epoch is invalid."
                )
            assert request.group_id is not None
            assert request.member_id is not None
            session = self.shares.sessions.resume(
                request.group_id, request.member_id, request.share_session_epoch
            )
        except ShareError as error:
            return ShareAcknowledgeResponse(error_code=error.code)
        deferred = context.defer()

        def answer(outcomes: dict[TopicIdPartition, ShareError | None]) -> None:
            if request.share_session_epoch == FINAL_EPOCH:
                self.close_session(session)
            deferred.complete(self._acknowledged(context, session, outcomes))

        self.acknowledge(context, request, session, _partitions_of(request), answer)
        return deferred

    def acknowledge(
        self,
        context: RequestContext,
        request: Any,
        session: ShareSession,
        asked: Iterable[tuple[TopicIdPartition, Any]],
        on_done: Callable[[dict[TopicIdPartition, ShareError | None]], None],
    ) -> None:
        """Acknowledge what a request of either kind asks; `on_done` gets the outcomes. A partition
        without batches has one if it is refused, or another one is acknowledged."""
        image = self.shares.replicas.image
        type_max = AckType.RENEW if context.api_version >= _RENEWALS_VERSION else AckType.REJECT
        refused: dict[TopicIdPartition, ShareError | None] = {}
        empty: dict[TopicIdPartition, ShareError | None] = {}
        acks: dict[TopicIdPartition, list[AckBatch]] = {}
        for key, data in asked:
            batches = [
                AckBatch(each.first_offset, each.last_offset, each.acknowledge_types)
                for each in data.acknowledgement_batches
            ]
            name = None if image is None else image.topic_names.get(key[0])
            if image is None or name is None:
                refused[key] = ShareError(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not _are_valid(batches, type_max, renews=request.is_renew_ack):
                refused[key] = ShareError(ErrorCode.INVALID_REQUEST)
            elif not self.may_read(context, name):
                refused[key] = ShareError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif image.partition(name, key[1]) is None:
                refused[key] = ShareError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif batches:
                acks[key] = batches
            else:
                empty[key] = None
        self.shares.acknowledge(
            session.group_id,
            session.member_id,
            acks,
            lambda outcomes: on_done({**refused, **outcomes, **(empty if acks else {})}),
        )

    def close_session(self, session: ShareSession) -> None:
        """Close a session whose last request is being answered."""
        if self.shares.sessions.get(session.group_id, session.member_id) is session:
            self.shares.sessions.remove(session.group_id, session.member_id)
            self.shares.release(session)

    def _acknowledged(
        self,
        context: RequestContext,
        session: ShareSession,
        outcomes: dict[TopicIdPartition, ShareError | None],
    ) -> ShareAcknowledgeResponse:
        topics: dict[bytes, _AckTopic] = {}
        nodes: dict[int, None] = {}
        for (topic_id, index), error in outcomes.items():
            data = _AckData(partition_index=index, current_leader=_AckData.LeaderIdAndEpoch())
            if error is not None:
                data.error_code, data.error_message = error.code, error.message
                self.name_leader((topic_id, index), data, nodes)
            topics.setdefault(topic_id, _AckTopic(topic_id=topic_id)).partitions.append(data)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.shares.settings(session.group_id).limits.lock_ms,
            responses=list(topics.values()),
            node_endpoints=self.endpoints(context, nodes, ShareAcknowledgeResponse.NodeEndpoint),
        )

    # ---- leaders in answers -------------------------------------------------------------------

    def name_leader(self, key: TopicIdPartition, data: Any, nodes: dict[int, None]) -> None:
        """Name the leader beside an error that says that this broker is not it."""
        image = self.shares.replicas.image
        name = None if image is None else image.topic_names.get(key[0])
        if data.error_code not in _TELLS_LEADER or image is None or name is None:
            return
        state = image.partition(name, key[1])
        if state is not None:
            data.current_leader.leader_id = state.leader
            data.current_leader.leader_epoch = state.leader_epoch
            nodes[state.leader] = None

    def endpoints(
        self, context: RequestContext, nodes: Iterable[int], endpoint: Callable[..., Any]
    ) -> list[Any]:
        """Return the addresses of the leaders that an answer names."""
        image = self.shares.replicas.image
        brokers: Mapping[int, Any] = {} if image is None else image.brokers
        return [
            endpoint(node_id=node.node_id, host=address[0], port=address[1], rack=node.rack)
            for node in (brokers.get(node_id) for node_id in nodes)
            if node is not None and (address := node.address(context.listener)) is not None
        ]


class _ShareFetch:
    """One ShareFetch in progress: answered when its acknowledgements and its fetch are done."""

    def __init__(
        self,
        api: ShareFetchApi,
        context: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
    ) -> None:
        self._api = api
        self._context = context
        self._request = request
        self._session = session
        self._errors: dict[TopicIdPartition, PartitionAnswer] = {}
        self._operation: DelayedShareFetch | None = None
        self._work: ShareFetchWork | None = None
        self._is_fetched = False
        self._outcomes: dict[TopicIdPartition, ShareError | None] | None = None
        self._quota = api.quota
        self._throttle_ms = 0
        self.deferred: Deferred | None = None

    def begin(self) -> None:
        """Begin both; either may end at once."""
        request = self._request
        acks = _partitions_of(request)
        if not any(data.acknowledgement_batches for _, data in acks):
            acks = []
        self._api.acknowledge(self._context, request, self._session, acks, self._acknowledged)
        keys = self._readable()
        leds = self._leds(keys) if self._reads() else []
        if not leds:
            self._is_fetched = True
            self._maybe_answer()
            return
        max_bytes = min(request.max_bytes, self._api.max_bytes)
        if self._quota is not None:
            max_bytes = self._quota.bytes_max(self._context, max_bytes)
        wish = FetchWish(
            self._session.group_id,
            self._session.member_id,
            min(request.min_bytes, max_bytes),
            max_bytes,
            request.max_records,
            request.batch_size,
            request.share_acquire_mode == _RECORD_LIMIT,
        )
        work = ShareFetchWork(self._api.shares, wish, leds)
        self._operation = DelayedShareFetch(work, self._fetched)
        self._operation.begin(request.max_wait_ms)

    def _reads(self) -> bool:
        """Return whether the request asks for records, and the quota allows any."""
        request = self._request
        if request.max_records <= 0 or request.max_bytes <= 0:
            return False
        if self._quota is not None:
            self._throttle_ms = self._quota.charge_ms(self._context, 0)
        return not self._throttle_ms

    def _charge(self, work: ShareFetchWork, lock_ms: int) -> None:
        """Count what is sent. The member is not throttled for longer than half the time of its
        locks: it has to acknowledge in time."""
        if self._quota is not None:
            size = sum(len(answer.records) for answer in work.answers.values())
            self._throttle_ms = min(self._quota.charge_ms(self._context, size), lock_ms // 2)

    def _readable(self) -> list[TopicIdPartition]:
        """Return the partitions that may be read; note the errors of the others, also if no records
        are wanted. Of thousands, the others have their turn in the next requests, which begin with
        them."""
        request = self._request
        if request.share_session_epoch == FINAL_EPOCH or request.is_renew_ack:
            return []
        image = self._api.shares.replicas.image
        keys: list[TopicIdPartition] = []
        for key in self._session.rotated(READ_AT_ONCE):
            if len(keys) >= READ_AT_ONCE:
                break
            name = None if image is None else image.topic_names.get(key[0])
            if image is None or name is None:
                self._errors[key] = PartitionAnswer(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not self._api.may_read(self._context, name):
                self._errors[key] = PartitionAnswer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif image.partition(name, key[1]) is None:
                self._errors[key] = PartitionAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                keys.append(key)
        return keys

    def _leds(self, keys: Iterable[TopicIdPartition]) -> list[LedPartition]:
        """Return the share partitions to read; note the errors of the others."""
        shares, session = self._api.shares, self._session
        leds: list[LedPartition] = []
        room = LED_AT_ONCE
        for key in keys:
            if not shares.leads(session.group_id, key):
                if not room:
                    continue
                room -= 1
            try:
                leds.append(shares.lead(session.group_id, key))
            except ShareError as error:
                self._errors[key] = PartitionAnswer(error.code, error.message)
        return leds

    def _acknowledged(self, outcomes: dict[TopicIdPartition, ShareError | None]) -> None:
        self._outcomes = outcomes
        self._maybe_answer()

    def _fetched(self, work: ShareFetchWork) -> None:
        self._work = work
        self._is_fetched = True
        self._maybe_answer()

    def hurry(self) -> None:
        """Answer with what there is: another request waits on the connection."""
        if self._operation is not None and not self._is_fetched:
            self._operation.hurry()

    def cancel(self) -> None:
        """The connection is gone. What is being acknowledged goes on."""
        if self._operation is not None and not self._is_fetched:
            self._operation.cancel()

    # ---- the answer ---------------------------------------------------------------------------

    def _maybe_answer(self) -> None:
        if not self._is_fetched or self._outcomes is None:
            return
        assert self.deferred is not None
        epoch = self._request.share_session_epoch
        if epoch == FINAL_EPOCH:
            self._api.close_session(self._session)
        self.deferred.complete(self._response(epoch, self._outcomes))

    def _response(
        self, epoch: int, outcomes: dict[TopicIdPartition, ShareError | None]
    ) -> ShareFetchResponse:
        session = self._session
        if epoch > INITIAL_EPOCH and session.epoch != next_epoch(epoch):
            return ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        answers = dict(self._errors)
        lock_ms = self._api.shares.settings(session.group_id).limits.lock_ms
        if self._work is not None:
            answers.update(self._work.answers)
            self._charge(self._work, lock_ms)
        topics: dict[bytes, _Topic] = {}
        nodes: dict[int, None] = {}
        left = dict(outcomes)
        for key, answer in answers.items():
            if epoch == INITIAL_EPOCH or session.must_answer(
                key, has_records=bool(answer.acquired), has_error=bool(answer.error)
            ):
                data = self._partition_data(key, answer, nodes)
                _note_outcome(data, left.pop(key, None))
                topics.setdefault(key[0], _Topic(topic_id=key[0])).partitions.append(data)
        for key, outcome in left.items():
            data = self._partition_data(key, PartitionAnswer(), nodes)
            _note_outcome(data, outcome)
            topics.setdefault(key[0], _Topic(topic_id=key[0])).partitions.append(data)
        return ShareFetchResponse(
            throttle_time_ms=self._throttle_ms,
            acquisition_lock_timeout_ms=lock_ms,
            responses=list(topics.values()),
            node_endpoints=self._api.endpoints(
                self._context, nodes, ShareFetchResponse.NodeEndpoint
            ),
        )

    def _partition_data(
        self, key: TopicIdPartition, answer: PartitionAnswer, nodes: dict[int, None]
    ) -> _PartitionData:
        data = _PartitionData(
            partition_index=key[1],
            error_code=answer.error,
            error_message=answer.message,
            current_leader=_PartitionData.LeaderIdAndEpoch(),
            records=answer.records,
            acquired_records=[
                _PartitionData.AcquiredRecords(
                    first_offset=first, last_offset=last, delivery_count=count
                )
                for first, last, count in answer.acquired
            ],
        )
        self._api.name_leader(key, data, nodes)
        return data


class _LateAnswer(DelayedOperation[tuple[str, int]]):
    """An error that is answered at the deadline."""

    __slots__ = ("_response", "deferred")

    def __init__(self, response: ShareFetchResponse) -> None:
        super().__init__()
        self._response = response
        self.deferred: Deferred | None = None

    def touch(self, key: tuple[str, int]) -> bool:
        """No event ends it."""
        del key
        return False

    def complete(self, *, expired: bool) -> None:
        """Answer."""
        del expired
        assert self.deferred is not None
        self.deferred.complete(self._response)


def _check_ids(request: Any) -> None:
    if request.group_id is None:
        raise ShareError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not request.member_id or len(request.member_id) > _MEMBER_ID_CHARACTERS_MAX:
        raise ShareError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")


def _check_fetch(request: ShareFetchRequest) -> None:
    """Refuse an unknown acquire mode, and renewals in a request that asks for records, too."""
    mode = request.share_acquire_mode
    if mode not in _ACQUIRE_MODES:
        raise ShareError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown share acquire mode id: {mode}")
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise ShareError(ErrorCode.INVALID_REQUEST, "A request with renewals reads nothing.")


def _partitions_of(request: Any) -> list[tuple[TopicIdPartition, Any]]:
    """Return the partitions of a request of either kind with their data."""
    return [
        ((topic.topic_id, data.partition_index), data)
        for topic in request.topics
        for data in topic.partitions
    ]


def _are_valid(batches: Iterable[AckBatch], type_max: int, *, renews: bool) -> bool:
    """Return whether batches are in order, and have types that the version knows."""
    end = -1
    for first, last, types in batches:
        if first > last or first < end or not types:
            return False
        if len(types) > 1 and len(types) != last - first + 1:
            return False
        if not all(0 <= kind <= type_max for kind in types):
            return False
        if AckType.RENEW in types and not renews:
            return False
        end = last
    return True


def _note_outcome(data: _PartitionData, outcome: ShareError | None) -> None:
    if outcome is not None:
        data.acknowledge_error_code = outcome.code
        data.acknowledge_error_message = outcome.message
