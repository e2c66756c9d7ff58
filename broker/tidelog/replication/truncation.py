"""Where a follower cuts its log when the leader's goes another way, and where it goes on.

Pure: offsets and epochs in, a decision out. Asked by `replica_fetcher.py`, which does the cutting.
replication.md 7.2 (KIP-101, KIP-279, KIP-595) and 7.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import read_header
from tidelog_storage.types import UNDEFINED_EPOCH, UNDEFINED_OFFSET, Records

if TYPE_CHECKING:
    from tidelog_storage.log import Log
    from tidelog_storage.types import OffsetAndEpoch

__all__ = ["StartOffset", "Truncation", "batch_boundary", "follower_truncation", "start_offset"]


class Truncation(NamedTuple):
    """Cut everything from `offset` on. Unless `done`, the leader has to be asked again, with the
    last epoch that is left then."""

    offset: int
    done: bool


class StartOffset(NamedTuple):
    """Where a follower goes on whose offset the leader lacks.

    `truncate_to`: cut its log there first; `restart`: drop all of it first. Neither: its log is
    good as it is.
    """

    offset: int
    truncate_to: int | None = None
    restart: bool = False


def follower_truncation(
    leader_end: OffsetAndEpoch,
    own_end: OffsetAndEpoch,
    *,
    log_end_offset: int,
    high_watermark: int,
) -> Truncation:
    """How far to cut, after the leader told where the largest epoch that it shares with our last
    one ends in its log.

    `own_end` is where the epoch that the leader named ends here. If it is one that we never had,
    two elections have passed since our logs were one (KIP-279): we cut what came after the largest
    epoch below it and ask again, so each round drops at least one epoch.
    """
    if leader_end.offset == UNDEFINED_OFFSET:
        return Truncation(high_watermark, done=True)  # a leader that knows no epochs
    if leader_end.leader_epoch == UNDEFINED_EPOCH or own_end.offset == UNDEFINED_OFFSET:
        return Truncation(min(leader_end.offset, log_end_offset), done=True)
    if own_end.leader_epoch != leader_end.leader_epoch:
        return Truncation(min(own_end.offset, log_end_offset), done=False)
    return Truncation(min(own_end.offset, leader_end.offset, log_end_offset), done=True)


def start_offset(
    log_end_offset: int, *, leader_log_end: int, leader_log_start: int | None = None
) -> StartOffset | None:
    """Where to go on after OFFSET_OUT_OF_RANGE; None if it takes the leader's log start to tell.

    A leader whose log ends before ours was elected uncleanly. Else our log ends before its begins
    (we were away for longer than its retention), or its answer is out of date by now.
    """
    if leader_log_end < log_end_offset:
        return StartOffset(leader_log_end, truncate_to=leader_log_end)
    if leader_log_start is None:
        return None
    if leader_log_start > log_end_offset:
        return StartOffset(leader_log_start, restart=True)
    return StartOffset(log_end_offset)


def batch_boundary(log: Log, offset: int) -> int:
    """`offset`, or the first offset of the batch that it lies in the middle of: batches are kept
    or dropped whole, and what is dropped has to be fetched again."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return offset
    outcome = log.read(offset, 1, upper_bound=log.log_end_offset, min_one_batch=True)
    if not isinstance(outcome, Records) or not outcome.size:
        return offset
    return max(log.log_start_offset, min(offset, read_header(outcome.parts[0]).base_offset))
