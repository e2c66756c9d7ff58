"""The history of a simulated run: every request of every client, as it left and as it was answered.

`Observer` hangs on the loop (`loop.observer`); `WireConnection` calls it. `history_of` translates
the requests into `histories.calls` at the end of a run, by the bytes that went over the wire alone:
what a client's own code makes of an answer plays no part.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from histories.calls import (
    ClientHistory,
    Commit,
    Committed,
    Led,
    Listed,
    Loss,
    MemberCall,
    Outcome,
    Poll,
    Send,
    Span,
    Stamp,
    Transaction,
)
from histories.judge import anomalies
from sim.history import require
from sim.observed_beats import beat_of, classic_beat_of
from sim.observed_streams import StreamsBeats
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest, ProduceRequest
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tidelog_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tidelog_protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from tidelog_protocol.messages.txns import EndTxnRequest, TxnOffsetCommitRequest
from tidelog_protocol.records import (
    LOG_APPEND_TIME,
    ControlType,
    control_type,
    crc_is_valid,
    iter_batches,
    iter_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from histories.calls import Place
    from sim.history import TopicHistory
    from tidelog_protocol.records import Record
    from tidelog_protocol.schema import Message

LATEST, EARLIEST = -1, -2
REFUSED_ENDS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


MEMBER_CALLS = {HeartbeatRequest: "beat", JoinGroupRequest: "join", SyncGroupRequest: "sync"}


class Asked:
    """One request. `response` stays None if no answer came. `term`: of the group's coordinator, if
    it certainly was the one that answered."""

    __slots__ = ("client", "completed", "host", "invoked", "message", "response", "term")

    def __init__(self, client: str, host: str, message: Message, invoked: float) -> None:
        self.client, self.host, self.message, self.invoked = client, host, message, invoked
        self.completed = math.inf
        self.response: Any = None
        self.term: Any = None

    @property
    def span(self) -> Span:
        """When it was made and answered."""
        return Span(self.invoked, self.completed)


class Observer:
    """Every request of a run, in the order in which they left."""

    KINDS = (
        ConsumerGroupHeartbeatRequest,
        EndTxnRequest,
        FetchRequest,
        LeaveGroupRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        ProduceRequest,
        StreamsGroupHeartbeatRequest,
        TxnOffsetCommitRequest,
        *MEMBER_CALLS,
    )

    def __init__(self, now: Callable[[], float]) -> None:
        self.asked: list[Asked] = []
        self.losses: list[Loss] = []
        self.distrusted: set[str] = set()  # brokers that may read wrong offsets from their disks
        self.steady: dict[str, float] = {}  # groups, and since when
        self.together: dict[str, float] = {}  # topics, and since when
        self.sessions: dict[str, float] = {}  # seconds, of groups with member epochs
        self.term_of: Callable[[str, str], Any] | None = None  # of a group, if this host has it
        self.quiet_since = math.inf
        self.clocks_are_steady = True
        self._now = now

    def invoked(self, client: str, host: str, message: Message) -> Asked | None:
        """A request leaves a client; None if its kind is not judged."""
        if not isinstance(message, self.KINDS):
            return None
        asked = Asked(client, host, message, self._now())
        asked.term = self._term(asked)
        self.asked.append(asked)
        return asked

    def _term(self, asked: Asked) -> Any:
        group_id = getattr(asked.message, "group_id", None)
        if self.term_of is None or group_id not in self.sessions:
            return None
        return self.term_of(group_id, asked.host)

    def answered(self, asked: Asked | None, response: Any) -> None:
        """Its answer reached the client."""
        if asked is not None:
            asked.completed, asked.response = self._now(), response
            if asked.term is not None and asked.term != self._term(asked):
                asked.term = None


def judge_clients(observer: Observer, topics: Iterable[TopicHistory]) -> None:
    """Violation, naming the first anomalies, if the clients saw what Kafka promises they don't."""
    found = anomalies(history_of(observer, list(topics)))
    require(not found, f"{len(found)} anomalies; " + "; ".join(map(str, found[:3])))


def history_of(observer: Observer, topics: Sequence[TopicHistory]) -> ClientHistory:
    """What the clients of a run saw."""
    return _Translation(observer, topics).history


def content_of(record: Record) -> bytes:
    """What tells a record from others: its value or, of a tombstone, its header."""
    if record.value is None and record.headers:
        return record.headers[0][1] or b""
    return record.value or b""


