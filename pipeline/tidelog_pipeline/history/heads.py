"""Where records begin in the joined payloads of batches.

It is known from the record before alone, so numpy follows many batches side by side, and Python
follows few. A large batch is cut into lanes first, at places that look like the beginning of a
record: its offset is one less than that of what follows it. A lane counts only if the records of
the lane before end where it begins; otherwise nothing is cut. Pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import read_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

__all__ = ["PADDING", "heads_of", "varints"]

PADDING = bytes(10)  # behind all records, so that a varint can be read anywhere
_LANES_MIN = 64  # below, a step of numpy's costs more than so many of Python's
_LANE_RECORDS = 128  # about so many in each lane of a batch that is cut
_SHORT_BYTES = 4  # of the varints that are read where a record may begin


def heads_of(data: bytes, edges: Sequence[int], counts: Int64s, gapless: Sequence[bool]) -> Int64s:
    """Where each record begins: `counts` of them fill each payload between two edges.

    A payload is `gapless` if its records have all offsets from the batch's first on. `data` goes on
    behind the last edge with `PADDING`. ProtocolError if the records do not fill their payloads.
    """
    whole = np.array(edges, dtype=np.int64)
    lanes = np.where(gapless, counts // _LANE_RECORDS, 0)
    if lanes.max(initial=0) > 1:
        try:
            return _followed(data, *_cut(data, whole, counts, lanes))
        except ProtocolError:
            pass  # a guess was wrong, or the batch is
    return _followed(data, whole, counts)


def _cut(data: bytes, edges: Int64s, counts: Int64s, lanes: Int64s) -> tuple[Int64s, Int64s]:
    """Edges and counts with about so many lanes in each payload, as far as guesses are found."""
    more = np.maximum(lanes - 1, 0)
    of = np.repeat(np.arange(len(counts), dtype=np.int64), more)
    number = np.arange(len(of), dtype=np.int64) - np.repeat(np.cumsum(more) - more, more) + 1
    sizes = np.diff(edges)
    places = edges[of] + sizes[of] * number // lanes[of]
    reach = int(2 * (sizes[of] // counts[of]).max()) + 32  # of a place to the next record
    index, heads, deltas = _guesses(data, places, edges[of + 1], counts[of], reach)
    firsts = np.cumsum(counts) - counts
    begins = np.concatenate([edges[:-1], heads])
    order = np.argsort(begins, kind="stable")
    slots = np.concatenate([firsts, firsts[of[index]] + deltas])[order]
    found = np.append(begins[order], edges[-1])
    return found, np.diff(np.append(slots, counts.sum()))


def _guesses(
    data: bytes, places: Int64s, ends: Int64s, counts: Int64s, reach: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Of each place, the first byte behind it that looks like a record's: index of the place, the
    byte, and the record's offset delta. `ends` and `counts` are those of the places' payloads."""
    view = np.frombuffer(data, dtype=np.uint8)
    last = len(data) - _SHORT_BYTES
    window = np.minimum(places[:, None] + np.arange(2, reach, dtype=np.int64), last)
    index, column = np.nonzero(view[window] == 0)  # attributes, behind a length of 1 to 3 bytes
    after = window[index, column]
    before = [view[after - back] for back in (1, 2, 3)]
    is_last = before[0] < 0x80
    starts = [is_last & (before[0] > 0) & (before[0] & 1 == 0)]
    starts.append(is_last & (before[0] > 0) & (before[1] >= 0x80) & (before[1] & 1 == 0))
    starts.append(is_last & (before[1] >= 0x80) & (before[2] >= 0x80) & (before[2] & 1 == 0))
    heads = np.concatenate([after[found] - back for back, found in enumerate(starts, 1)])
    index = np.concatenate([index[found] for found in starts])
    end, delta = _looked_at(view, heads)
    _, next_delta = _looked_at(view, end)
    fits = (end < ends[index]) & (delta > 0) & (next_delta == delta + 1)
    fits &= delta + 1 < counts[index]
    slots = np.flatnonzero(fits)
    slots = slots[np.lexsort((heads[slots], index[slots]))]
    chosen, first = np.unique(index[slots], return_index=True)
    return chosen, heads[slots[first]], delta[slots[first]]


