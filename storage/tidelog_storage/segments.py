"""The ordered segments of one log.

Only the last one, the active one, is appended to. The log (`log.py`) is the only caller.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidelog_storage.segment import Segment


class Segments:
    """Segments by base offset, rising. Invariant: there is at least one once a log is loaded."""

    __slots__ = ("_bases", "_segments", "active")

    active: Segment

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        if self._segments:
            self.active = self._segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all records files."""
        return sum([segment.size for segment in self._segments])

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets, oldest first."""
        return self._bases.copy()

    def floor(self, offset: int) -> Segment | None:
        """The segment with the largest base offset at or below `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot - 1] if slot else None

    def after(self, offset: int) -> Segment | None:
        """The segment with the smallest base offset above `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def from_floor(self, offset: int) -> list[Segment]:
        """The segment that covers `offset` and all after it."""
        slot = bisect_right(self._bases, offset)
        return self._segments[max(slot - 1, 0) :]

    def add(self, segment: Segment) -> None:
        """Append a new active segment."""
        assert not self._bases or segment.base_offset > self._bases[-1]
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int) -> list[Segment]:
        """Take the oldest `count` segments out; the active one stays."""
        assert count < len(self._segments)
        removed = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        return removed

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put one sealed segment in the place of neighbours, the first of which has its base."""
        slot = self._segments.index(old[0])
        assert self._segments[slot : slot + len(old)] == list(old)
        assert old[-1] is not self.active
        assert new.base_offset == old[0].base_offset
        self._segments[slot : slot + len(old)] = [new]
        self._bases[slot : slot + len(old)] = [new.base_offset]

    def insert(self, segment: Segment) -> None:
        """Put a sealed segment where one is missing, before the active one."""
        assert segment.base_offset not in self._bases
        slot = bisect_right(self._bases, segment.base_offset)
        assert slot < len(self._segments)
        self._segments.insert(slot, segment)
        self._bases.insert(slot, segment.base_offset)

    def remove_above(self, offset: int) -> list[Segment]:
        """Take out the segments whose base offset is above `offset`; at least one stays."""
        slot = bisect_right(self._bases, offset)
        assert slot > 0
        removed = self._segments[slot:]
        del self._segments[slot:]
        del self._bases[slot:]
        self.active = self._segments[-1]
        return removed

    def clear(self) -> list[Segment]:
        """Take all out; the caller adds a new active segment at once."""
        removed = self._segments
        self._segments = []
        self._bases = []
        return removed

    def release_idle(self, recovery_point: int) -> None:
        """Give up handles and indexes of durable sealed segments not read since the last call."""
        for segment in self._segments[:-1]:
            if segment.base_offset < recovery_point:
                if segment.is_idle:
                    segment.release()
                segment.is_idle = True
