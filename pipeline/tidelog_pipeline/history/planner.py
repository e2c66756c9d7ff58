"""Which remote segments hold an offset range of a log as it is now, and how it is cut into splits.

A log's lineage (its leader epochs) decides: of a remote segment only what it has of an epoch, while
the log was in that epoch, is the log's. What no finished segment holds is read from the brokers.
Pure functions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.api import SegmentState
from tidelog_storage.remote.lineage import epoch_parts, without_empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["LATER_MAX", "LivePart", "LogView", "Piece", "Split", "cut", "live_parts", "pieces_of"]

LATER_MAX = 4
_BYTES_A_RECORD = 100  # a guess, where nothing is known


@dataclass(frozen=True, slots=True)
class LogView:
    """One partition as a plan sees it. Epochs are (leader epoch, first offset), rising.

    `local_bytes` are those of the offsets [local_start, end) on the leader, -1 if not known.
    """

    topic: str
    topic_id: bytes
    partition: int
    epochs: tuple[tuple[int, int], ...]
    log_start: int
    local_start: int
    end: int
    local_bytes: int = -1
    segments: tuple[RemoteSegment, ...] = ()


class LivePart(NamedTuple):
    """What a remote segment has of the lineage: offsets [start, end)."""

    segment: RemoteSegment
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets [start, end) out of one remote segment; without a part, from the brokers.

    `later` are the next segments that may name transactions which began in this one (KIP-1058),
    `later_is_whole` whether there are no more of them.
    """

    start: int
    end: int
    size: int  # estimated bytes
    part: LivePart | None = field(default=None, repr=False)
    later: tuple[LivePart, ...] = field(default=(), repr=False)
    later_is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads: adjacent pieces of one partition."""

    topic: str
    topic_id: bytes = field(repr=False)
    partition: int
    pieces: tuple[Piece, ...]
    # (producer id, first offset) of transactions that were aborted behind all remote pieces
    aborted: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    @property
    def size(self) -> int:
        """Estimated bytes."""
        return sum(piece.size for piece in self.pieces)


# ---- pieces --------------------------------------------------------------------------------------


def pieces_of(
    log: LogView, start: int, end: int, parts: Sequence[LivePart] | None = None
) -> list[Piece]:
    """The pieces of [start, end), in order, without a hole: from the tier what is there.

    `parts` are `live_parts(log)`, if they are known. If several segments have an offset, it takes
    the one that reaches furthest, as remote reads do.
    """
    found: list[Piece] = []
    position, whole = start, max(end, log.end)  # later segments name transactions of these
    for first, after, part in _covering(live_parts(log) if parts is None else parts, start, whole):
        if first > position:
            found.append(_from_brokers(log, position, first))
        found.append(Piece(first, after, _share(part.segment, first, after), part))
        position = after
    if position < whole:
        found.append(_from_brokers(log, position, whole))
    return list(_clipped(_with_later(found), start, end))


def live_parts(log: LogView) -> list[LivePart]:
    """What each finished segment has of the lineage, by start offset."""
    entries = without_empty(log.epochs)
    ends = [start for _, start in entries[1:]] + [log.end]
    live = {epoch: (start, end) for (epoch, start), end in zip(entries, ends, strict=True)}
    if entries:  # the log start cut the oldest epoch: segments may begin it earlier
        live[entries[0][0]] = (0, ends[0])
    found = []
    for segment in log.segments:
        if segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
            continue
        parts = []
        for epoch, first, last in epoch_parts(segment):
            start, end = live.get(epoch, (0, 0))
            if max(first, start) < min(last + 1, end):
                parts.append((max(first, start), min(last + 1, end)))
        # An epoch has one start in all logs that have it, so these follow one another.
        if parts:
            found.append(LivePart(segment, parts[0][0], parts[-1][1]))
    return sorted(found, key=lambda part: (part.start, part.end))


def _covering(
    parts: Sequence[LivePart], start: int, end: int
) -> Iterable[tuple[int, int, LivePart]]:
    """(first, after, part) that cover [start, end) one after the other, as far as parts do."""
    position, slot = start, 0
    best: LivePart | None = None
    while position < end:
        while slot < len(parts) and parts[slot].start <= position:
            if best is None or parts[slot].end >= best.end:
                best = parts[slot]
            slot += 1
        if best is not None and best.end > position:
            yield position, min(best.end, end), best
            position = best.end
        elif slot < len(parts):
            position = parts[slot].start
        else:
            return


def _share(segment: RemoteSegment, start: int, end: int) -> int:
    whole = segment.end_offset + 1 - segment.start_offset
    return max(1, segment.size * (end - start) // whole)


def _from_brokers(log: LogView, start: int, end: int) -> Piece:
    known = max(0, log.end - log.local_start)
    each = log.local_bytes / known if log.local_bytes >= 0 and known else _BYTES_A_RECORD
    return Piece(start, end, max(1, int((end - start) * each)))


def _with_later(pieces: list[Piece]) -> list[Piece]:
    """The pieces, each with the next segments whose transaction index is not empty."""
    later: list[LivePart] = []
    found = []
    for piece in reversed(pieces):
        part = piece.part
        if part is None:
            found.append(piece)
            continue
        nearest = tuple(later[-1 : -LATER_MAX - 1 : -1])
        found.append(replace(piece, later=nearest, later_is_whole=len(later) <= LATER_MAX))
        if not part.segment.txn_index_empty:
            later.append(part)
    return found[::-1]


# ---- splits --------------------------------------------------------------------------------------


def cut(split: Split, count: int) -> list[Split]:
    """A partition's split as `count` of about the same bytes, or fewer if it has fewer offsets."""
    edges = list(accumulate((piece.size for piece in split.pieces), initial=0))
    if count < 2 or not edges[-1]:
        return [split] if split.pieces else []
    bounds = [
        _offset_at(split.pieces, edges, edges[-1] * number // count) for number in range(count)
    ]
    bounds.append(split.pieces[-1].end)
    starts = [piece.start for piece in split.pieces]
    found = []
    for start, end in pairwise(bounds):
        near = split.pieces[bisect_right(starts, start) - 1 : bisect_left(starts, end)]
        own = tuple(_clipped(near, start, end))
        if own:
            found.append(replace(split, pieces=own))
    return found


def _offset_at(pieces: Sequence[Piece], edges: Sequence[int], position: int) -> int:
    """The offset at about this byte of all pieces."""
    slot = min(bisect_right(edges, position) - 1, len(pieces) - 1)
    piece = pieces[slot]
    return piece.start + (piece.end - piece.start) * (position - edges[slot]) // piece.size


def _clipped(pieces: Iterable[Piece], start: int, end: int) -> Iterable[Piece]:
    for piece in pieces:
        first, after = max(piece.start, start), min(piece.end, end)
        if (first, after) == (piece.start, piece.end):
            yield piece
        elif first < after:
            size = max(1, piece.size * (after - first) // (piece.end - piece.start))
            yield replace(piece, start=first, end=after, size=size)