def _looked_at(view: Bytes, heads: Int64s) -> tuple[Int64s, Int64s]:
    """If a record begins at each head: where it ends, and its offset delta; else any numbers."""
    length, body = _short(view, heads)
    _, position = _short(view, body + 1)
    delta, _ = _short(view, position)
    is_record = view[np.minimum(body, len(view) - 1)] == 0
    return body + length, np.where(is_record, delta, -1)


def _short(view: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """A varint of few bytes at each position, and where it ends; any numbers for a longer one, or a
    position behind the data."""
    at = np.minimum(positions, len(view) - _SHORT_BYTES)
    value, after = np.zeros(len(at), dtype=np.int64), at.copy()
    goes_on = np.ones(len(at), dtype=bool)
    for number in range(_SHORT_BYTES):
        one = view[at + number]
        value |= np.where(goes_on, one & 0x7F, 0).astype(np.int64) << (7 * number)
        after += goes_on
        goes_on = goes_on & (one >= 0x80)
    return value >> 1, after


def _followed(data: bytes, edges: Int64s, counts: Int64s) -> Int64s:
    """Where each record begins: `counts` of them fill the bytes between two edges.

    Many lanes are followed side by side. Lengths are checked where they are read again."""
    if (counts < 0).any() or int(counts.sum()) > len(data):
        raise ProtocolError("more records than bytes")
    found = np.empty(int(counts.sum()), dtype=np.int64)
    order = np.argsort(-counts, kind="stable")  # those that end first are last
    slots = (np.cumsum(counts) - counts)[order]
    position = edges[:-1][order]
    view = np.frombuffer(data, dtype=np.uint8)
    lanes, step = int(np.count_nonzero(counts)), 0
    falling = -counts[order]
    try:
        while lanes >= _LANES_MIN:
            heads = position[:lanes]
            found[slots[:lanes] + step] = heads
            position[:lanes] = _behind(view, heads)
            step += 1
            lanes = int(np.searchsorted(falling, -step))
    except IndexError:
        raise ProtocolError("the records do not fill their batch") from None
    ends = edges[1:][order]
    for lane in np.flatnonzero((-falling > step) | (position != ends)).tolist():
        rest: list[int] = []
        left = max(0, -int(falling[lane]) - step)
        _add_heads(data, int(position[lane]), int(ends[lane]), left, rest)
        first = int(slots[lane]) + step
        found[first : first + left] = rest
    return found


def _behind(view: Bytes, heads: Int64s) -> Int64s:
    """Where the records end that begin at these places. IndexError past the data's end."""
    first = view[heads]
    second = view[heads + 1]
    is_long = first >= 0x80
    if (is_long & (second >= 0x80)).any():
        length, after = varints(view, heads)
        return after + np.maximum(length, 0)
    length = (first & 0x7F).astype(np.int64)
    length += (second * is_long).astype(np.int64) << 7
    return heads + (length >> 1) + is_long + 1


def _add_heads(data: bytes, position: int, end: int, count: int, heads: list[int]) -> None:
    """Add where each of `count` records begins; they must fill [position, end)."""
    add = heads.append
    try:
        for _ in range(count):
            add(position)
            length = data[position]
            if length < 128:
                position += 1
            elif (second := data[position + 1]) < 128:
                length += (second << 7) - 128
                position += 2
            else:
                found, position = read_varint(data, position)
                length = found << 1
            if length & 1 or length < 0:
                raise ProtocolError(f"a record of negative length at {position}")
            position += length >> 1
    except IndexError:
        position = -1
    if position != end:
        raise ProtocolError("the records do not fill their batch")


def varints(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """The zigzag varint at each position, and where it ends. IndexError past the data's end."""
    if len(positions) and int(positions.max()) >= len(data):
        raise IndexError
    first = data[positions]
    value = (first & 0x7F).astype(np.uint64)
    after = positions + 1
    more = np.flatnonzero(first >= 0x80)
    shift = 7
    while len(more):
        if shift > 63:
            raise ProtocolError("a varint of more than ten bytes")
        following = data[after[more]]
        value[more] |= (following & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[following >= 0x80]
        shift += 7
    signed = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return signed, after
