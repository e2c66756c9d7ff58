"""A partition as the brokers and the metadata topic describe it now, and the splits of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.embedded.cluster_settings import ClusterError
from tidelog_pipeline.history.loss import lost
from tidelog_pipeline.history.planner import LogView, Split, live_parts, pieces_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.embedded.tier_view import PartitionTiers
    from tidelog_pipeline.history.client import HistoryClient

__all__ = ["check_range", "split_of", "views_of"]


def views_of(client: HistoryClient, topic: str, partitions: Collection[int]) -> list[LogView]:
    """These partitions of a topic. ClusterError if one of them can't be seen whole."""
    topic_id, _ = client.partitions_of(topic)
    return [_view(topic_id, tiers) for tiers in client.look(topic, partitions)]


def _view(topic_id: bytes, tiers: PartitionTiers) -> LogView:
    if tiers.high_watermark < 0 or not tiers.knows_remote:
        raise ClusterError(f"{tiers.topic}-{tiers.partition}: {tiers.trouble}")
    return LogView(
        topic=tiers.topic,
        topic_id=topic_id,
        partition=tiers.partition,
        epochs=tuple(tiers.epochs),
        log_start=tiers.log_start,
        local_start=max(tiers.local_log_start, tiers.log_start),
        end=tiers.high_watermark,
        local_bytes=tiers.local_bytes,
        segments=tuple(tiers.remote),
    )


def check_range(log: LogView, start: int, end: int, *, fails: bool) -> tuple[int, int]:
    """What is there of [start, end); the rest is reported as lost."""
    first, after = max(start, log.log_start), min(end, log.end)
    if (first, after) != (start, end):
        lost(
            f"Cannot fetch offsets [{start}, {end}) of {log.topic}-{log.partition}: "
            f"it has [{log.log_start}, {log.end})",
            fails=fails,
        )
    return first, after


def split_of(
    client: HistoryClient, log: LogView, start: int, end: int, *, is_committed: bool
) -> Split:
    """[start, end) of a partition as one split; with what was aborted behind its remote part."""
    parts = live_parts(log)
    border = max((part.end for part in parts), default=0)
    aborted: tuple[tuple[int, int], ...] = ()
    if is_committed and start < border < log.end:
        found = client.aborted_behind(log.topic, log.topic_id, log.partition, border)
        aborted = tuple(one for one in found if one[1] < border)
    pieces = tuple(pieces_of(log, start, end, parts))
    return Split(log.topic, log.topic_id, log.partition, pieces, aborted)
