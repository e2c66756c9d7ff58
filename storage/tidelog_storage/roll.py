"""When a log seals its active segment and begins a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.checksum import crc32c
from tidelog_storage.indexes import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from tidelog_storage.config import LogConfig
    from tidelog_storage.segment import Segment


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
