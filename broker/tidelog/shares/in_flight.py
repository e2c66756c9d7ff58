"""The spans of one share partition in order of offset: look-ups, splits, and what is done. Pure.

Invariants: spans do not overlap; `start_offset` <= every offset of a span < `next_offset`. There
may be holes: offsets without a record, which compaction or a marker took.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.shares.records import Span

__all__ = ["InFlight"]


def _first(span: Span) -> int:
    return span.first


def _last(span: Span) -> int:
    return span.last


class InFlight:
    """Spans from the start offset of a share partition (SPSO) to its end offset (SPEO)."""

    __slots__ = ("next_offset", "spans", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset
        """The first offset that was never acquired."""
        self.spans: list[Span] = []

    def check(self) -> None:
        """Check the invariants."""
        spans = self.spans
        assert all(before.last < after.first for before, after in pairwise(spans))
        if spans:
            assert self.start_offset <= spans[0].first
            assert spans[-1].last < self.next_offset
        else:
            assert self.start_offset == self.next_offset

    @property
    def count(self) -> int:
        """Number of offsets in flight, holes included, as Kafka counts them."""
        return self.next_offset - self.start_offset

    def add(self, span: Span) -> None:
        """Add a span where there is none."""
        self.spans.insert(bisect_left(self.spans, span.first, key=_first), span)
        self.next_offset = max(self.next_offset, span.last + 1)

    def between(self, first: int, last: int) -> list[Span]:
        """Return the spans with an offset from `first` to `last`, as they are."""
        begin = bisect_left(self.spans, first, key=_last)
        end = bisect_right(self.spans, last, key=_first)
        return self.spans[begin:end]

    def cut(self, first: int, last: int) -> Iterator[Span]:
        """Yield the spans from `first` to `last`; those across the bounds are split there, unless
        they are being written."""
        for span in self.between(first, last):
            inner = span
            if span.target is None:
                if span.first < first:
                    inner = self.split(span, first)
                if inner.last > last:
                    self.split(inner, last + 1)
            yield inner

    def split(self, span: Span, offset: int) -> Span:
        """Split a span before `offset`; return the second part."""
        assert span.first < offset <= span.last
        second = span.copy(offset, span.last)
        span.last = offset - 1
        self.spans.insert(bisect_left(self.spans, offset, key=_first), second)
        return second

    def remove(self, span: Span) -> None:
        """Remove a span, for what takes its place."""
        del self.spans[bisect_left(self.spans, span.first, key=_first)]

    def join_alike(self) -> None:
        """Make neighbours alike one span again."""
        spans = self.spans
        if len(spans) < 2:
            return
        joined = [spans[0]]
        for span in spans[1:]:
            if joined[-1].goes_on_as(span):
                joined[-1].last = span.last
            else:
                joined.append(span)
        self.spans = joined

    def advance(self) -> bool:
        """Move the start offset past the records that are done; return whether it moved."""
        spans = self.spans
        done = 0
        while done < len(spans) and spans[done].is_done:
            done += 1
        if not done:
            return False
        if done == len(spans):
            self.start_offset = self.next_offset
        else:
            self.start_offset = max(self.start_offset, spans[done].first)
        del spans[:done]
        return True

    def move_start(self, offset: int) -> None:
        """Forget what is below the new start of the log."""
        self.start_offset = offset
        spans = self.spans
        del spans[: bisect_left(spans, offset, key=_last)]
        if spans:
            spans[0].first = max(spans[0].first, offset)
        else:
            self.next_offset = max(self.next_offset, offset)
            self.start_offset = self.next_offset
