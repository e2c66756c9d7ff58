"""Remote segments whose bytes this machine has in its memory already: read on the loop, in pieces.

A store in a directory leaves its bytes in the operating system's page cache. What is there costs
less to copy and check (0.1 ms a MiB) than to hand to a thread, which takes processor and
interpreter from the loop at a time of its own; and a cache of larger chunks would only hold the
same bytes twice. So who reads on finds the next piece ready, made while he looks at the last one,
and it may go when he has passed it. What is not in memory is for the threads, as that of
all other stores (`read_ahead.py`), and so is what has very many batches: each costs the loop a
microsecond.

Pieces are checked like chunks: nothing that a store made up or let rot gets into one. Trouble of
any kind is never told from here: then there is no piece, and a thread finds out. All state is the
loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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

__all__ = ["Near", "opener_of"]

PIECE_BYTES_MIN = 256 << 10
PIECE_BYTES_MAX = 1 << 20
CAPACITY_BYTES = 16 << 20
BATCHES_MAX = 256  # of a piece: some 0.3 ms
DEMAND_BYTES_MAX = 2 << 20  # read within one millisecond for those who wait
_BUFFER_BYTES = 4 << 20
_PASSED_BYTES_MAX = 4 << 20
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


class _Piece(NamedTuple):
    """A chunk, how many bytes were read behind its last batch, and when."""

    chunk: Chunk
    rest: int
    made_ms: int


class _Open:
    """An open segment."""

    __slots__ = ("handle", "used_ms")

    def __init__(self, handle: OpenSegment, used_ms: int) -> None:
        self.handle = handle
        self.used_ms = used_ms


class Near:
    """What is open, and the pieces at hand.

    Invariant: `bytes` is the weight of all pieces, and at most `capacity_bytes` but for the newest.
    """

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.bytes = 0
        self.retired: list[OpenSegment] = []  # to be closed by whoever may block
        self._open: dict[UUID, _Open] = {}
        self._left: dict[TopicIdPartition, None] = {}  # to the threads
        self._pieces: dict[tuple[UUID, int], _Piece] = {}  # by segment and first byte
        self._passed: dict[tuple[UUID, int], None] = {}  # of them
        self._passed_bytes = 0
        self._buffers = Buffers(_BUFFER_BYTES)
        self._demanded = (0, 0)  # when, and how many bytes

    def __len__(self) -> int:
        return len(self._open) + len(self._pieces) + len(self.retired)

    # ---- segments -----------------------------------------------------------------------------

    def is_for_threads(self, segment: RemoteSegment) -> bool:
        """Whether nothing of the partition is read here."""
        return segment.topic_id_partition in self._left

    def is_open(self, segment_id: UUID) -> bool:
        """Whether it may be read here."""
        return segment_id in self._open

    def opened(self, segment_id: UUID, handle: OpenSegment, now_ms: int) -> None:
        """Take what a thread has opened; the one that was opened first goes if there are too
        many."""
        self._retire(segment_id)
        while len(self._open) >= _OPEN_MAX:
            self._retire(next(iter(self._open)))
        self._open[segment_id] = _Open(handle, now_ms)

    def forget(self, segment_id: UUID) -> None:
        """The segment is gone, or not to be trusted."""
        self._retire(segment_id)
        for key in [key for key in self._pieces if key[0] == segment_id]:
            self._drop(key)

    def _retire(self, segment_id: UUID) -> None:
        entry = self._open.pop(segment_id, None)
        if entry is not None:
            self.retired.append(entry.handle)

    def expire(self, now_ms: int) -> None:
        """Let go of what nobody has come for in a minute."""
        oldest_ms = now_ms - _UNUSED_MS_MAX
        for key in [key for key, piece in self._pieces.items() if piece.made_ms < oldest_ms]:
            self._drop(key)
        for segment_id in [one for one, entry in self._open.items() if entry.used_ms < oldest_ms]:
            self._retire(segment_id)
        if not self._pieces:
            self._buffers.clear()

    def clear(self) -> None:
        """Let all go."""
        for segment_id in list(self._open):
            self._retire(segment_id)
        self._pieces.clear()
        self._passed.clear()
        self._passed_bytes = 0
        self._buffers.clear()
        self.bytes = 0

    # ---- readers ------------------------------------------------------------------------------

    def stopped(self, segment_id: UUID, position: int) -> None:
        """A reader stopped at this byte. The pieces up to there may go, but what was read behind
        the last one's batches is still needed."""
        passed = [
            key
            for key, piece in self._pieces.items()
            if key[0] == segment_id
            and piece.chunk.end + (piece.rest > 0) <= position
            and key not in self._passed
        ]
        for key in passed:
            self._pass(key)

    def _pass(self, key: tuple[UUID, int]) -> None:
        """A reader has done with a piece; some are kept for those who come right behind him."""
        if key not in self._passed:
            self._passed[key] = None
            self._passed_bytes += self._pieces[key].chunk.weight
            while self._passed_bytes > _PASSED_BYTES_MAX:
                self._drop(next(iter(self._passed)))

    # ---- pieces -------------------------------------------------------------------------------

    def find(self, segment_id: UUID, position: int) -> Chunk | None:
        """The piece at hand with this byte."""
        for (owner, start), piece in self._pieces.items():
            if start <= position < piece.chunk.end and owner == segment_id:
                return piece.chunk
        return None

    def demand(
        self, segment: RemoteSegment, position: int, wanted: int, now_ms: int
    ) -> Chunk | None:
        """Read a piece for somebody who waits; None if it is to be loaded by a thread."""
        when_ms, size = self._demanded
        size = min(wanted, PIECE_BYTES_MAX) + (size if when_ms == now_ms else 0)
        if size > DEMAND_BYTES_MAX:
            return None
        self._demanded = (now_ms, size)
        return self._read(segment, position, wanted, now_ms)

    def make_ready(
        self, segment: RemoteSegment, position: int, wanted: int, now_ms: int
    ) -> int | None:
        """Have a piece at hand from this byte on: its end, or `position` if there is no room for
        it now. None if it is to be loaded by a thread."""
        chunk = self.find(segment.segment_id, position)
        if chunk is None:
            while self.bytes + min(wanted, PIECE_BYTES_MAX) > self.capacity_bytes:
                if not self._passed:
                    self.expire(now_ms)
                    return position
                self._drop(next(iter(self._passed)))
            chunk = self._read(segment, position, wanted, now_ms)
        return None if chunk is None else chunk.end

    def _read(
        self, segment: RemoteSegment, position: int, wanted: int, now_ms: int
    ) -> Chunk | None:
        """Copy and check a piece out of memory."""
        segment_id = segment.segment_id
        entry = self._open.get(segment_id)
        if entry is None:
            return None
        entry.used_ms = now_ms
        before = self._ending_at(segment_id, position)
        try:
            size = min(max(wanted, PIECE_BYTES_MIN), PIECE_BYTES_MAX, segment.size - position)
            piece = self._piece(segment, position, size, now_ms, before)
        except Exception:  # noqa: BLE001 - plug-ins raise what they like: a thread finds out
            piece = None
            self._leave(segment)
        if before is not None:
            self._pass((segment_id, before.chunk.start))
        if piece is None:
            return None
        if len(piece.chunk) == BATCHES_MAX:
            self._leave(segment)
        self._pieces[segment_id, position] = piece
        self.bytes += piece.chunk.weight
        while self.bytes > self.capacity_bytes and len(self._pieces) > 1:
            self._drop(next(iter(self._passed or self._pieces)))
        return piece.chunk

    def _piece(
        self,
        segment: RemoteSegment,
        position: int,
        size: int,
        now_ms: int,
        before: _Piece | None,
    ) -> _Piece | None:
        """None without a whole batch in so many bytes, unless a lone batch is larger."""
        handle = self._open[segment.segment_id].handle
        data = self._buffers.take(size)
        have = 0
        with memoryview(data) as view:
            if before is not None and before.rest:
                with before.chunk.behind(before.rest) as rest:
                    have = min(len(rest), size)
                    view[:have] = rest[:have]
            if have < size:
                have += handle.read_now(position + have, view[have:size])
        positions, next_offsets = walk(segment, position, data, have, batches_max=BATCHES_MAX)
        if next_offsets:
            chunk = Chunk(position, data, positions, next_offsets, self._buffers)
            return _Piece(chunk, have - positions[-1], now_ms)
        self._buffers.give(data)
        first = read_header(data).size_in_bytes if have == size >= HEADER_BYTES else 0
        if size < first <= min(_BATCH_BYTES_MAX, segment.size - position):
            return self._piece(segment, position, first, now_ms, before)
        return None

    def _ending_at(self, segment_id: UUID, position: int) -> _Piece | None:
        for (owner, _), piece in self._pieces.items():
            if piece.chunk.end == position and owner == segment_id:
                return piece
        return None

    def _drop(self, key: tuple[UUID, int]) -> None:
        weight = self._pieces.pop(key).chunk.weight
        self.bytes -= weight
        if key in self._passed:
            del self._passed[key]
            self._passed_bytes -= weight

    def _leave(self, segment: RemoteSegment) -> None:
        """Leave the partition to the threads."""
        self._left.pop(segment.topic_id_partition, None)
        if len(self._left) >= _LEFT_MAX:
            del self._left[next(iter(self._left))]
        self._left[segment.topic_id_partition] = None
        self._retire(segment.segment_id)
