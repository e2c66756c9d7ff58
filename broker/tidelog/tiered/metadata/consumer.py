"""This broker's consumer of `__remote_log_metadata`: reads assigned partitions in order.

Owns the positions. One task for each broker that partitions are read at: in the local log, as soon
as the high watermark moves, or from another leader, with one fetch for all its partitions. Its
owner (`topic.py`) decodes the records.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.network.peers import PeerError
from tidelog.replication.purgatory import DelayedOperation
from tidelog.tiered.metadata.client import Chunk, TopicError
from tidelog.tiered.metadata.settings import pause_s
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.tiered.metadata.client import MetadataTopicClient

__all__ = ["MetadataConsumer"]

log = logging.getLogger("tidelog.tiered.metadata")

WATCH_MS = 3_600_000


class MetadataConsumer:
    """Positions by partition: the offset to be read next."""

    def __init__(
        self,
        client: MetadataTopicClient,
        on_read: Callable[[int, Chunk], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """`on_read` takes the next records of a partition. `on_lost` forgets those that were read:
        the partition lost some, and is read again from its start."""
        self.positions: dict[int, int] = {}
        self._client = client
        self._on_read, self._on_lost = on_read, on_lost
        self._is_reading = False
        self._readers: dict[int, asyncio.Task[None]] = {}  # by broker
        self._wake = asyncio.Event()  # of the local reader
        self._watch: _Watch | None = None

    def assign(self, index: int, offset: int) -> None:
        """Read a partition from this offset on, or from its current position if that is lower."""
        self.positions[index] = min(offset, self.positions.get(index, offset))
        self.wake()

    def read_again(self) -> None:
        """Read all partitions from their starts: the topic was created again."""
        self.positions = dict.fromkeys(self.positions, 0)
        self.wake()

    def unassign(self, index: int) -> None:
        """Stop reading a partition."""
        self.positions.pop(index, None)
        self.wake()

    def wake(self) -> None:
        """Look again where to read: replicas or leaders may have changed."""
        self._wake.set()
        for index in self.positions if self._is_reading else ():
            broker = self._client.place_of(index)
            if broker != -1 and broker not in self._readers:
                loop = asyncio.get_running_loop()
                self._readers[broker] = loop.create_task(
                    self._read(broker), name=f"remote-log-metadata-consumer at {broker}"
                )

    def start(self) -> None:
        """Start reading."""
        self._is_reading = True
        self.wake()

    async def stop(self) -> None:
        """Stop reading."""
        self._is_reading = False
        for task in self._readers.values():
            task.cancel()
        await asyncio.gather(*self._readers.values(), return_exceptions=True)
        self._watch_all(())

    async def _read(self, broker: int) -> None:
        """Read at a broker until it has no assigned partition."""
        while asked := {
            index: position
            for index, position in self.positions.items()
            if self._client.place_of(index) == broker
        }:
            try:
                if broker == self._client.replicas.node_id:
                    is_read = await self._read_here(asked)
                else:
                    is_read = await self._take(asked, await self._client.fetch(broker, asked))
            except PeerError as error:
                log.debug("metadata partitions at broker %d: %s", broker, error)
                is_read = False
            except Exception:
                log.exception("metadata partitions at broker %d can't be read", broker)
                is_read = False
            if not is_read:
                await asyncio.sleep(pause_s(self._client.settings.consumer.retry_backoff_ms))
        del self._readers[broker]
        if broker == self._client.replicas.node_id:
            self._watch_all(())

    async def _read_here(self, asked: Mapping[int, int]) -> bool:
        """Read one chunk of each partition, or wait if there is none; False for a failure."""
        self._wake.clear()
        self._watch_all(asked)
        answers: dict[int, Chunk | ErrorCode] = {}
        for index, position in asked.items():
            try:
                chunk = self._client.read_here(index, position)
            except TopicError as error:
                answers[index] = error.code
            except Exception:
                log.exception(
                    "%s-%d can't be read here; it is tried again", self._client.name, index
                )
                answers[index] = ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                if chunk is not None and chunk.next_offset != position:
                    answers[index] = chunk
        is_read = await self._take(asked, answers)
        await (asyncio.sleep(0) if answers else self._wake.wait())
        return is_read

    def _watch_all(self, here: Iterable[int]) -> None:
        """Wake when a high watermark moves; begins before the partitions are read."""
        keys = tuple((self._client.name, index) for index in here)
        watch = self._watch
        if watch is not None and (watch.closed or watch.watched_keys != keys):
            self._client.replicas.fetch_purgatory.cancel(watch)
            watch = None
        if watch is None and keys:
            watch = _Watch(self._wake.set)
            self._client.replicas.fetch_purgatory.park(watch, keys, WATCH_MS)
        self._watch = watch

    async def _take(
        self, asked: Mapping[int, int], answers: Mapping[int, Chunk | ErrorCode]
    ) -> bool:
        """Take what was read at the positions asked for; return False if anything failed."""
        is_read, lost = True, []
        for index, answer in answers.items():
            if self.positions.get(index) != asked[index]:
                continue  # it was assigned to another offset meanwhile
            if isinstance(answer, Chunk):
                self.positions[index] = answer.next_offset
                self._on_read(index, answer)
            elif answer is ErrorCode.OFFSET_OUT_OF_RANGE:
                lost.append(index)
            else:
                is_read = False
        for index in lost:  # last: while a start is asked for, the topic may be deleted
            is_read &= await self._seek(index, asked[index])
        return is_read

    async def _seek(self, index: int, lost: int) -> bool:
        """Continue at the partition's start: the next offset is out of range. False if the start
        can't be found now."""
        try:
            start = await self._client.start_offset(index)
        except TopicError as error:
            log.debug("%s", error)
            return False
        if self.positions.get(index) == lost:
            self.positions[index] = start
            if start < lost:  # an unclean election truncated below the position
                log.warning("%s-%d ends before %d", self._client.name, index, lost)
                self._on_lost(index)
        return True


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
