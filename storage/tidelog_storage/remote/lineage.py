"""Which remote segments belong to a log as it is now, and how far it is copied (KIP-405).

A log's lineage is its leader epoch cache from log start to log end. Leaders roll at different
offsets and unclean elections write other records at the same ones, so several remote segments may
hold one offset: only (epoch, offset) tells records apart. Pure functions; epochs are (epoch, start
offset), both rising, as `LeaderEpochCache.entries` has them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tidelog_storage.epoch_checks import epoch_at
from tidelog_storage.remote.api import SegmentState
from tidelog_storage.types import UNDEFINED_EPOCH, UNDEFINED_OFFSET, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog_storage.remote.api import RemoteSegment

__all__ = [
    "Lineage",
    "aux_segment",
    "clipped",
    "copied_up_to",
    "epoch_parts",
    "find_log_start",
    "in_lineage",
    "is_copy_of",
    "kept_up_to",
    "part_end",
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


class Lineage:
    """A log's epochs, to judge many segments by; see `in_lineage`."""

    __slots__ = ("_ends", "_entries", "_slots", "log_end_offset")

    def __init__(self, epochs: Sequence[tuple[int, int]], log_end_offset: int) -> None:
        self._entries = without_empty(epochs)
        self._ends = [start for _, start in self._entries[1:]] + [log_end_offset]
        self._slots = {epoch: slot for slot, (epoch, _) in enumerate(self._entries)}
        self.log_end_offset = log_end_offset

    def has(self, segment: RemoteSegment) -> bool:
        """Whether all records of a remote segment, from the log start on, are this log's."""
        if not self._entries or segment.end_offset >= self.log_end_offset:
            return False
        own = segment.epochs if len(segment.epochs) == 1 else self._judged(segment.epochs)
        if not own:
            return False
        epoch, start = own[0]
        first = self._slots.get(epoch)
        if first is None:
            return False
        # It may begin later than here, cut by the roll. The lineage's very first epoch was itself
        # cut, by the log start, so that there the segment may also begin earlier.
        if first and start < self._entries[first][1]:
            return False
        after = first + len(own)
        if own[1:] != self._entries[first + 1 : after]:
            return False
        return segment.end_offset < self._ends[after - 1]

    def _judged(self, epochs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """A segment's epochs but those before the lineage's first: the log start moved past their
        records."""
        first_epoch = self._entries[0][0]
        return tuple(entry for entry in without_empty(epochs) if entry[0] >= first_epoch)


def in_lineage(
    segment: RemoteSegment, epochs: Sequence[tuple[int, int]], log_end_offset: int
) -> bool:
    """Whether all records of a remote segment, from the log start on, are this log's.

    Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
    """
    return Lineage(epochs, log_end_offset).has(segment)


def is_copy_of(one: RemoteSegment, other: RemoteSegment) -> bool:
    """Whether both hold the same records, batch by batch: one of them was copied again."""
    return (
        one.start_offset == other.start_offset
        and one.end_offset == other.end_offset
        and one.size == other.size
        and one.epochs == other.epochs
    )


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
            end = _epoch_end(epochs, epoch, log_end_offset)
            return OffsetAndEpoch(min(highest, end - 1), epoch)
    return OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)


def kept_up_to(
    copied_offset: int,
    epochs: Sequence[tuple[int, int]],
    local_log_start_offset: int,
    log_end_offset: int,
    segment_for: Callable[[int, int], RemoteSegment | None],
) -> int:
    """Of what was copied (`copied_up_to`), up to where all that is local is *still* remote.

    Copies may be gone: deleted with the topic's remote part (KIP-950), or as unreferenced by the
    leader of another branch. What is local only must not be taken for copied: retention would
    delete the last of it. `segment_for` is asked by epoch and offset.
    """
    offset = local_log_start_offset
    while offset <= min(copied_offset, log_end_offset - 1):
        epoch = epoch_at(epochs, offset)
        segment = None if epoch is None else segment_for(epoch, offset)
        if epoch is None or segment is None:
            return offset - 1
        offset = min(part_end(segment, epoch) + 1, _epoch_end(epochs, epoch, log_end_offset))
    return copied_offset


