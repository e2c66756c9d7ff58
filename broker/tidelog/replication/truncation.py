"""Where a follower truncates a diverging log, and where it continues.

Pure: offsets and epochs in, a decision out. `replica_fetcher.py` calls it and truncates (KIP-101,
KIP-279, KIP-595).
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
    """Truncate to `offset`. Unless `done`, ask the leader again, with the last epoch that is
    left."""

    offset: int
    done: bool


class StartOffset(NamedTuple):
    """Where a follower continues after OFFSET_OUT_OF_RANGE.

    `truncate_to`: truncate its log there first; `restart`: drop all of it first. Neither: the log
    is kept.
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
    """Return how far to truncate, given the end of the largest shared epoch in the leader's log.

    `own_end` is the end of the leader's epoch in this log. If this log never had that epoch, the
    logs diverged two elections ago (KIP-279): truncate everything after the largest epoch below it
    and ask again, so that each round drops at least one epoch.
    """
    if leader_end.offset == UNDEFINED_OFFSET:
        return Truncation(high_watermark, done=True)  # a leader without epochs
    if leader_end.leader_epoch == UNDEFINED_EPOCH or own_end.offset == UNDEFINED_OFFSET:
        return Truncation(min(leader_end.offset, log_end_offset), done=True)
    if own_end.leader_epoch != leader_end.leader_epoch:
        return Truncation(min(own_end.offset, log_end_offset), done=False)
    return Truncation(min(own_end.offset, leader_end.offset, log_end_offset), done=True)


def start_offset(
    log_end_offset: int, *, leader_log_end: int, leader_log_start: int | None = None
) -> StartOffset | None:
    """Return where to continue after OFFSET_OUT_OF_RANGE; None if the leader's log start is needed.

    A leader whose log ends before this one was elected uncleanly. Otherwise this log ends before
    the leader's begins (the broker was away for longer than the retention), or the answer is
    outdated.
    """
    if leader_log_end < log_end_offset:
        return StartOffset(leader_log_end, truncate_to=leader_log_end)
    if leader_log_start is None:
        return None
    if leader_log_start > log_end_offset:
        return StartOffset(leader_log_start, restart=True)
    return StartOffset(log_end_offset)


def batch_boundary(log: Log, offset: int) -> int:
    """Return `offset`, or the first offset of its batch: batches are kept or dropped whole, and
    dropped ones are fetched again."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return offset
    outcome = log.read(offset, 1, upper_bound=log.log_end_offset, min_one_batch=True)
    if not isinstance(outcome, Records) or not outcome.size:
        return offset
    return max(log.log_start_offset, min(offset, read_header(outcome.parts[0]).base_offset))
