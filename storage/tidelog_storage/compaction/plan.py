"""Plan a compaction: how dirty a log is, where the pass must end, which segments to group.

Pure decisions over the segments of one log, as Kafka's LogCleanerManager takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.indexes import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog_storage.log import Log
    from tidelog_storage.segment import Segment

_INT64_MAX = 2**63 - 1


class Dirt(NamedTuple):
    """The part of a log that could be compacted.

    Everything below `first_dirty_offset` was compacted before; `end_offset`, where compaction must
    stop, is the base of a segment. `is_overdue`: by `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Return the share of dirty bytes in those that a pass reads; 0 for none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_enough(self, ratio_min: float) -> bool:
        """Return whether a pass is worthwhile, or overdue."""
        return self.ratio > ratio_min or (self.is_overdue and self.dirty_bytes > 0)


def find_dirt(log: Log, compacted_to: int | None, now_ms: int) -> Dirt:
    """Return the dirt of a log that is compacted up to the checkpointed offset.

    The pass ends before the active segment, the last stable offset (and so the high watermark), and
    the first segment with a record younger than `min.compaction.lag.ms`.
    """
    first_dirty = log.log_start_offset if compacted_to is None else compacted_to
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    active = log.segments.active
    dirty = [
        segment
        for segment in log.segments.from_floor(first_dirty)
        if segment is not active and first_dirty <= active.base_offset
    ]
    end_offset = min(log.last_stable_offset, active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.know_timestamps() > now_ms - lag_ms:
                end_offset = min(end_offset, segment.base_offset)
                break
    end_segment = log.segments.floor(max(end_offset, first_dirty))
    end_offset = end_segment.base_offset if end_segment is not None else first_dirty
    return Dirt(
        first_dirty,
        end_offset,
        sum([segment.size for segment in log.segments if segment.base_offset < first_dirty]),
        sum([segment.size for segment in dirty if segment.base_offset < end_offset]),
        _is_overdue(dirty, log.config.max_compaction_lag_ms, now_ms),
    )


def _is_overdue(dirty: Sequence[Segment], lag_ms: int, now_ms: int) -> bool:
    if lag_ms >= _INT64_MAX:
        return False  # the default: skips reading the segments
    return any(0 < segment.first_timestamp() < now_ms - lag_ms for segment in dirty)


class Source(NamedTuple):
    """A sealed segment that a pass reads; it holds offsets below `end_offset`, the next one's base
    or the end of the pass."""

    base_offset: int
    end_offset: int
    size: int


def group(
    sources: Sequence[Source],
    index_sizes: Mapping[int, tuple[int, int]],
    bytes_max: int,
    index_bytes_max: int,
) -> list[list[Source]]:
    """Group neighbouring segments that become one, so that segments do not shrink forever.

    A group's records, offset indexes and time indexes stay within the limits of a segment
    (`index_sizes`: both, by base offset), its offsets within 31 bits.
    """
    groups: list[list[Source]] = []
    size = offsets_size = times_size = 0
    for source in sources:
        offsets, times = index_sizes.get(source.base_offset, (0, 0))
        size += source.size
        offsets_size += offsets
        times_size += times
        if (
            groups
            and size <= bytes_max
            and max(offsets_size, times_size) <= index_bytes_max
            and (
                not source.size
                or source.end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        ):
            groups[-1].append(source)
        else:
            groups.append([source])
            size, offsets_size, times_size = source.size, offsets, times
    return groups