def find_log_start(
    epochs: Sequence[tuple[int, int]],
    local_log_start_offset: int,
    segments: Callable[[int], Iterable[RemoteSegment]],
) -> int:
    """Return where the log begins, including the remote tier, for a new leader, which raises its
    log start to it. The former leader may have expired segments that this one still counts.

    `segments` is asked by epoch (`PartitionMetadata.segments`). The answer is the first remote
    offset of the lineage from which on nothing is missing; without any, the local log start.
    """
    found = sorted(
        [part for entry in _with_ends(epochs) for part in _live_parts(*entry, segments(entry[0]))]
    )
    start: int | None = None
    reached = 0
    for first, after in found:
        if start is None:
            start = first
        elif reached < min(first, local_log_start_offset):  # what is between is nowhere
            start = min(first, local_log_start_offset)
        reached = max(reached, after)
    return local_log_start_offset if start is None or reached < local_log_start_offset else start


def _with_ends(epochs: Sequence[tuple[int, int]]) -> list[tuple[int, int, int | None]]:
    """(epoch, start, end): the end of the newest is not known."""
    ends: list[int | None] = [start for _, start in epochs[1:]]
    return [(*entry, end) for entry, end in zip(epochs, [*ends, None], strict=False)]


def _live_parts(
    epoch: int, start: int, end: int | None, segments: Iterable[RemoteSegment]
) -> list[tuple[int, int]]:
    """[first, after) of what finished segments have of the epoch while the log was in it: a branch
    may have gone on in the epoch after the log had left it."""
    parts = []
    for segment in segments:
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            for own, first, last in epoch_parts(segment):
                after = last + 1 if end is None else min(last + 1, end)
                if own == epoch and max(first, start) < after:
                    parts.append((max(first, start), after))
    return parts


def epoch_parts(segment: RemoteSegment) -> list[tuple[int, int, int]]:
    """(epoch, first offset, last offset) of each epoch's part of a segment.

    An epoch without records has a last offset below its first.
    """
    epochs = segment.epochs
    ends = [start - 1 for _, start in epochs[1:]] + [segment.end_offset]
    return [(epoch, start, end) for (epoch, start), end in zip(epochs, ends, strict=True)]


def part_end(segment: RemoteSegment, epoch: int) -> int:
    """The last offset of an epoch's part of a segment that has the epoch.

    Behind it the segment may be of a dead branch, which took the epoch's end for granted earlier
    than the log: a read that began in the epoch goes no further than this *and* the epoch's end in
    the log's lineage.
    """
    return next(end for own, _, end in epoch_parts(segment) if own == epoch)


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

    `answer` is (epoch, end offset) from the leader's OffsetForLeaderEpoch for
    `local_log_start_epoch - 1`, None if that epoch is 0 and no request was sent.
    """
    if answer is None:
        return local_log_start_epoch
    epoch, end_offset = answer
    return epoch if end_offset > local_log_start_offset - 1 else local_log_start_epoch


def aux_segment(segments: Iterable[RemoteSegment], epoch: int, offset: int) -> RemoteSegment | None:
    """The finished segment that holds `offset` of `epoch` and ends soonest behind it: where a
    follower takes its auxiliary state from.

    Not the one that reaches furthest, as for reads: what lies behind the epoch in a segment may be
    of a dead branch, and the follower begins behind all of it.
    """
    found = [
        segment
        for segment in segments
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        and any(own == epoch and start <= offset <= end for own, start, end in epoch_parts(segment))
    ]
    return min(found, key=lambda segment: segment.end_offset, default=None)


def _epoch_end(epochs: Sequence[tuple[int, int]], epoch: int, log_end_offset: int) -> int:
    after = bisect_right(epochs, epoch, key=_epoch)
    return epochs[after][1] if after < len(epochs) else log_end_offset


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
