"""Members of a share group as raw requests: heartbeats, share sessions, acknowledgements.

A member asks one request at a time of each broker. It acknowledges with the next fetch, or with a
request of its own; it may be late, forget records, lose answers, leave or vanish.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sim.history import require
from sim.share_history import Acknowledging, Delivery
from sim.share_world import GROUP, is_punctual, term
from sim.wire import Lost, WireConnection
from tidelog.shares.records import AckType
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.share_consumers import ShareAcknowledgeRequest, ShareFetchRequest
from tidelog_protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tidelog_protocol.records import crc_is_valid, iter_batches, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sim.share_world import ShareWorld
    from tidelog_protocol.schema import Message

    Place = tuple[int, int]  # partition, offset
    Choice = tuple[Delivery, AckType]

OF_GROUPS, OF_TRANSACTIONS = 0, 1  # types of coordinators
CONNECT_S_MAX = 1.0
BEAT_S = 0.3
PAUSE_S = 0.05
LEAVES = FINAL_EPOCH = -1
REJOINS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
LATE_S = (1.05, 1.8)  # a lock lasts a second
ASLEEP_S = (2.2, 4.0)  # and a session of the group two


class Connections:
    """A host's connections to the brokers, opened when needed."""

    def __init__(
        self, world: ShareWorld, host: str, key: tuple[int, str] = (OF_GROUPS, GROUP)
    ) -> None:
        """`key`: type and key of the coordinator."""
        self.world, self.host = world, host
        self.coordinator = ""
        self._key = key
        self._rng = random.Random(f"{world.seed}:share host {host}")
        self._open: dict[str, WireConnection] = {}
        world.begins(host)

    async def to(self, name: str) -> WireConnection:
        """The open connection to a broker, or a new one; Lost if it does not answer."""
        known = self._open.get(name)
        if known is None or not known.is_open:
            machine = self.world.machine(name)
            opening = asyncio.ensure_future(WireConnection.open(machine, self.host))
            await asyncio.wait([opening], timeout=CONNECT_S_MAX)
            if not opening.done():
                opening.cancel()
                raise Lost(f"no connection to {name}")
            known = self._open[name] = opening.result()
        return known

    async def ask(self, name: str, message: Message, version: int) -> Any:
        """One request to one broker."""
        return await (await self.to(name)).ask(message, version)

    async def ask_coordinator(self, message: Message, version: int) -> Any:
        """One request to the coordinator; Lost if it is not found."""
        if not self.coordinator:
            name = self._rng.choice(self.world.brokers())
            kind, key = self._key
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = (await self.ask(name, find, 5)).coordinators[0]
            if found.error_code:
                raise Lost(ErrorCode(found.error_code).name)
            self.coordinator = self.world.name_of(found.node_id)
        try:
            return await self.ask(self.coordinator, message, version)
        except Lost:
            self.coordinator = ""
            raise

    def vanish(self) -> None:
        """The host is gone, without a word."""
        self.world.network.drop_host(self.host)
        for connection in self._open.values():
            connection.is_open = False

    def close(self) -> None:
        """End all."""
        for connection in self._open.values():
            connection.close()


@dataclass(eq=False)
class Session:
    """A share session: it ends with its connection, or when it is closed."""

    connection: WireConnection
    partitions: dict[int, None] = field(default_factory=dict)
    epoch: int = 0  # of the next request
    is_closing: bool = False

    @property
    def is_open(self) -> bool:
        """Whether its member has what it was given here."""
        return self.connection.is_open and not self.is_closing

    def next_epoch(self) -> int:
        """Return the epoch of a request that leaves now."""
        self.epoch += 1
        return self.epoch - 1


@dataclass
class Asked:
    """A fetch that waits for its answer, and the leaders' lives when it left."""

    session: Session
    asking: list[Acknowledging]
    records_max: int
    sent_s: float
    terms: dict[int, Any]


