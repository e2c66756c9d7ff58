"""Find the fetch offset of a follower after OFFSET_OUT_OF_RANGE, by asking the leader.

For partitions in state TRUNCATING. One round at a time covers all of them, in a task beside the
fetcher's loop; afterwards each of them fetches, waits, has failed, or builds its state from the
remote tier (`aux_state.py`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from tidelog.network.peers import PeerError
from tidelog.replication.fetch_state import Event, State, event_of
from tidelog.replication.leader_end_point import key_of
from tidelog.replication.partition import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.replication.truncation import start_offset
from tidelog_protocol.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidelog.replication.fetch_state import FetchState
    from tidelog.replication.fetcher_session import Key
    from tidelog.replication.leader_end_point import LeaderEndPoint

__all__ = ["Following", "StartFinder"]

_log = logging.getLogger(__name__)


class Following(Protocol):
    """The operations of a fetcher on one partition that finding its offset needs."""

    def is_current(self, state: FetchState) -> bool:
        """Return whether the partition is still followed in this state."""
        ...

    def now_ms(self) -> int:
        """Return the wall time."""
        ...

    def cut(self, state: FetchState, offset: int) -> None:
        """Truncate the log to `offset`."""
        ...

    def fail(self, state: FetchState, why: str, *, fatal: bool = False) -> None:
        """Leave the partition out for a while, or until newer metadata comes."""
        ...

    def guarded(self, state: FetchState, work: Callable[..., bool], *args: Any) -> bool:
        """Run `work(*args)`; a failure affects only this partition and returns False."""
        ...

    def fetch_soon(self, state: FetchState) -> None:
        """Fetch or check a partition soon."""
        ...


class StartFinder:
    """Finds starts for the partitions of one fetcher."""

    def __init__(
        self,
        following: Following,
        leader: LeaderEndPoint,
        from_last_tiered: Callable[[], bool],
    ) -> None:
        """`from_last_tiered` returns the current follower.fetch.last.tiered.offset.enable."""
        self._following = following
        self._leader = leader
        self._from_last_tiered = from_last_tiered

    async def find(self, lost: list[FetchState]) -> None:
        """Run one round for all of `lost`."""
        try:
            ends = await self._leader.list_offsets(lost, LATEST_TIMESTAMP)
            undecided = [state for state in lost if not self._go_on(state, ends, None)]
            if undecided:
                starts = await self._leader.list_offsets(undecided, EARLIEST_TIMESTAMP)
                for state in undecided:
                    self._go_on(state, ends, starts)
        except PeerError as error:
            for state in lost:
                if self._is_lost(state):
                    self._following.fail(state, str(error))

    def _is_lost(self, state: FetchState) -> bool:
        return self._following.is_current(state) and state.state is State.TRUNCATING

    def _go_on(
        self, state: FetchState, ends: dict[Key, Any], starts: dict[Key, Any] | None
    ) -> bool:
        """Decide by the leader's answers so far; False if more are needed."""
        if not self._is_lost(state):
            return True
        key = key_of(state)
        for answers in (ends, starts):
            if answers is not None:
                answer = answers.get(key)
                error = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
                if error:
                    fatal = event_of(error) is Event.FATAL
                    self._following.fail(state, error_name(error), fatal=fatal)
                    return True
        start = None if starts is None else starts[key].offset
        self._following.guarded(state, self._start_at, state, ends[key].offset, start)
        return not self._is_lost(state)

    def _start_at(self, state: FetchState, leader_end: int, leader_start: int | None) -> bool:
        partition = state.partition
        end = partition.log.log_end_offset
        start = start_offset(end, leader_log_end=leader_end, leader_log_start=leader_start)
        if start is None:
            return False
        if start.truncate_to is not None:
            self._following.cut(state, start.truncate_to)
        elif self._leaves_out_remote(state, leader_end, leader_start):
            state.step(Event.MOVED_TO_TIER)
            self._following.fetch_soon(state)
            return True
        elif start.restart:
            _log.warning(
                "%s: the local log restarts at %d", partition.topic_partition, start.offset
            )
            log = partition.followed_log(state.leader_epoch)
            log.truncate_fully_and_start_at(start.offset, now_ms=self._following.now_ms())
        state.step(Event.TRUNCATED)
        if partition.log.log_end_offset == end:
            self._following.fail(state, "the leader has the offset now")
        else:
            self._following.fetch_soon(state)
        return True

    def _leaves_out_remote(
        self, state: FetchState, leader_end: int, leader_start: int | None
    ) -> bool:
        """Return whether an empty follower of a non-empty leader begins after the remote part
        (KIP-1023)."""
        log = state.partition.log
        return (
            log.is_tiered
            and log.log_end_offset == 0
            and leader_start is not None
            and leader_end > leader_start
            and self._from_last_tiered()
        )
