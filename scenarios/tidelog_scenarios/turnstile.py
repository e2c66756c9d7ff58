"""Lets followers fetch, and build what they need of the remote tier, when a step says so.

Brokers get their fetchers from `Turnstile.new_fetcher`. Each fetch waits here, then goes out with
what the log is by then; so does one after a pause, which is over when its time is and a step says
so. Everything else is the real fetcher's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.replication.replica_fetcher import ReplicaFetcher
from tidelog_scenarios.words import TOPIC

if TYPE_CHECKING:
    from tidelog.replication.fetch_state import FetchState, State
    from tidelog.replication.fetcher_session import Asked

__all__ = ["Fetched", "Turnstile"]


class Fetched(NamedTuple):
    """What a follower asked its leader for, and what came."""

    asked: Asked
    data: Any
    """The one partition's answer; None if the leader had nothing new to say."""


class Turnstile:
    """One for all brokers of a stage, which are told apart by their ids."""

    def __init__(self) -> None:
        self._fetchers: dict[int, GatedFetcher] = {}
        self._may_fetch: dict[int, asyncio.Event] = {}
        self._may_build: dict[int, asyncio.Event] = {}
        self._fetching: dict[int, asyncio.Future[Fetched]] = {}
        self._building: dict[int, asyncio.Future[None]] = {}
        self._failures: dict[int, str] = {}

    def new_fetcher(self, *args: Any, **kwargs: Any) -> ReplicaFetcher:
        """Instead of `ReplicaFetcher`, for whom it is called the same way."""
        return GatedFetcher(self, *args, **kwargs)

    def state(self, node_id: int, topic_id: bytes) -> State | None:
        """Where a broker stands with its leader; None if it follows nobody."""
        fetcher = self._fetchers.get(node_id)
        state = None if fetcher is None else fetcher.state(topic_id, 0)
        return None if state is None else state.state

    # -- for the player ----------------------------------------------------------------------------

    async def fetch(self, node_id: int) -> Fetched:
        """Have a broker fetch once, and do with the answer all that it does."""
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
        """Have a broker build what it needs of the remote tier: why it could not, "" if it
        could."""
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
        """A broker has a new fetcher: it follows another leader."""
        self._fetchers[node_id] = fetcher

    def may_fetch(self, node_id: int) -> asyncio.Event:
        """Set while a broker may fetch."""
        return self._may_fetch.setdefault(node_id, asyncio.Event())

    def may_build(self, node_id: int) -> asyncio.Event:
        """Set while a broker may build its auxiliary state."""
        return self._may_build.setdefault(node_id, asyncio.Event())

    def passed(self, node_id: int, fetched: Fetched) -> None:
        """A broker has fetched."""
        self.may_fetch(node_id).clear()
        future = self._fetching.get(node_id)
        if future is not None and not future.done():
            future.set_result(fetched)

    def built(self, node_id: int) -> None:
        """A broker has built, or could not."""
        self.may_build(node_id).clear()
        future = self._building.get(node_id)
        if future is not None and not future.done():
            future.set_result(None)

    def failed(self, node_id: int, why: str) -> None:
        """A broker leaves its partition alone for a while."""
        self._failures[node_id] = why


class GatedFetcher(ReplicaFetcher):
    """Follows the play's partition at the pace of a turnstile, if it does not follow others."""

    def __init__(self, turnstile: Turnstile, *args: Any, **kwargs: Any) -> None:
        self._turnstile = turnstile
        self._answer: tuple[Any] | None = None
        self._paused: list[FetchState] = []  # their time is over, their step has not come
        super().__init__(*args, **kwargs)
        turnstile.made(self._node_id, self)

    async def _fetch(self) -> None:
        topics = {state.partition.topic_partition.topic for state in self._states.values()}
        if TOPIC not in topics:
            await super()._fetch()
            return
        await self._turnstile.may_fetch(self._node_id).wait()
        self._touched.update(dict.fromkeys(self._states))  # meanwhile it may have changed
        self._update_session()
        if not self._session.asked:
            return
        ((_, asked),) = self._session.asked.items()
        self._answer = None
        await super()._fetch()
        if self._answer is not None:
            self._turnstile.passed(self._node_id, Fetched(asked, *self._answer))

    async def _take(self, response: Any) -> None:
        answers = [data for topic in response.responses for data in topic.partitions]
        self._answer = (answers[0] if answers else None,)
        await super()._take(response)

    async def _build(self, state: FetchState) -> None:
        await self._turnstile.may_build(self._node_id).wait()
        await super()._build(state)
        self._turnstile.built(self._node_id)

    def fail(self, state: FetchState, why: str, *, fatal: bool = False) -> None:
        """As `ReplicaFetcher`."""
        self._turnstile.failed(self._node_id, why)
        super().fail(state, why, fatal=fatal)

    def _resume(self, state: FetchState) -> None:
        is_of_play = state.partition.topic_partition.topic == TOPIC
        if is_of_play and not self._turnstile.may_fetch(self._node_id).is_set():
            self._paused.append(state)
        else:
            super()._resume(state)

    def end_pauses(self) -> None:
        """A step lets it fetch."""
        paused, self._paused = self._paused, []
        for state in paused:
            if self.is_current(state):
                super()._resume(state)