class ShareMember:
    """One life of a member, with an id and a host of its own."""

    def __init__(self, world: ShareWorld, name: str, rng: random.Random) -> None:
        self.world, self.name, self.rng = world, name, rng
        self.is_leaving = False
        self._connections = Connections(world, name)
        self._epoch = 0
        self._assigned: list[int] = []
        self._is_heard = False  # its last heartbeat succeeded; else it says all, as Kafka's
        self._wakes_s = 0.0
        self._sessions: dict[str, Session] = {}
        self._held: dict[str, dict[Place, Delivery]] = {}
        self._due: dict[str, dict[Place, Choice]] = {}  # with the next fetch
        self._fetching: list[int] = []

    def _now(self) -> float:
        return self.world.loop.time()

    def _chance(self, probability: float) -> bool:
        return not self.world.is_quiet and self.rng.random() < probability

    def vanish(self) -> None:
        """It is gone, without a word."""
        self.world.history.count("members that vanish")
        self._connections.vanish()
        self.world.history.fetch_lost(self._fetching, [], self._now())

    # -- its group ---------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Heartbeats, until it is cancelled."""
        while True:
            await asyncio.sleep(max(BEAT_S, self._wakes_s - self._now()))
            try:
                await self._beat_once(self._epoch)
            except Lost:
                await asyncio.sleep(PAUSE_S)

    async def _beat_once(self, epoch: int) -> None:
        message = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=epoch,
            subscribed_topic_names=None if epoch and self._is_heard else [self.world.topic],
        )
        self._is_heard = False
        answer = await self._connections.ask_coordinator(message, 1)
        error = ErrorCode(answer.error_code)
        self.world.history.count(f"heartbeats answered {error.name}")
        if error is ErrorCode.NONE:
            self._is_heard = True
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                self._assigned = [n for each in topics for n in each.partitions]
        elif error in REJOINS:
            self._epoch, self._assigned = 0, []
        else:
            self._connections.coordinator = ""

    # -- reading -----------------------------------------------------------------------------------

    async def read(self) -> None:
        """Fetch and acknowledge, until it leaves or is cancelled."""
        while not self.is_leaving:
            leaders = map(self.world.leader_of, self._assigned)
            for name in dict.fromkeys((*leaders, *self._due)):
                if not name:
                    continue
                try:
                    await self._serve(name)
                except Lost:
                    self._sessions.pop(name, None)
                    await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(self.rng.choice((0.002, 0.01, PAUSE_S)))
        await self._leave()

    async def _serve(self, name: str) -> None:
        """One fetch from a broker, and what follows from it."""
        await self._fetch(name)
        if self._chance(0.08):
            self.world.history.count("members that are late")
            await asyncio.sleep(self.rng.uniform(*LATE_S))
        elif self._chance(0.02):
            self.world.history.count("members that sleep")
            seconds = self.rng.uniform(*ASLEEP_S)
            self._wakes_s = self._now() + seconds
            await asyncio.sleep(seconds)
        chosen = self._choose(name)
        renews = any(kind is AckType.RENEW for _, kind in chosen)
        if not renews and self.rng.random() < 0.4:
            due = self._due.setdefault(name, {})
            due.update({(each.index, each.offset): (each, kind) for each, kind in chosen})
        elif chosen:
            await self._acknowledge(name, chosen)

    def _choose(self, name: str) -> list[Choice]:
        """What becomes of the records that it got from a broker."""
        chosen: list[Choice] = []
        renewed = {}
        kind = AckType.ACCEPT
        for place, each in self._held.pop(name, {}).items():
            if self._chance(0.3):
                kinds = (AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW)
                kind = self.rng.choices(kinds, (10, 4, 1, 1))[0]
            elif self._chance(0.03):
                self.world.history.count("records forgotten")
                continue
            if each.value is None:
                chosen.append((each, AckType.GAP))
                continue
            chosen.append((each, AckType.ACCEPT if self.world.is_quiet else kind))
            if chosen[-1][1] is AckType.RENEW:
                renewed[place] = each
        if renewed:
            self._held[name] = renewed
        return chosen

    async def _session(self, name: str) -> Session:
        """The session at a broker; a new one has epoch 0."""
        known = self._sessions.get(name)
        if known is None or not known.is_open:
            known = self._sessions[name] = Session(await self._connections.to(name))
        return known

    async def _fetch(self, name: str) -> None:
        session = await self._session(name)
        mine = [n for n in self._assigned if self.world.leader_of(n) == name]
        if not mine and not session.partitions:
            self._due.pop(name, None)
            return
        epoch = session.next_epoch()
        asking = [] if epoch == 0 else self._asking(self._due.pop(name, {}).values(), session)
        # A deposed leader is asked for no records: it may not know what is done.
        others = dict.fromkeys((*session.partitions, *(each.index for each in asking)))
        forgotten = [n for n in others if n not in mine]
        added = [n for n in mine if n not in session.partitions]
        session.partitions = dict.fromkeys(mine)
        message = self._fetch_request(epoch, added, forgotten, asking)
        terms = {n: term(self.world, name, n) for n in mine}
        asked = Asked(session, asking, message.max_records, self._now(), terms)
        self._fetching = mine
        response = await self._answer(name, session, message, asking)
        self._fetching = []
        if response.error_code:
            self.world.history.count(f"fetches answered {ErrorCode(response.error_code).name}")
            self._has_lost(name, mine)
            self._sessions.pop(name, None)
        else:
            self._take(name, asked, response)
            self._check_size(message, response)

    def _check_size(self, message: ShareFetchRequest, response: Any) -> None:
        if message.share_acquire_mode:
            parts = [part for topic in response.responses for part in topic.partitions]
            given = [each for part in parts for each in part.acquired_records]
            got, most = sum(e.last_offset - e.first_offset + 1 for e in given), message.max_records
            require(got <= most, f"{self.name} got {got} records, and asked for at most {most}")

    def _has_lost(self, name: str, indexes: list[int]) -> None:
        held = [*self._held.get(name, {}).values()]
        held += [each for each, _ in self._due.get(name, {}).values()]
        self.world.history.fetch_lost(indexes, held, self._now())

    async def _answer(
        self, name: str, session: Session, message: Message, asking: list[Acknowledging]
    ) -> Any:
        """The answer; now and then it is not waited for."""
        for each in asking:
            self.world.history.asks(each)
        future = session.connection.send(message, 2)
        try:
            if self._chance(0.03):
                await asyncio.sleep(self.rng.choice((0.0, 0.003, 0.1)))
                session.connection.close()
            return await session.connection.receive(future)
        except Lost:
            self._has_lost(name, self._fetching)
            self._fetching = []
            raise

    def _fetch_request(
        self, epoch: int, added: list[int], forgotten: list[int], asking: list[Acknowledging]
    ) -> ShareFetchRequest:
        partition_of = ShareFetchRequest.FetchPartition
        batches = {each.index: _batches(each, partition_of.AcknowledgementBatch) for each in asking}
        partitions = [
            partition_of(partition_index=n, acknowledgement_batches=batches.get(n, []))
            for n in dict.fromkeys((*added, *batches))
        ]
        topic_id = self.world.topic_id
        topic = ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=partitions)
        left = ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=forgotten)
        return ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=epoch,
            max_wait_ms=self.rng.choice((0, 50, 300)),
            min_bytes=1,
            max_bytes=self.rng.choice((300, 1 << 20)),
            max_records=self.rng.choice((1, 3, 20, 500)),
            batch_size=self.rng.choice((1, 5, 100)),
            share_acquire_mode=self.rng.choice((0, 0, 1)),
            topics=[topic] if partitions else [],
            forgotten_topics_data=[left] if forgotten else [],
        )

    def _take(self, name: str, asked: Asked, response: Any) -> None:
        """The parts of an answer: outcomes first, since records may come again at once."""
        now_s = self._now()
        parts = {each.partition_index: each for t in response.responses for each in t.partitions}
        for each in asked.asking:
            error = ErrorCode(parts[each.index].acknowledge_error_code)
            self.world.history.answered(each, error, now_s, term(self.world, name, each.index))
        if not self._is_readable(name, parts):
            self._has_lost(name, list(asked.terms))
            asked.session.connection.close()
            raise Lost("bytes that rot")
        for index, data in parts.items():
            if data.error_code:
                self.world.history.count(f"partitions answered {ErrorCode(data.error_code).name}")
            values = _values_of(bytes(data.records or b""))
            life, before = term(self.world, name, index), asked.terms.get(index)
            for given in data.acquired_records:
                for offset in range(given.first_offset, given.last_offset + 1):
                    new = Delivery(
                        self.name,
                        index,
                        offset,
                        given.delivery_count,
                        values.get(offset),
                        asked.sent_s,
                        now_s,
                        response.acquisition_lock_timeout_ms / 1000,
                        life if before in (None, life) else None,
                        asked.session,
                    )
                    self.world.history.delivered(new)
                    # It answers for the last delivery of a record.
                    self._held.setdefault(name, {})[index, offset] = new
                    self._due.get(name, {}).pop((index, offset), None)

    def _is_readable(self, name: str, parts: Mapping[int, Any]) -> bool:
        """Whether all batches are as they were written; a fault must explain it if not."""
        for index, part in parts.items():
            data = bytes(part.records or b"")
            if not all(crc_is_valid(data, header, at) for at, header in iter_batches(data)):
                where = f"partition {index} at {name}"
                require(self.world.is_rotten(name, index), f"{where}: a bad checksum")
                self.world.history.count("bad checksums")
                return False
        return True

    # -- acknowledgements --------------------------------------------------------------------------

    def _asking(self, chosen: Iterable[Choice], session: Session) -> list[Acknowledging]:
        parts: dict[int, list[Choice]] = {}
        for each in sorted(chosen, key=lambda one: one[0].offset):
            parts.setdefault(each[0].index, []).append(each)
        now_s, in_time = self._now(), is_punctual(self.world, session.connection.host)
        return [Acknowledging(n, each, now_s, session, in_time) for n, each in parts.items()]

    async def _acknowledge(self, name: str, chosen: list[Choice], *, is_last: bool = False) -> None:
        session = await self._session(name)
        if session.epoch == 0:
            return  # what it held is released with its old session
        asking = self._asking(chosen, session)
        partition_of = ShareAcknowledgeRequest.AcknowledgePartition
        partitions = [
            partition_of(
                partition_index=each.index,
                acknowledgement_batches=_batches(each, partition_of.AcknowledgementBatch),
            )
            for each in asking
        ]
        topic = ShareAcknowledgeRequest.AcknowledgeTopic(
            topic_id=self.world.topic_id, partitions=partitions
        )
        message = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=FINAL_EPOCH if is_last else session.next_epoch(),
            is_renew_ack=any(kind is AckType.RENEW for _, kind in chosen),
            topics=[topic] if partitions else [],
        )
        session.is_closing = is_last
        response = await self._answer(name, session, message, asking)
        if response.error_code:
            self.world.history.count(f"requests answered {ErrorCode(response.error_code).name}")
            self._sessions.pop(name, None)
            return
        parts = {each.partition_index: each for t in response.responses for each in t.partitions}
        for each in asking:
            error, life = (
                ErrorCode(parts[each.index].error_code),
                term(self.world, name, each.index),
            )
            self.world.history.answered(each, error, self._now(), life)

    async def _leave(self) -> None:
        """Close the sessions, and leave the group."""
        self.world.history.count("members that leave")
        try:
            for name in list(self._sessions):
                chosen = [*self._due.pop(name, {}).values(), *self._choose(name)]
                await self._acknowledge(name, chosen, is_last=True)
            await self._beat_once(LEAVES)
        except Lost:
            pass
        self._connections.close()


def _batches(asking: Acknowledging, batch_of: Any) -> list[Any]:
    """Runs of neighbouring offsets, with one type for all or one for each."""
    runs: list[list[tuple[int, int]]] = []
    for each, kind in asking.chosen:
        if not runs or runs[-1][-1][0] + 1 != each.offset:
            runs.append([])
        runs[-1].append((each.offset, int(kind)))
    batches = []
    for run in runs:
        types = [kind for _, kind in run]
        types = types[:1] if len(set(types)) == 1 else types
        batches.append(
            batch_of(first_offset=run[0][0], last_offset=run[-1][0], acknowledge_types=types)
        )
    return batches


def _values_of(data: bytes) -> dict[int, bytes]:
    """The records of an answer, without markers."""
    values = {}
    for position, header in iter_batches(data):
        if not header.is_control:
            for record in iter_records(data, position):
                values[record.offset] = bytes(record.value or b"")
    return values
