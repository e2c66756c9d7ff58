"""Read a log's segments at an offset, fast for readers that continue where they stopped.

One `Reader` belongs to one `Log`, which has checked the offset against its own ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode
from tidelog_storage.slices import is_plausible
from tidelog_storage.types import Records, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.segment import Segment
    from tidelog_storage.segments import Segments
    from tidelog_storage.types import Damage

_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast
_PLACES_MAX = 64  # sequential readers of one log whose next position is remembered


class Reader:
    """Remembers the next position of each sequential reader, which then needs no search.

    `damages` are those of all segments, by offset; they are not served.
    """

    __slots__ = ("_bound", "_places", "_segments", "damages")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._places: dict[int, tuple[Segment, int]] = {}  # by offset, oldest first
        self._bound: tuple[int, Segment, int] | None = None  # the last upper bound looked up
        self.damages: tuple[Damage, ...] = ()

    def set_damages(self, base_offset: int, damages: Sequence[Damage]) -> None:
        """Replace the damages of the segment of that base offset."""
        kept = [each for each in self.damages if each.base_offset != base_offset]
        self.forget()
        self.damages = tuple(sorted((*kept, *damages), key=lambda each: each.first_offset))

    def forget(self) -> None:
        """Drop remembered positions: the log was cut at either end."""
        self._places.clear()
        self._bound = None

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int,
        log_end_offset: int,
        min_one_batch: bool,
    ) -> Records:
        """Whole batches of one segment; see `Log.read`. The offset is below both ends."""
        if self.damages:
            upper_bound = self._before_damage(offset, upper_bound)
        place = self._places.get(offset)
        if place is None or place[1] >= place[0].size:  # unknown, or remembered before a roll
            place = self._find(offset)
            if place is None:
                return Records((), 0, offset)
        segment, position = place
        limit = segment.size
        next_offset = log_end_offset
        if segment is not self._segments.active:
            following = self._segments.after(segment.base_offset)
            assert following is not None
            next_offset = following.base_offset
        if upper_bound < next_offset:
            limit = self._position_of(segment, upper_bound)
            next_offset = upper_bound
        cut = segment.read(position, max_bytes, limit, min_one_batch=min_one_batch)
        segment.is_idle = False
        size = cut.size
        if not size:
            return Records((), 0, offset, cut.first_batch_incomplete)
        if cut.next_offset >= 0:
            next_offset = cut.next_offset
        if not is_plausible(cut.part, size, offset, next_offset):
            raise StorageError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{segment}: no batch of offset {offset} at byte {position}",
            )
        places = self._places
        if len(places) >= _PLACES_MAX:
            del places[next(iter(places))]
        places[next_offset] = (segment, position + size)
        return _new(Records, ((cut.part,), size, next_offset, False))

    def _find(self, offset: int) -> tuple[Segment, int] | None:
        """Find the first batch that ends at or after `offset`."""
        first = self._segments.floor(offset) or self._segments.first
        if first.base_offset == offset and first.size and not self.damages:
            return first, 0  # no search: every reader reaches each segment's first batch
        segment: Segment | None = first
        while segment is not None:
            place = segment.find(offset, self._resume(segment, offset))
            if place is not None:
                return segment, place.position
            segment = self._segments.after(segment.base_offset)
        return None

    def _position_of(self, segment: Segment, upper_bound: int) -> int:
        bound = self._bound
        if bound is not None and bound[0] == upper_bound and bound[1] is segment:
            return bound[2]
        for damage in self.damages:
            if (damage.base_offset, damage.first_offset) == (segment.base_offset, upper_bound):
                return damage.position
        place = segment.find(upper_bound, self._resume(segment, upper_bound))
        position = segment.size if place is None else place.position
        self._bound = (upper_bound, segment, position)
        return position

    def _before_damage(self, offset: int, upper_bound: int) -> int:
        """Return the end of a read from `offset` on. StorageError CORRUPT_MESSAGE in a damage: a
        consumer may continue after it."""
        for damage in self.damages:
            if damage.first_offset <= offset < damage.end_offset:
                raise StorageError(ErrorCode.CORRUPT_MESSAGE, f"{damage}")
            if offset < damage.first_offset < upper_bound:
                return damage.first_offset
        return upper_bound

    def _resume(self, segment: Segment, offset: int) -> int:
        """Return where to search for an offset: after the damages before it."""
        position = 0
        for damage in self.damages:
            if damage.base_offset == segment.base_offset and damage.end_offset <= offset:
                position = damage.end_position
        return position
