"""Which old segments a log may give up: by log start, size and age.

Pure decisions over the segments of one log; `Log.delete_old_segments` carries them out. Compaction
is `compaction/`'s. With a remote tier (KIP-405) `local.retention.*` are the limits here, and what
was not copied yet stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_storage.log import Log
    from tidelog_storage.segment import Segment
    from tidelog_storage.segments import Segments


class Retention(NamedTuple):
    """What one pass goes by; None means unlimited.

    `deletable_to`: segments that end above it stay, as they were not copied to the remote tier.
    """

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    retention_bytes: int | None
    retention_ms: int | None
    now_ms: int
    deletable_to: int | None = None

    @classmethod
    def of(cls, log: Log, now_ms: int) -> Retention:
        """The limits that a log's configuration and offsets set."""
        config = log.config
        deletable_to = None
        if log.is_tiered and not config.remote_log_copy_disable:  # whatever cleanup.policy says
            size, age_ms = (
                config.effective_local_retention_bytes,
                config.effective_local_retention_ms,
            )
            deletable_to = max(log.highest_remote_offset + 1, log.log_start_offset)
            if log.kept_from is not None:
                deletable_to = min(deletable_to, max(log.kept_from, log.log_start_offset))
        elif config.deletes:
            size, age_ms = config.retention_bytes, config.retention_ms
        else:
            size = age_ms = -1
        return cls(
            log.log_start_offset,
            log.high_watermark,
            log.log_end_offset,
            size if size >= 0 else None,
            age_ms if age_ms >= 0 else None,
            now_ms,
            deletable_to,
        )


def plan_deletion(segments: Segments, limits: Retention) -> tuple[int, bool]:
    """How many of the oldest segments go, and whether the active one is sealed before.

    Nothing that reaches above the high watermark goes, nor an empty active segment. Each test goes
    on where the one before stopped, as Kafka's three passes do. The active segment is sealed if it
    breaks a limit itself: to go at once, or once it was copied.
    """
    listed = list(segments)
    # The offset after each segment.
    ends = [segment.base_offset for segment in listed[1:]] + [limits.log_end_offset]
    last = len(listed) - 1
    deletable_to = limits.log_end_offset if limits.deletable_to is None else limits.deletable_to
    rolls = False

    def extend(count: int, goes: Callable[[int], bool]) -> int:
        nonlocal rolls
        while (
            count <= last
            and limits.high_watermark >= ends[count]
            and (count < last or listed[count].size > 0)
            and goes(count)
        ):
            rolls = rolls or count == last
            if ends[count] > deletable_to:
                break
            count += 1
        return count

    count = extend(0, lambda slot: slot < last and ends[slot] <= limits.log_start_offset)
    if limits.retention_bytes is not None:
        count = extend(count, _too_large(listed, count, limits.retention_bytes))
    if limits.retention_ms is not None:
        oldest_ms = limits.now_ms - limits.retention_ms
        count = extend(count, lambda slot: listed[slot].retention_timestamp() < oldest_ms)
    return count, rolls


def _too_large(listed: Sequence[Segment], count: int, limit: int) -> Callable[[int], bool]:
    """Segments without which the rest is still as large as the limit."""
    excess = sum([segment.size for segment in listed[count:]]) - limit

    def goes(slot: int) -> bool:
        nonlocal excess
        excess -= listed[slot].size
        return excess >= 0

    return goes