class _Translation:
    """Requests become calls. A topic is its id; a name that several topics had is passed over."""

    def __init__(self, observer: Observer, topics: Sequence[TopicHistory]) -> None:
        self.history = ClientHistory(
            quiet_since=observer.quiet_since,
            losses=observer.losses,
            steady=observer.steady,
            sessions=observer.sessions,
            together=observer.together,
            clocks_are_steady=observer.clocks_are_steady,
        )
        self._in_sessions: dict[tuple[str, str, int], dict[Place | None, int]] = {}
        self._sends: dict[tuple[Place, bytes], Send] = {}
        self._open: dict[tuple[str, int, int], Transaction] = {}  # by client, producer id, epoch
        self._polls: dict[str, int] = defaultdict(int)
        self._last_polls: dict[tuple[str, Place, int], Poll] = {}  # by client, place and end
        by_name: dict[str, list[bytes]] = defaultdict(list)
        for topic in topics:
            by_name[topic.name].append(topic.topic_id)
            self._note_losses_allowed(topic)
        self._ids = {name: ids[0] for name, ids in by_name.items() if len(ids) == 1}
        self._known = {topic.topic_id for topic in topics}
        self._streams = StreamsBeats(self._place_of_name)
        translate: dict[type, Callable[[Asked], None]] = {
            ConsumerGroupHeartbeatRequest: lambda asked: self.history.beats.append(beat_of(asked)),
            EndTxnRequest: self._end,
            FetchRequest: self._fetch,
            LeaveGroupRequest: self._classic_beat,
            ListOffsetsRequest: self._list,
            MetadataRequest: self._metadata,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._committed,
            ProduceRequest: self._produce,
            StreamsGroupHeartbeatRequest: self._streams_beat,
            TxnOffsetCommitRequest: self._commit,
            **dict.fromkeys(MEMBER_CALLS, self._member_call),
        }
        for asked in observer.asked:
            translate[type(asked.message)](asked)

    def _note_losses_allowed(self, topic: TopicHistory) -> None:
        if "compact" in topic.config.get("cleanup.policy", ""):
            self.history.compacted.add(topic.topic_id.hex())
        for index, partition in topic.partitions.items():
            bound = math.inf if topic.has_retention else partition.delete_bound
            self.history.deleted[topic.topic_id.hex(), index] = bound

    def _place(self, topic: Any, index: int) -> Place | None:
        topic_id = bytes(getattr(topic, "topic_id", b"") or b"")
        if not any(topic_id):
            name = getattr(topic, "name", "") or getattr(topic, "topic", "")
            topic_id = self._ids.get(name, b"")
        return (topic_id.hex(), index) if topic_id in self._known else None

    # -- records -----------------------------------------------------------------------------------

    def _produce(self, asked: Asked) -> None:
        answers = {}
        for topic in () if asked.response is None else asked.response.responses:
            for answer in topic.partition_responses:
                answers[self._place(topic, answer.index)] = answer
        for topic in asked.message.topic_data:  # type: ignore[attr-defined]
            for data in topic.partition_data:
                place = self._place(topic, data.index)
                if place is not None:
                    self._batches_sent(asked, place, data.records, answers.get(place))

    def _batches_sent(self, asked: Asked, place: Place, data: Any, answer: Any) -> None:
        is_acknowledged = answer is not None and answer.error_code == ErrorCode.NONE
        at = answer.base_offset if is_acknowledged and answer.base_offset >= 0 else None
        for position, header in iter_batches(data):
            transaction = None
            if header.is_transactional:
                transaction = self._transaction(
                    (asked.client, header.producer_id, header.producer_epoch)
                )
            for record in iter_records(data, position):
                send = Send(
                    client=asked.client,
                    place=place,
                    value=content_of(record),
                    span=asked.span,
                    outcome=Outcome.OK if is_acknowledged else Outcome.UNKNOWN,
                    offset=None if at is None else at + record.offset,
                    is_all=asked.message.acks == -1,  # type: ignore[attr-defined]
                    is_once=header.producer_id >= 0,
                    transaction=transaction,
                    key=record.key,
                    is_deletion=record.value is None,
                    appended_ms=answer.log_append_time_ms if is_acknowledged else -1,
                )
                self._merge(send)

    def _merge(self, send: Send) -> None:
        """A value that is sent again is one record: from its first try to its first answer."""
        known = self._sends.setdefault((send.place, send.value), send)
        if known is send:
            self.history.sends.append(send)
        elif known.outcome is not Outcome.OK and send.outcome is Outcome.OK:
            known.span = Span(known.span.invoked, send.span.completed)
            known.outcome, known.offset, known.is_all = send.outcome, send.offset, send.is_all
            known.appended_ms = send.appended_ms

    def _fetch(self, asked: Asked) -> None:
        message: Any = asked.message
        if asked.response is None or asked.response.error_code:
            return
        starts = {
            self._place(topic, partition.partition): partition.fetch_offset
            for topic in message.topics
            for partition in topic.partitions
        }
        starts = self._starts_in_session(asked, starts)
        for topic in asked.response.responses:
            for answer in topic.partitions:
                place = self._place(topic, answer.partition_index)
                if place in starts and place is not None and answer.records:
                    self._read(asked, place, starts[place], answer)

    def _starts_in_session(
        self, asked: Asked, starts: dict[Place | None, int]
    ) -> dict[Place | None, int]:
        """In a session a request names what has changed alone (KIP-227)."""
        message: Any = asked.message
        if message.session_epoch > 0:
            known = self._in_sessions.get((asked.client, asked.host, message.session_id), {})
            gone = {
                self._place(topic, index)
                for topic in message.forgotten_topics_data
                for index in topic.partitions
            }
            starts = {place: at for place, at in known.items() if place not in gone} | starts
        if asked.response.session_id:
            self._in_sessions[asked.client, asked.host, asked.response.session_id] = starts
        return starts

    def _read(self, asked: Asked, place: Place, start: int, answer: Any) -> None:
        is_committed = asked.message.isolation_level == 1  # type: ignore[attr-defined]
        reader = _Reader(bytes(answer.records), answer.aborted_transactions, is_committed)
        records = tuple(found for found in reader if found[0] >= start)
        self._polls[asked.client] += 1  # raw clients seek as they like: each read stands alone
        poll = Poll(
            client=asked.client,
            place=place,
            start=start,
            end=max(reader.end, start),
            records=records,
            span=asked.span,
            is_committed=is_committed,
            assignment=self._polls[asked.client],
            stamps=tuple(stamp for stamp in reader.stamps if stamp.offset >= start),
        )
        self.history.polls.append(poll)
        self._last_polls[poll.client, place, poll.end] = poll

    # -- transactions ------------------------------------------------------------------------------

    def _transaction(self, key: tuple[str, int, int]) -> Transaction:
        """The one that a batch belongs to: a new one if the last one's end was asked for.

        The first protocol has many in an epoch, one after the other.
        """
        known = self._open.get(key)
        if known is None or known.ended.invoked < math.inf:
            number = len(self.history.transactions)
            known = Transaction(f"{key[0]}'s transaction {number}")
            self._open[key] = known
            self.history.transactions.append(known)
        return known

    def _note_reads(self, asked: Asked, place: Place, offset: int) -> None:
        """A transaction commits up to which offset it has read: the last read that ended there is
        part of it. The hosts of a copier's producers are named after the one that reads."""
        message: Any = asked.message
        key = (asked.client, message.producer_id, message.producer_epoch)
        poll = self._last_polls.get((asked.client.rpartition("-")[0], place, offset))
        transaction = self._open.get(key)
        if poll is not None and transaction is not None and poll.transaction is None:
            poll.transaction, poll.group = transaction, message.group_id

    def _end(self, asked: Asked) -> None:
        message: Any = asked.message
        key = (asked.client, message.producer_id, message.producer_epoch)
        transaction = self._open.get(key)
        if transaction is None:
            return  # it has no record
        code = None if asked.response is None else ErrorCode(asked.response.error_code)
        if code is ErrorCode.NONE:
            del self._open[key]  # the next end is that of another one
        if transaction.ended.invoked == math.inf:
            transaction.ended = asked.span
        if message.committed and code is ErrorCode.NONE:
            transaction.outcome = Outcome.OK
        elif message.committed and code not in REFUSED_ENDS:
            transaction.outcome = Outcome.UNKNOWN

    # -- offsets and leaders -----------------------------------------------------------------------

    def _list(self, asked: Asked) -> None:
        message: Any = asked.message
        if asked.response is None or message.replica_id != -1 or message.isolation_level:
            return
        times = {
            self._place(topic, partition.partition_index): partition.timestamp
            for topic in message.topics
            for partition in topic.partitions
        }
        for topic in asked.response.topics:
            for answer in topic.partitions:
                place = self._place(topic, answer.partition_index)
                time = times.get(place)
                if place is None or answer.error_code or time not in (LATEST, EARLIEST):
                    continue
                # The epoch of a start is that of its record, and not the leader's.
                epoch = answer.leader_epoch if time == LATEST else -1
                self.history.listed.append(
                    Listed(asked.client, place, time == LATEST, answer.offset, epoch, asked.span)
                )

    def _metadata(self, asked: Asked) -> None:
        for topic in () if asked.response is None else asked.response.topics:
            for partition in topic.partitions:
                place = self._place(topic, partition.partition_index)
                if place is not None and partition.leader_epoch >= 0:
                    leader, epoch = partition.leader_id, partition.leader_epoch
                    self.history.led.append(Led(asked.client, place, leader, epoch, asked.span))

    def _commit(self, asked: Asked) -> None:
        message: Any = asked.message
        # An offset in a transaction holds if that commits: its outcome stays open here.
        is_known = asked.response is not None and isinstance(message, OffsetCommitRequest)
        accepted = {
            (topic.name, answer.partition_index)
            for topic in (asked.response.topics if is_known else ())
            for answer in topic.partitions
            if answer.error_code == ErrorCode.NONE
        }
        if is_known:
            self._note_member_call(asked, "commit", asked.response.topics[0].partitions[0])
        for topic in message.topics:
            for partition in topic.partitions:
                place = self._place(topic, partition.partition_index)
                if place is None:
                    continue
                if isinstance(message, TxnOffsetCommitRequest):
                    self._note_reads(asked, place, partition.committed_offset)
                is_ok = (topic.name, partition.partition_index) in accepted
                self.history.commits.append(
                    Commit(
                        client=asked.client,
                        group=message.group_id,
                        place=place,
                        offset=partition.committed_offset,
                        span=asked.span,
                        outcome=Outcome.OK if is_ok else Outcome.UNKNOWN,
                        member_id=message.member_id,
                        epoch=getattr(message, "generation_id_or_member_epoch", -1),
                    )
                )

    def _streams_beat(self, asked: Asked) -> None:
        self.history.beats.append(self._streams.beat_of(asked))

    def _classic_beat(self, asked: Asked) -> None:
        """A classic member's call, if its group is one of KIP-848 for a while."""
        if asked.message.group_id in self.history.sessions:  # type: ignore[attr-defined]
            beat = classic_beat_of(asked, self._place_of_name)
            if beat is not None:
                self.history.beats.append(beat)

    def _place_of_name(self, name: str, index: int) -> Place | None:
        topic_id = self._ids.get(name)
        return None if topic_id is None else (topic_id.hex(), index)

    def _member_call(self, asked: Asked) -> None:
        self._classic_beat(asked)
        self._note_member_call(asked, MEMBER_CALLS[type(asked.message)], asked.response)

    def _note_member_call(self, asked: Asked, kind: str, answer: Any) -> None:
        message: Any = asked.message
        if message.group_instance_id is None or answer is None:
            return
        error = ErrorCode(answer.error_code)
        is_join = kind == "join"
        generation = "generation_id_or_member_epoch" if kind == "commit" else "generation_id"
        self.history.member_calls.append(
            MemberCall(
                kind=kind,
                group=message.group_id,
                instance=message.group_instance_id,
                member_id=answer.member_id if is_join else message.member_id,
                generation=getattr(answer if is_join else message, generation),
                host=asked.host,
                span=asked.span,
                outcome=Outcome.FAILED if error else Outcome.OK,
                error=error.name,
                assignment=bytes(answer.assignment) if kind == "sync" else b"",
            )
        )

    def _committed(self, asked: Asked) -> None:
        for group in () if asked.response is None else asked.response.groups:
            for topic in () if group.error_code else group.topics:
                for answer in topic.partitions:
                    place = self._place(topic, answer.partition_index)
                    if place is None or answer.error_code:
                        continue
                    offset = answer.committed_offset
                    self.history.committed.append(
                        Committed(asked.client, group.group_id, place, offset, asked.span)
                    )


