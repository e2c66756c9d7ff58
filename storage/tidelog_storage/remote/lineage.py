"""Which remote segments belong to a log as it is now, and how far it is copied (KIP-405).

A log's lineage is its leader epoch cache from log start to log end. Leaders roll at different
offsets and unclean elections write other records at the same ones, so several remote segments may
hold one offset: only (epoch, offset) tells records apart. Pure functions; epochs are (epoch, start
offset), both rising, as `LeaderEpochCache.entries` has them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tidelog_storage.remote.api import SegmentState
from tidelog_storage.types import UNDEFINED_EPOCH, UNDEFINED_OFFSET, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog_storage.remote.api import RemoteSegment

__all__ = [
    "clipped",
    "copied_up_to",
    "find_log_start",
    "in_lineage",
    "readable_end",
    "target_epoch",
    "without_empty",
]


def without_empty(epochs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The epochs that have records: of several with one start offset the newest."""
    after = [start for _, start in epochs[1:]]
    return tuple(
        (epoch, start)
        for slot, (epoch, start) in enumerate(epochs)
        if slot == len(after) or start != after[slot]
    )


def in_lineage(
    segment: RemoteSegment, epochs: Sequence[tuple[int, int]], log_end_offset: int
) -> bool:
    """Whether all records of a remote segment, from the log start on, are this log's.

    Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
    """
    lineage = without_empty(epochs)
    if not lineage or segment.end_offset >= log_end_offset:
        return False
    # Epochs before the lineage's first are not judged: the log start moved past their records.
    own = [entry for entry in without_empty(segment.epochs) if entry[0] >= lineage[0][0]]
    if not own:
        return False
    first = bisect_left(lineage, own[0][0], key=_epoch)
    theirs = lineage[first : first + len(own)]
    if [epoch for epoch, _ in own] != [epoch for epoch, _ in theirs] or own[1:] != [*theirs[1:]]:
        return False
    # The first one may begin later, cut by the roll; the lineage's very first was itself cut by the
    # log start, so that there the segment may also begin earlier.
    if first > 0 and own[0][1] < theirs[0][1]:
        return False
    after = first + len(own)
    return after == len(lineage) or segment.end_offset < lineage[after][1]


def copied_up_to(
    epochs: Sequence[tuple[int, int]],
    log_end_offset: int,
    highest_offset: Callable[[int], int | None],
) -> OffsetAndEpoch:
    """The last offset of the log that is remote, and its epoch; (-1, -1) for none.

    `highest_offset` is asked by epoch, newest first (`PartitionMetadata.highest_offset`). Its first
    answer counts, but not past where the epoch ends here: beyond are records of a dead branch.
    """
    for epoch, _ in reversed(without_empty(epochs)):
        highest = highest_offset(epoch)
        if highest is not None:
            return OffsetAndEpoch(
                min(highest, readable_end(epochs, epoch, log_end_offset) - 1), epoch
            )
    return OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)


def find_log_start(
    epochs: Sequence[tuple[int, int]],
    local_log_start_offset: int,
    segments: Callable[[int], Iterable[RemoteSegment]],
) -> int:
    """Where the log begins, the remote tier counted in: for a new leader, who raises its log start
    to it if that is lower.

    `segments` is asked by epoch, oldest first (`PartitionMetadata.segments`). Only finished ones
    count: a reader sent to others would find nothing. Never above the local log start, so that no
    record on this disk is given up.
    """
    for epoch, _ in epochs:
        starts = [
            segment.start_offset
            for segment in segments(epoch)
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
        if starts:
            return min(*starts, local_log_start_offset)
    return local_log_start_offset


def readable_end(epochs: Sequence[tuple[int, int]], epoch: int, log_end_offset: int) -> int:
    """The first offset that is no longer of `epoch` (which the log has): where a remote read that
    began in this epoch is cut, because behind it the segment may be of a dead branch."""
    after = bisect_right(epochs, epoch, key=_epoch)
    return epochs[after][1] if after < len(epochs) else log_end_offset


def clipped(
    epochs: Sequence[tuple[int, int]], start_offset: int, end_offset: int
) -> tuple[tuple[int, int], ...]:
    """The epochs of [start, end), the first one said to begin at `start_offset`: what a remote
    segment's metadata has. Empty epochs stay, as Kafka keeps them."""
    covering = max(bisect_right(epochs, start_offset, key=_start) - 1, 0)
    after = bisect_left(epochs, end_offset, key=_start)
    return tuple((epoch, max(start, start_offset)) for epoch, start in epochs[covering:after])


def target_epoch(
    local_log_start_offset: int, local_log_start_epoch: int, answer: tuple[int, int] | None
) -> int:
    """The epoch of the offset before a leader's local log start, for a follower that builds its
    auxiliary state (section "Followers" of KIP-405).

    `answer` is (epoch, end offset) that the leader told by OffsetForLeaderEpoch for
    `local_log_start_epoch - 1`, None when that epoch is 0 and nobody was asked.
    """
    if answer is None:
        return local_log_start_epoch
    epoch, end_offset = answer
    return epoch if end_offset > local_log_start_offset - 1 else local_log_start_epoch


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
