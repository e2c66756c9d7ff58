"""Remote segments whose bytes are in the page cache: read on the event loop, in pieces.

A store in a directory leaves its bytes in the operating system's page cache. To copy and check
them there costs less (0.1 ms a MiB) than a thread, which takes processor and interpreter from the
loop at a time of its own. What is not in memory is for the threads, and so are partitions of very
many small batches: each batch costs the loop a microsecond.

Pieces are checked like chunks. An error here only means that there is no piece: a thread then
finds the reason. All state belongs to the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.batch import HEADER_BYTES, read_header
from tidelog_storage.remote.chunks import Buffers, Chunk, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tidelog_storage.remote.api import (
        OpenSegment,
        RemoteSegment,
        RemoteStorage,
        TopicIdPartition,
    )

__all__ = ["Near", "opener_of", "piece_bytes"]

PIECE_BYTES_MIN = 256 << 10
PIECE_BYTES_MAX = 1 << 20
BATCHES_MAX = 256  # of a piece: some 0.3 ms
DEMAND_BYTES_MAX = 2 << 20  # read within one millisecond for readers that wait
_BUFFER_BYTES = 4 << 20
_OPEN_MAX = 512
_LEFT_MAX = 1024
_UNUSED_MS_MAX = 60_000
_BATCH_BYTES_MAX = 2 << 20  # a lone batch may be larger than a piece


def opener_of(store: RemoteStorage) -> Callable[[RemoteSegment], OpenSegment] | None:
    """A store's `open_segment`, if it is a `NearRemoteStorage`.

    None also where a subclass has its own `fetch_segment` alone: it may do more than read.
    """
    for kind in type(store).__mro__:
        if "open_segment" in vars(kind):
            return store.open_segment  # type: ignore[attr-defined,no-any-return]
        if "fetch_segment" in vars(kind):
            break
    return None


def piece_bytes(wanted: int) -> int:
    """The size of a piece for a reader that asks for so many bytes."""
    return min(max(wanted, PIECE_BYTES_MIN), PIECE_BYTES_MAX)


class Near:
    """The segments that are open, and the partitions that are left to the threads."""

    def __init__(self) -> None:
        self.retired: list[OpenSegment] = []  # to be closed on a thread
        self._open: dict[UUID, tuple[OpenSegment, int]] = {}  # with when it was used
        self._left: dict[TopicIdPartition, None] = {}
        self.buffers = Buffers(_BUFFER_BYTES)
        self._demanded = (0, 0)  # when, and how many bytes

    def __len__(self) -> int:
        return len(self._open) + len(self.retired)

    def is_for_threads(self, segment: RemoteSegment) -> bool:
        """Whether nothing of the partition is read here."""
        return segment.topic_id_partition in self._left

    def is_open(self, segment: RemoteSegment) -> bool:
        """Whether it may be read here."""
        return segment.segment_id in self._open

    def opened(self, segment: RemoteSegment, handle: OpenSegment, now_ms: int) -> None:
        """Take what a thread has opened. The oldest goes if there are too many."""
        self.retire(segment.segment_id)
        while len(self._open) >= _OPEN_MAX:
            self.retire(next(iter(self._open)))
        self._open[segment.segment_id] = handle, now_ms

    def retire(self, segment_id: UUID) -> None:
        """Read no more of a segment."""
        entry = self._open.pop(segment_id, None)
        if entry is not None:
            self.retired.append(entry[0])

    def expire(self, now_ms: int) -> None:
        """Retire what was not read for a minute."""
        for segment_id, (_, used_ms) in list(self._open.items()):
            if now_ms - used_ms > _UNUSED_MS_MAX:
                self.retire(segment_id)

    def clear(self) -> None:
        """Retire everything, and let the memory go."""
        for segment_id in list(self._open):
            self.retire(segment_id)
        self.buffers.clear()

    def may_read(self, wanted: int, now_ms: int) -> bool:
        """Whether the loop has time for a piece that a reader waits for; count it if so."""
        when_ms, size = self._demanded
        size = min(wanted, PIECE_BYTES_MAX) + (size if when_ms == now_ms else 0)
        if size > DEMAND_BYTES_MAX:
            return False
        self._demanded = (now_ms, size)
        return True

    def read(
        self, segment: RemoteSegment, position: int, wanted: int, before: Chunk | None, now_ms: int
    ) -> Chunk | None:
        """Copy and check a piece of an open segment; None if a thread has to load it.

        `before` is the chunk that ends at `position`: it may have the first bytes already.
        """
        handle, _ = self._open[segment.segment_id]
        self._open[segment.segment_id] = handle, now_ms
        size = min(piece_bytes(wanted), segment.size - position)
        try:
            piece = self._piece(handle, segment, position, size, before)
        except Exception:  # noqa: BLE001 - plug-ins raise anything: a thread finds out
            piece = None
            self._leave(segment)
        if piece is not None and len(piece) == BATCHES_MAX:
            self._leave(segment)
        return piece

    def _piece(
        self,
        handle: OpenSegment,
        segment: RemoteSegment,
        position: int,
        size: int,
        before: Chunk | None,
    ) -> Chunk | None:
        """None without a whole batch in so many bytes, unless a lone batch is larger."""
        data = self.buffers.take(size)
        have = 0
        with memoryview(data) as view:
            if before is not None:
                with before.rest() as rest:
                    have = min(len(rest), size)
                    view[:have] = rest[:have]
            if have < size:
                have += handle.read_now(position + have, view[have:size])
        positions, next_offsets = walk(segment, position, data, have, batches_max=BATCHES_MAX)
        if next_offsets:
            rest_bytes = have - positions[-1]
            return Chunk(
                position, data, positions, next_offsets, self.buffers, rest_bytes=rest_bytes
            )
        self.buffers.give(data)
        first = read_header(data).size_in_bytes if have == size >= HEADER_BYTES else 0
        if size < first <= min(_BATCH_BYTES_MAX, segment.size - position):
            return self._piece(handle, segment, position, first, before)
        return None

    def _leave(self, segment: RemoteSegment) -> None:
        """Leave the partition to the threads."""
        self._left.pop(segment.topic_id_partition, None)
        if len(self._left) >= _LEFT_MAX:
            del self._left[next(iter(self._left))]
        self._left[segment.topic_id_partition] = None
        self.retire(segment.segment_id)