class _Reader:
    """What a consumer makes of the bytes of an answer; `end` is then where it goes on."""

    def __init__(self, data: bytes, aborted: Any, is_committed: bool) -> None:
        self.end = 0
        self.stamps: list[Stamp] = []
        self._data = data
        self._aborted = sorted((each.first_offset, each.producer_id) for each in aborted or ())
        self._is_committed = is_committed

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Offsets and values up to the first batch that is torn or bad."""
        data, aborted, skipped = self._data, self._aborted, set[int]()
        try:
            for position, header in iter_batches(data):
                if not crc_is_valid(data, header, position):
                    return
                while aborted and aborted[0][0] <= header.last_offset:
                    skipped.add(aborted.pop(0)[1])
                self.end = header.last_offset + 1
                records = list(iter_records(data, position))
                if header.is_control:
                    if records and control_type(records[0]) == ControlType.ABORT:
                        skipped.discard(header.producer_id)
                    continue
                is_aborted = header.is_transactional and header.producer_id in skipped
                if header.timestamp_type == LOG_APPEND_TIME:
                    self.stamps += [
                        Stamp(record.offset, record.timestamp, header.leader_epoch)
                        for record in records
                    ]
                if not (self._is_committed and is_aborted):
                    yield from ((record.offset, content_of(record)) for record in records)
        except ProtocolError:
            return
