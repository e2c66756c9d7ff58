"""Decide when a log begins a new segment, and which old ones to delete: by log start, size and age.

Pure decisions over the segments of one log; `Log` performs them. Compaction is in `compaction/`.
With a remote tier (KIP-405) the limits are `local.retention.*`, and segments not copied yet are
kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.checksum import crc32c
from tidelog_storage.indexes import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_storage.config import LogConfig
    from tidelog_storage.log import Log
    from tidelog_storage.segment import Segment
    from tidelog_storage.segments import Segments


class RollPolicy:
    """`segment.bytes`, `segment.ms` less jitter, full indexes, and offsets beyond 31 bits.

    The jitter spreads partitions and segments and is deterministic.
    """

    __slots__ = ("_jitter_ms", "_name", "_segment_bytes", "_segment_ms")

    def __init__(self, config: LogConfig, name: str) -> None:
        self._name = name
        self._segment_bytes = config.segment_size
        self._segment_ms = config.segment_ms_max
        self._jitter_ms = min(config.segment_jitter_ms, config.segment_ms_max)

    def is_due(
        self, active: Segment, size: int, last_offset: int, timestamp: int, now_ms: int
    ) -> bool:
        """Return whether `size` bytes up to `last_offset`, newest `timestamp`, need a new
        segment."""
        return (
            active.size > self._segment_bytes - size
            or active.index_is_full
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or (
                active.size > 0
                and active.waited_ms(now_ms, timestamp)
                > (self._segment_ms - self._jitter(active) if self._jitter_ms else self._segment_ms)
            )
        )

    def _jitter(self, active: Segment) -> int:
        return crc32c(f"{self._name}:{active.base_offset}".encode(), 0) % self._jitter_ms


class Retention(NamedTuple):
    """The limits of one pass; None means unlimited.

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
        """Return the limits from a log's configuration and offsets."""
        config = log.config
        deletable_to = None
        if log.is_tiered and not config.remote_log_copy_disable:  # for any cleanup.policy
            size = config.effective_local_retention_bytes
            age_ms = config.effective_local_retention_ms
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
    """Return how many of the oldest segments to delete, and whether to seal the active one first.

    Segments above the high watermark and an empty active segment are kept. Each test continues
    where the previous one stopped, like Kafka's three passes. The active segment is sealed if it
    exceeds a limit itself, to be deleted at once, or once it was copied.
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
    """Return how many segments can be deleted while the rest is at least as large as the limit."""
    excess = sum([segment.size for segment in listed[count:]]) - limit

    def goes(slot: int) -> bool:
        nonlocal excess
        excess -= listed[slot].size
        return excess >= 0

    return goes
