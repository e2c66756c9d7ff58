"""Merge the state batches of a share partition, as Kafka's PersisterStateBatchCombiner does.

The result has no overlaps. Where batches overlap, the higher delivery count counts, and then the
higher delivery state: a late write of an earlier delivery changes nothing. Pure.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from tidelog.coordinators.share.values import UNINITIALIZED, StateBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["merge"]

# first offset, last offset, delivery count, delivery state: Kafka compares batches in this order
_Sorted = tuple[int, int, int, int]


def merge(
    current: Iterable[StateBatch], changes: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the batches from `start_offset` on; -1 keeps all."""
    kept = [*current, *changes]
    if start_offset != UNINITIALIZED:
        kept = [
            batch
            if batch.first_offset >= start_offset
            else batch._replace(first_offset=start_offset)
            for batch in kept
            if batch.last_offset >= start_offset
        ]
    if len(kept) < 2:
        return tuple(kept)
    ordered = sorted((first, last, count, state) for first, last, state, count in kept)
    return tuple(
        StateBatch(first, last, state, count) for first, last, count, state in _merged(ordered)
    )


def _merged(ordered: list[_Sorted]) -> Iterator[_Sorted]:
    """Merge the first two batches until they are apart; the first one is then final."""
    ordered.reverse()
    pieces: list[_Sorted] = []  # a heap of those that were merged

    def next_batch() -> _Sorted:
        if pieces and (not ordered or pieces[0] < ordered[-1]):
            return heappop(pieces)
        return ordered.pop()

    first = ordered.pop()
    while ordered or pieces:
        second = next_batch()
        is_near = second[0] <= first[1] + 1
        if is_near and (second[0] <= first[1] or first[2:] == second[2:]):
            for piece in _pieces(first, second):
                heappush(pieces, piece)
            first = next_batch()
        else:
            yield first
            first = second
    yield first


def _pieces(first: _Sorted, second: _Sorted) -> Sequence[_Sorted]:
    """Return two overlapping batches without the overlap, or two equal neighbours as one."""
    if first[2:] == second[2:]:
        return [(first[0], max(first[1], second[1]), *first[2:])]
    if second[2:] < first[2:]:
        tail = [(first[1] + 1, second[1], *second[2:])] if second[1] > first[1] else []
        return [first, *tail]
    head = [(first[0], second[0] - 1, *first[2:])] if second[0] > first[0] else []
    tail = [(second[1] + 1, first[1], *first[2:])] if first[1] > second[1] else []
    return [*head, second, *tail]
