"""This broker's consumer of `__remote_log_metadata`: reads assigned partitions in order.

Owns the positions, and selects where to read: in the local log, as soon as the high watermark
moves, or from the leader, with one fetch for all its partitions. The sink (`topic.py`) decodes the
records.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from tidelog.network.peers import PeerError
from tidelog.replication.purgatory import DelayedOperation
from tidelog.tiered.metadata.client import Chunk, TopicError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.tiered.metadata.client import MetadataTopicClient

__all__ = ["MetadataConsumer", "Sink"]

log = logging.getLogger("tidelog.tiered.metadata")

WATCH_MS = 3_600_000


class Sink(Protocol):
    """Takes the records."""

    def took(self, index: int, chunk: Chunk) -> None:
        """Take the next records of a partition."""
        ...

    def lost(self, index: int) -> None:
        """Forget a partition: it lost records that were read, and is read again from its start."""
        ...


class MetadataConsumer:
    """Positions by partition: the offset to be read next."""

    def __init__(self, client: MetadataTopicClient, sink: Sink) -> None:
        self.positions: dict[int, int] = {}
        self._client = client
        self._sink = sink
        self._retry_s = client.settings.consumer.retry_s
        self._wake = asyncio.Event()
        self._watch: _Watch | None = None
        self._reading: asyncio.Task[None] | None = None
        self._fetches: dict[int, asyncio.Task[None]] = {}  # by leader
        self._seeks: dict[int, asyncio.Task[None]] = {}  # by partition

    def assign(self, index: int, offset: int) -> None:
        """Read a partition from this offset on, or from its current position if that is lower."""
        self.positions[index] = min(offset, self.positions.get(index, offset))
        self._wake.set()

    def read_again(self) -> None:
        """Read all partitions from their starts: the topic was created again."""
        for index in self.positions:
            self.positions[index] = 0
        self._wake.set()

    def unassign(self, index: int) -> None:
        """Stop reading a partition."""
        self.positions.pop(index, None)
        self._wake.set()

    def wake(self) -> None:
        """Look again where to read: replicas or leaders may have changed."""
        self._wake.set()

    def start(self) -> None:
        """Start reading."""
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(self._read(), name="remote-log-metadata-consumer")

    async def stop(self) -> None:
        """Stop reading."""
        tasks = [*self._fetches.values(), *self._seeks.values()]
        if self._reading is not None:
            tasks.append(self._reading)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._unwatch()

    # -- reading -----------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            self._wake.clear()
            try:
                has_more = self._read_here()
                self._fetch_elsewhere()
            except Exception:
                log.exception("reading %s failed; it is tried again", self._client.name)
                self._retry()
                has_more = False
            if has_more:
                await asyncio.sleep(0)
            else:
                await self._wake.wait()

    def _retry(self) -> None:
        asyncio.get_running_loop().call_later(self._retry_s, self._wake.set)

    def _read_here(self) -> bool:
        """Read one chunk of each partition that is read here; return whether there was any."""
        here = [
            index for index in self.positions if self._client.readable_replica(index) is not None
        ]
        self._watch_all(here)
        has_more = False
        for index in here:
            offset = self.positions[index]
            try:
                chunk = self._client.read_here(index, offset)
            except TopicError as error:
                self._failed(index, error.code)
                continue
            if chunk is not None and chunk.next_offset != offset:
                self._take(index, chunk)
                has_more = True
        return has_more

    def _take(self, index: int, chunk: Chunk) -> None:
        self.positions[index] = chunk.next_offset
        self._sink.took(index, chunk)

    def _failed(self, index: int, code: ErrorCode) -> None:
        if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._retry()
        elif index not in self._seeks:
            loop = asyncio.get_running_loop()
            self._seeks[index] = loop.create_task(self._seek(index, self.positions[index]))

    async def _seek(self, index: int, lost: int) -> None:
        """Continue at the partition's start: the next offset is out of range."""
        try:
            start = await self._client.start_offset(index)
            if self.positions.get(index) == lost:
                self.positions[index] = start
                if start < lost:  # an unclean election truncated below the position
                    log.warning("%s-%d ends before %d", self._client.name, index, lost)
                    self._sink.lost(index)
        except TopicError:
            await asyncio.sleep(self._retry_s)
        finally:
            del self._seeks[index]
            self._wake.set()

    # -- partitions that are here ------------------------------------------------------------------

    def _watch_all(self, here: list[int]) -> None:
        """Set `_wake` when a high watermark moves; begins before the partitions are read."""
        keys = tuple((self._client.name, index) for index in here)
        if self._watch is not None and not self._watch.closed:
            if self._watch.watched_keys == keys:
                return
            self._unwatch()
        if keys:
            self._watch = _Watch(self._wake.set)
            self._client.replicas.fetch_purgatory.park(self._watch, keys, WATCH_MS)

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._client.replicas.fetch_purgatory.cancel(self._watch)
            self._watch = None

    # -- partitions led elsewhere ------------------------------------------------------------------

    def _fetch_elsewhere(self) -> None:
        leaders: dict[int, list[int]] = {}
        for index in self.positions:
            if index not in self._seeks and self._client.readable_replica(index) is None:
                leaders.setdefault(self._client.leader_of(index), []).append(index)
        for leader, indexes in leaders.items():
            if leader in (-1, self._client.replicas.node_id):
                continue  # until an image has another leader
            if leader not in self._fetches:
                # Take the positions now: one may be unassigned before the task begins.
                asked = {index: self.positions[index] for index in indexes}
                loop = asyncio.get_running_loop()
                self._fetches[leader] = loop.create_task(self._fetch(leader, asked))

    async def _fetch(self, leader: int, asked: Mapping[int, int]) -> None:
        failed = False
        try:
            answers = await self._client.fetch(leader, asked)
            for index, answer in answers.items():
                if self.positions.get(index) != asked[index]:
                    continue  # it was assigned to another offset meanwhile
                if isinstance(answer, Chunk):
                    self._take(index, answer)
                elif answer is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._failed(index, answer)
                else:
                    failed = True
        except PeerError as error:
            log.debug("metadata partitions at broker %d: %s", leader, error)
            failed = True
        except Exception:
            log.exception("metadata partitions at broker %d can't be read", leader)
            failed = True
        if failed:
            await asyncio.sleep(self._retry_s)
        del self._fetches[leader]
        self._wake.set()


class _Watch(DelayedOperation[tuple[str, int]]):
    """Never completes: each touch wakes the reader.

    Woken by: the metadata partitions here, when their high watermarks or roles change.
    """

    __slots__ = ("_wake",)

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake

    def touch(self, key: tuple[str, int]) -> bool:
        self._wake()
        return False

    def complete(self, *, expired: bool) -> None:
        self._wake()
