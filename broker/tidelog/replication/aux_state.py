"""Build the state of a follower whose next offset is only in the remote tier (KIP-405, KIP-1023).

For partitions in state BUILDING_REMOTE_LOG_AUX. Each has its own task, because the remote tier may
be slow or away. The leader returns where its local log begins. The state before that offset (leader
epochs, producers) comes from the remote segment that ends there. The log is not changed until all
of it has arrived. Kafka: TierStateMachine.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.network.peers import PeerError
from tidelog.replication.fetch_state import Event, State
from tidelog.replication.leader_end_point import offset_at
from tidelog.replication.partition import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    Partition,
)
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.replication.fetch_state import FetchState
    from tidelog.replication.leader_end_point import LeaderEndPoint
    from tidelog.replication.starts import Following
    from tidelog_storage.types import OffsetAndEpoch

__all__ = ["AuxState", "AuxStateBuilder", "AuxStateOf", "tiered_start"]

_log = logging.getLogger(__name__)


class AuxState(NamedTuple):
    """The state from a remote segment that a replica needs to begin after it.

    `next_offset` is the end of the segment, exclusive; `epochs` are (leader epoch, start) of the
    log up to there; `snapshot` is the producer snapshot at its end.
    """

    next_offset: int
    epochs: Sequence[tuple[int, int]]
    snapshot: bytes


AuxStateOf = Callable[[Partition, int, int], Awaitable[AuxState]]
"""(partition, leader epoch, offset) -> the state after the remote segment that holds that offset of
that epoch. Any exception means: retry later."""


def tiered_start(
    earliest_local: OffsetAndEpoch, log_start: int, pending: OffsetAndEpoch | None
) -> OffsetAndEpoch | None:
    """Return where to begin, with the epoch of that offset; None if the leader does not know yet.

    `pending` is the leader's earliest pending upload, None if not requested (KIP-1023); -1 is
    unknown, and it may be outdated.
    """
    if pending is None or pending.offset <= earliest_local.offset:
        if pending is not None and pending.offset < 0 and earliest_local.offset != log_start:
            return None
        return earliest_local
    return pending


class AuxStateBuilder:
    """Builds the state of one fetcher's partitions."""

    def __init__(
        self,
        following: Following,
        leader: LeaderEndPoint,
        aux_state_of: AuxStateOf | None,
        from_last_tiered: Callable[[], bool],
    ) -> None:
        """`aux_state_of` is that of the remote tier, None without one; `from_last_tiered` as in
        `starts.py`."""
        self._following = following
        self._leader = leader
        self._aux_state_of = aux_state_of
        self._from_last_tiered = from_last_tiered

    async def build(self, state: FetchState) -> None:
        """Build the state; afterwards the partition fetches, waits or has failed."""
        try:
            await self._build(state)
        except PeerError as error:
            self._fail(state, str(error))
        except Exception as error:  # noqa: BLE001 - of any plug-in: the other partitions go on
            _log.info("%s: remote state", state.partition.topic_partition, exc_info=True)
            self._fail(state, f"{type(error).__name__}: {error}")

    def _fail(self, state: FetchState, why: str) -> None:
        if self._is_building(state):
            self._following.fail(state, why)

    def _is_building(self, state: FetchState) -> bool:
        return self._following.is_current(state) and state.state is State.BUILDING_REMOTE_LOG_AUX

    async def _build(self, state: FetchState) -> None:
        leader = self._leader
        log = state.partition.log
        earliest_local = await offset_at(leader, state, EARLIEST_LOCAL_TIMESTAMP)
        log_start = (await offset_at(leader, state, EARLIEST_TIMESTAMP)).offset
        pending = None
        if log.log_end_offset == 0 and self._from_last_tiered():
            pending = await offset_at(leader, state, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
        start = tiered_start(earliest_local, log_start, pending)
        if start is None:
            self._fail(state, ErrorCode.OFFSET_NOT_AVAILABLE.name)
            return
        aux: AuxState | None = None
        if start.offset > log_start:
            if self._aux_state_of is None:
                self._fail(state, "there is no remote tier here")
                return
            epoch = await self._epoch_before(state, start)
            aux = await self._aux_state_of(state.partition, epoch, start.offset - 1)
        if self._is_building(state):
            # the log start may have passed it between the answers
            offset = max(start.offset, log_start)
            self._following.guarded(state, self._begin, state, offset, log_start, aux)

    async def _epoch_before(self, state: FetchState, start: OffsetAndEpoch) -> int:
        """Return the leader epoch of the previous offset."""
        if start.leader_epoch < 0:
            raise PeerError(f"the leader epoch of offset {start.offset} is not known")
        from tidelog_storage.remote.lineage import target_epoch  # noqa: PLC0415 - tiers alone

        answer = None
        if start.leader_epoch > 0:
            end = await self._leader.end_of_epoch(state, start.leader_epoch - 1)
            answer = end.leader_epoch, end.offset
        return target_epoch(start.offset, start.leader_epoch, answer)

    def _begin(self, state: FetchState, offset: int, log_start: int, aux: AuxState | None) -> bool:
        partition, now_ms = state.partition, self._following.now_ms()
        end = partition.log.log_end_offset
        if aux is not None:
            offset = aux.next_offset
        if offset < end or (offset == end and aux is None and end):
            self._following.fail(state, "the leader has the offset now")
            return False
        if aux is not None and not partition.log.is_tiered:
            # It left meanwhile (KIP-950): a log without a tier begins with its first segment.
            self._following.fail(state, "the topic has left the remote tier")
            return False
        _log.info(
            "%s: the local log restarts at %d; offsets from %d up to it are in the remote tier",
            partition.topic_partition,
            offset,
            log_start,
        )
        log = partition.followed_log(state.leader_epoch)
        if aux is None:
            log.truncate_fully_and_start_at(offset, now_ms=now_ms)
        else:
            log.restart_from_remote(
                offset, log_start=log_start, epochs=aux.epochs, snapshot=aux.snapshot, now_ms=now_ms
            )
        state.step(Event.BUILT)
        self._following.fetch_soon(state)
        return True
