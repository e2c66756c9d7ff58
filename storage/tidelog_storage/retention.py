"""Which old segments a log may give up: by log start, size and age.

Pure decisions over the segments of one log; `Log.delete_old_segments` carries them out. Compaction
is `compaction/`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_storage.log import Log
    from tidelog_storage.segment import Segment
    from tidelog_storage.segments import Segments


class Retention(NamedTuple):
    """What one pass goes by; None means unlimited."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    retention_bytes: int | None
    retention_ms: int | None
    now_ms: int

    @classmethod
    def of(cls, log: Log, now_ms: int) -> Retention:
        """The limits that a log's configuration and offsets set."""
        config = log.config
        by_size = config.deletes and config.retention_bytes >= 0
        by_time = config.deletes and config.retention_ms >= 0
        return cls(
            log.log_start_offset,
            log.high_watermark,
            log.log_end_offset,
            config.retention_bytes if by_size else None,
            config.retention_ms if by_time else None,
            now_ms,
        )


def deletable_count(segments: Segments, limits: Retention) -> int:
    """How many of the oldest segments go; all of them means that the active one is rolled first.

    Nothing that reaches above the high watermark goes, nor an empty active segment. Each test goes
    on where the one before stopped, as Kafka's three passes do.
    """
    listed = list(segments)
    # The offset after each segment.
    ends = [segment.base_offset for segment in listed[1:]] + [limits.log_end_offset]
    last = len(listed) - 1

    def extend(count: int, goes: Callable[[int], bool]) -> int:
        while (
            count <= last
            and limits.high_watermark >= ends[count]
            and (count < last or listed[count].size > 0)
            and goes(count)
        ):
            count += 1
        return count

    count = extend(0, lambda slot: slot < last and ends[slot] <= limits.log_start_offset)
    if limits.retention_bytes is not None:
        count = extend(count, _too_large(listed, count, limits.retention_bytes))
    if limits.retention_ms is not None:
        oldest_ms = limits.now_ms - limits.retention_ms
        count = extend(count, lambda slot: listed[slot].retention_timestamp() < oldest_ms)
    return count


def _too_large(listed: Sequence[Segment], count: int, limit: int) -> Callable[[int], bool]:
    """Segments without which the rest is still as large as the limit."""
    excess = sum([segment.size for segment in listed[count:]]) - limit

    def goes(slot: int) -> bool:
        nonlocal excess
        excess -= listed[slot].size
        return excess >= 0

    return goes
