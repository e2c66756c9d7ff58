"""Which remote segments belong to a log as it is now, and how far it is copied (KIP-405).

A log's lineage is its leader epoch cache from log start to log end. Leaders roll at different
offsets and unclean elections write other records at the same ones, so several remote segments may
hold one offset: only (epoch, offset) tells records apart. Pure functions; epochs are (epoch, start
offset), both rising, as `LeaderEpochCache.entries` has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog_storage.remote.api import RemoteSegment
    from tidelog_storage.types import OffsetAndEpoch

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
    raise NotImplementedError


def in_lineage(
    segment: RemoteSegment, epochs: Sequence[tuple[int, int]], log_end_offset: int
) -> bool:
    """Whether all records of a remote segment, from the log start on, are this log's.

    Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
    """
    raise NotImplementedError


def copied_up_to(
    epochs: Sequence[tuple[int, int]],
    log_end_offset: int,
    highest_offset: Callable[[int], int | None],
) -> OffsetAndEpoch:
    """The last offset of the log that is remote, and its epoch; (-1, -1) for none.

    `highest_offset` is asked by epoch, newest first (`PartitionMetadata.highest_offset`). Its first
    answer counts, but not past where the epoch ends here: beyond are records of a dead branch.
    """
    raise NotImplementedError


def find_log_start(
    epochs: Sequence[tuple[int, int]],
    local_log_start_offset: int,
    segments: Callable[[int], Iterable[RemoteSegment]],
) -> int:
    """Where the log begins, the remote tier counted in: for a new leader, who raises its log start
    to it if that is lower.

    `segments` is asked by epoch, oldest first (`PartitionMetadata.segments`). Never above the local
    log start, so that no record on this disk is given up.
    """
    raise NotImplementedError


def readable_end(epochs: Sequence[tuple[int, int]], epoch: int, log_end_offset: int) -> int:
    """The first offset that is no longer of `epoch` (which the log has): a remote read that began in
    this epoch must be cut there, because behind it the segment may be of a dead branch."""
    raise NotImplementedError


def clipped(
    epochs: Sequence[tuple[int, int]], start_offset: int, end_offset: int
) -> tuple[tuple[int, int], ...]:
    """The epochs of [start, end), the first one said to begin at `start_offset`: what a remote
    segment's metadata has. Empty epochs stay, as Kafka keeps them."""
    raise NotImplementedError


def target_epoch(
    local_log_start_offset: int, local_log_start_epoch: int, answer: tuple[int, int] | None
) -> int:
    """The epoch of the offset before a leader's local log start, for a follower that builds its
    auxiliary state (section "Followers" of KIP-405).

    `answer` is (epoch, end offset) that the leader told by OffsetForLeaderEpoch for
    `local_log_start_epoch - 1`, None when that epoch is 0 and nobody was asked.
    """
    raise NotImplementedError
