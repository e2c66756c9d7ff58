"""Where each offset of a partition is: in remote segments, at the brokers, or nowhere. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog_pipeline.history.planner import live_parts
from tidelog_storage.remote.api import SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_pipeline.history.planner import LivePart, LogView
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["Places", "places_of", "without"]

Span = tuple[int, int]
"""Offsets [start, end)."""


@dataclass(frozen=True, slots=True)
class Places:
    """Of one partition. `lost`: offsets that are in no place. `twice`: those that several remote
    segments have, which is no fault: a new leader may copy again what the one before had copied.
    """

    parts: tuple[LivePart, ...]
    local: Span
    only_local: tuple[Span, ...]
    lost: tuple[Span, ...]
    twice: tuple[Span, ...]
    off_lineage: tuple[RemoteSegment, ...] = field(repr=False)
    unfinished: tuple[RemoteSegment, ...] = field(repr=False)


def places_of(log: LogView) -> Places:
    """The places of a log's offsets."""
    parts = [part for part in live_parts(log) if part.end > log.log_start]
    spans = [(max(part.start, log.log_start), part.end) for part in parts]
    local = (min(log.local_start, log.end), log.end)
    live = {part.segment.segment_id for part in parts}
    finished = [each for each in log.segments if each.state is SegmentState.COPY_SEGMENT_FINISHED]
    return Places(
        parts=tuple(parts),
        local=local,
        only_local=tuple(without(local, spans)),
        lost=tuple(without((log.log_start, local[0]), spans)),
        twice=tuple(_twice(spans)),
        off_lineage=tuple(
            each
            for each in finished
            if each.segment_id not in live and each.end_offset >= log.log_start
        ),
        unfinished=tuple(
            each for each in log.segments if each.state is SegmentState.COPY_SEGMENT_STARTED
        ),
    )


def without(whole: Span, spans: Iterable[Span]) -> list[Span]:
    """What of a range is in none of these."""
    position, end = whole
    found = []
    for start, after in sorted(spans):
        if position < min(start, end):
            found.append((position, min(start, end)))
        position = max(position, after)
    if position < end:
        found.append((position, end))
    return found


def _twice(spans: Iterable[Span]) -> list[Span]:
    found = []
    reached = -1
    for start, end in sorted(spans):
        if start < min(reached, end):
            found.append((start, min(reached, end)))
        reached = max(reached, end)
    return [(start, end) for start, end in found if start < end]
