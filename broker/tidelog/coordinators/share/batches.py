"""Merge the state batches of a share partition, as Kafka's PersisterStateBatchCombiner does.

The result has no overlaps. Where batches overlap, the higher delivery count counts, and then the
higher delivery state: a late write of an earlier delivery changes nothing. Pure.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from tidelog.coordinators.share.values import UNINITIALIZED, StateBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["merge"]

# first offset, last offset, delivery count, delivery state: Kafka compares batches in this order
_Sorted = tuple[int, int, int, int]


def merge(
    current: Iterable[StateBatch], changes: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the batches from `start_offset` on; -1 keeps all."""
    kept = [
        batch._replace(first_offset=max(batch.first_offset, start_offset))
        for batches in (current, changes)
        for batch in batches
        if start_offset == UNINITIALIZED or batch.last_offset >= start_offset
    ]
    if len(kept) < 2:
        return tuple(kept)
    heap = [
        (each.first_offset, each.last_offset, each.delivery_count, each.delivery_state)
        for each in kept
    ]
    heapify(heap)
    return tuple(
        StateBatch(first, last, state, count) for first, last, count, state in _merged(heap)
    )


def _merged(heap: list[_Sorted]) -> Iterable[_Sorted]:
    """Merge the first two batches until they are apart; the first one is then final."""
    first = heappop(heap)
    while heap:
        second = heappop(heap)
        is_same = first[2:] == second[2:]
        if second[0] <= first[1] or (is_same and second[0] == first[1] + 1):
            for piece in _pieces(first, second):
                heappush(heap, piece)
            first = heappop(heap)
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
