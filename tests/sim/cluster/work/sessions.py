"""Consumers with fetch sessions (KIP-227): one session for each broker, over all that it leads.

The brokers have so few places for sessions that followers push consumers out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.consumers import LATEST, REWIND, REWIND_TIERED, ClusterConsumer
from sim.cluster.work.part import Part
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sim.cluster.client import Key

Asked = tuple[int, int, int]  # fetch offset, last fetched epoch, leader epoch


class Session:
    """What one broker was asked for last. Without an id the next request opens a session."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.asked: dict[Key, Asked] = {}


class SessionConsumer(ClusterConsumer):
    """Reads from leaders, all partitions of a broker at once."""

    def __init__(self, world: Any, name: str) -> None:
        super().__init__(world, name)
        self.rack = ""
        self._sessions: dict[int, Session] = {}

    async def run(self) -> None:
        """Read until everything is written, and then to the end."""
        ends: dict[Key, int] | None = None
        self._look_around()
        rewind = REWIND_TIERED if self.world.tier.is_on else REWIND
        while ends is None or any(
            place.position < ends.get(key, 0) for key, place in self.places.items()
        ):
            for place in self.places.values():
                if ends is None and self.rng.random() < rewind:
                    place.position, place.epoch = 0, -1
            for node_id, places in await self._by_leader():
                await self._read_from(node_id, places)
            if ends is None and self.world.all_written:
                ends = {key: await self._offset(p, LATEST) for key, p in self.places.items()}
            self._look_around(only_old=ends is not None)
        self.cluster.close()

    async def _by_leader(self) -> list[tuple[int, dict[Key, Asked]]]:
        """What is to be asked of each broker now."""
        found: dict[int, dict[Key, Asked]] = {}
        for key, place in list(self.places.items()):
            try:
                epoch, node_id = await self.cluster.leader(place.history)
            except Lost:
                continue
            if node_id > 0:
                found.setdefault(node_id, {})[key] = (place.position, place.epoch, epoch)
        if not found:
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()
        return sorted(found.items())

    async def _read_from(self, node_id: int, wanted: dict[Key, Asked]) -> None:
        session = self._sessions.setdefault(node_id, Session())
        try:
            response = await self.cluster.ask(node_id, self._request(session, wanted), self.version)
        except Lost:
            del self._sessions[node_id]  # it may have taken the request: its epoch is not known
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()
            return
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            require(
                error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND and session.id,
                f"{self.name}: Fetch in session {session.id} of {node_id}, epoch {session.epoch},"
                f" was answered {error.name}",
            )
            self.world.history.count("fetch sessions gone")
            del self._sessions[node_id]
            return
        self._advance(session, wanted, response.session_id, node_id)
        await self._take_all(node_id, session, wanted, response)

    def _advance(
        self, session: Session, wanted: dict[Key, Asked], session_id: int, node_id: int
    ) -> None:
        if session.id:
            require(
                session_id == session.id,
                f"{self.name}: {node_id} answers in session {session_id} what was asked in"
                f" {session.id}",
            )
            self.world.history.count("fetches in sessions")
        session.id = session_id
        session.epoch = session.epoch + 1 if session_id else 0
        session.asked = dict(wanted) if session_id else {}

    def _request(self, session: Session, wanted: dict[Key, Asked]) -> FetchRequest:
        forgotten = [key for key in session.asked if key not in wanted]
        changed = {key: asked for key, asked in wanted.items() if session.asked.get(key) != asked}
        limit = self.partition_bytes * (20 if self.world.all_written else 1)
        topics: dict[bytes, Any] = {}
        for key, (offset, epoch, leader_epoch) in changed.items():
            topic = self.places[key].history.topic
            entry = topics.setdefault(
                key[0],
                FetchRequest.FetchTopic(topic=topic.name, topic_id=key[0], partitions=[]),
            )
            entry.partitions.append(
                FetchRequest.FetchPartition(
                    partition=key[1],
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=epoch,
                    partition_max_bytes=limit,
                )
            )
        return FetchRequest(
            max_wait_ms=0 if self.world.all_written else self.wait_ms,
            min_bytes=1,
            max_bytes=200_000,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=self._forgotten(forgotten),
        )

    def _forgotten(self, keys: Iterable[Key]) -> list[Any]:
        found: dict[bytes, Any] = {}
        for topic_id, index in keys:
            topic = self.world.history.topics[topic_id]
            entry = found.setdefault(
                topic_id,
                FetchRequest.ForgottenTopic(topic=topic.name, topic_id=topic_id, partitions=[]),
            )
            entry.partitions.append(index)
        return list(found.values())

    async def _take_all(
        self, node_id: int, session: Session, wanted: dict[Key, Asked], response: Any
    ) -> None:
        ids = {self.world.history.topics[key[0]].name: key[0] for key in wanted}
        is_stale = False
        for topic in response.responses:
            topic_id = bytes(topic.topic_id) if self.version >= 13 else ids.get(topic.topic, b"")
            for answer in topic.partitions:
                key = (topic_id, answer.partition_index)
                require(
                    key in wanted,
                    f"{self.name}: {node_id} answers for {topic.topic or topic_id.hex()}-{key[1]},"
                    f" which is not in session {session.id}",
                )
                place = self.places[key]
                try:
                    await self._take(place, answer, node_id)
                except Lost:
                    is_stale = True
        if is_stale:
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()


class Sessions(Part):
    """One consumer or two."""

    name = "fetch sessions"

    def settings(self) -> Mapping[str, str]:
        """Few places: each follower has one."""
        slots = self.rng.choice((2, 3, 1000))
        return {"max.incremental.fetch.session.cache.slots": str(slots)}

    def start(self) -> None:
        """They read what everybody writes."""
        for number in range(self.rng.randint(1, 2)):
            self.start_client(SessionConsumer(self.world, f"session-consumer-{number}"))
