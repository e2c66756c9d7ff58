"""What share partitions count for the broker's metrics.

Kafka: ShareGroupMetrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metrics.meters import Timer
from tidelog.shares.records import AckType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.shares.partition_state import AckBatch

__all__ = ["ShareCounts"]


class ShareCounts:
    """The counts of one broker: records acknowledged by type, and how long loads took."""

    __slots__ = ("acknowledged", "loads")

    def __init__(self) -> None:
        # A gap is no record, and Kafka does not count it.
        self.acknowledged: dict[AckType, int] = {
            kind: 0 for kind in AckType if kind is not AckType.GAP
        }
        self.loads = Timer()

    def acknowledge(self, batches: Iterable[AckBatch]) -> None:
        """Count what a member acknowledged; it is stored."""
        for first, last, types in batches:
            records = last - first + 1 if len(types) == 1 else 1
            for kind in types:
                if kind in self.acknowledged:
                    self.acknowledged[AckType(kind)] += records
