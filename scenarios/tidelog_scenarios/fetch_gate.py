"""Holds followers' fetches, and the start of their auxiliary state, until a step lets them go.

Brokers get their fetchers from `FetchGate.new_fetcher`. Each fetch waits here, then asks for what
the log needs by then. A pause after an error ends when its time is over and a step lets it fetch.
Everything else is the real fetcher's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.replication.replica_fetcher import ReplicaFetcher
from tidelog_scenarios.vocabulary import TOPIC

if TYPE_CHECKING:
    from tidelog.replication.fetch_state import FetchState, State
    from tidelog.replication.fetcher_session import Asked

__all__ = ["FetchGate", "Fetched"]


class Fetched(NamedTuple):
    """A follower's request to its leader, and the answer."""

    asked: Asked
    data: Any
    """The one partition's answer; None if the leader had nothing new."""


class FetchGate:
    """The gate of all brokers of a stage, by node id."""

    def __init__(self, fetcher: type[GatedFetcher] | None = None) -> None:
        """`fetcher` follows by another rule than `GatedFetcher`."""
        self._fetcher = fetcher or GatedFetcher
        self._fetchers: dict[int, GatedFetcher] = {}
        self._may_fetch: dict[int, asyncio.Event] = {}
        self._may_build: dict[int, asyncio.Event] = {}
        self._fetching: dict[int, asyncio.Future[Fetched]] = {}
        self._building: dict[int, asyncio.Future[None]] = {}
        self._failures: dict[int, str] = {}

    def new_fetcher(self, *args: Any, **kwargs: Any) -> ReplicaFetcher:
        """Make a gated fetcher; the parameters are those of `ReplicaFetcher`."""
        return self._fetcher(self, *args, **kwargs)

    def state(self, node_id: int, topic_id: bytes) -> State | None:
        """Return the state of a broker's fetching; None if it follows no leader."""
        fetcher = self._fetchers.get(node_id)
        state = None if fetcher is None else fetcher.state(topic_id, 0)
        return None if state is None else state.state

    # -- for the player ----------------------------------------------------------------------------

    async def fetch(self, node_id: int) -> Fetched:
        """Let a broker fetch once and process the answer."""
        future: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self._fetching[node_id] = future
        self.may_fetch(node_id).set()
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None:
            fetcher.end_pauses()
        try:
            return await future
        finally:
            self.may_fetch(node_id).clear()

    async def build(self, node_id: int) -> str:
        """Let a broker build its auxiliary state; return the failure, or ""."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._building[node_id] = future
        self._failures[node_id] = ""
        self.may_build(node_id).set()
        try:
            await future
        finally:
            self.may_build(node_id).clear()
        return self._failures[node_id]

    # -- for the fetchers --------------------------------------------------------------------------

    def made(self, node_id: int, fetcher: GatedFetcher) -> None:
        """Note a broker's new fetcher: it follows another leader."""
        self._fetchers[node_id] = fetcher

    def may_fetch(self, node_id: int) -> asyncio.Event:
        """Return the event that is set while a broker may fetch."""
        return self._may_fetch.setdefault(node_id, asyncio.Event())

    def may_build(self, node_id: int) -> asyncio.Event:
        """Return the event that is set while a broker may build its auxiliary state."""
        return self._may_build.setdefault(node_id, asyncio.Event())

    def passed(self, node_id: int, fetched: Fetched) -> None:
        """Note that a broker has fetched."""
        self.may_fetch(node_id).clear()
        future = self._fetching.get(node_id)
        if future is not None and not future.done():
            future.set_result(fetched)

    def built(self, node_id: int) -> None:
        """Note that a broker has built, or failed to."""
        self.may_build(node_id).clear()
        future = self._building.get(node_id)
        if future is not None and not future.done():
            future.set_result(None)

    def failed(self, node_id: int, why: str) -> None:
        """Note why a broker paused its partition."""
        self._failures[node_id] = why


class GatedFetcher(ReplicaFetcher):
    """Follows the play's partition when the gate lets it, and other partitions as usual."""

    def __init__(self, gate: FetchGate, *args: Any, **kwargs: Any) -> None:
        self._gate = gate
        self._answer: tuple[Any] | None = None
        self._paused: list[FetchState] = []  # the pause is over, the step has not come
        super().__init__(*args, **kwargs)
        gate.made(self._node_id, self)

    async def _fetch(self) -> None:
        topics = {state.partition.topic_partition.topic for state in self._states.values()}
        if TOPIC not in topics:
            await super()._fetch()
            return
        await self._gate.may_fetch(self._node_id).wait()
        self._touched.update(dict.fromkeys(self._states))  # they may have changed while it waited
        self._update_session()
        if not self._session.asked:
            return
        ((_, asked),) = self._session.asked.items()
        self._answer = None
        await super()._fetch()
        if self._answer is not None:
            self._gate.passed(self._node_id, Fetched(asked, *self._answer))

    async def _take(self, response: Any) -> None:
        answers = [data for topic in response.responses for data in topic.partitions]
        self._answer = (answers[0] if answers else None,)
        await super()._take(response)

    async def _build(self, state: FetchState) -> None:
        await self._gate.may_build(self._node_id).wait()
        await super()._build(state)
        self._gate.built(self._node_id)

    def fail(self, state: FetchState, why: str, *, fatal: bool = False) -> None:
        """Fail as `ReplicaFetcher` does, and note why."""
        self._gate.failed(self._node_id, why)
        super().fail(state, why, fatal=fatal)

    def _resume(self, state: FetchState) -> None:
        is_of_play = state.partition.topic_partition.topic == TOPIC
        if is_of_play and not self._gate.may_fetch(self._node_id).is_set():
            self._paused.append(state)
        else:
            super()._resume(state)

    def end_pauses(self) -> None:
        """Resume paused partitions: a step lets them fetch."""
        paused, self._paused = self._paused, []
        for state in paused:
            if self.is_current(state):
                super()._resume(state)
