"""The leader of a future replica: the current replica on the same broker, without a socket.

A `ReplicaFetcher` copies a replica that moves to another log directory, so that the same rules
truncate it, restart it and build it from the remote tier. This is the fetcher's end point: it
answers from this broker's replicas, leaders and followers. It copies one partition at a time, in
the order of the requests, like Kafka's LocalLeaderEndPoint, and reports one that is caught up to
`log_dir_moves.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.network.peers import PeerError
from tidelog.replication.fetch_sessions import INITIAL_EPOCH, FetchedPartition
from tidelog.replication.leader_end_point import key_of
from tidelog.replication.reads import LOG_END, FetchParams
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchResponse, ListOffsetsResponse
from tidelog_storage.types import OffsetAndTimestamp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from tidelog.replication.fetch_state import FetchState
    from tidelog.replication.fetcher_session import Key
    from tidelog.replication.partition import Partition
    from tidelog.replication.reads import ReadResult
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Clock
    from tidelog_protocol.messages.data import FetchRequest
    from tidelog_storage.types import OffsetAndEpoch

__all__ = ["FUTURE_REPLICA_ID", "LocalLeader", "MovePace"]

FUTURE_REPLICA_ID = -3  # Kafka's FetchRequest.FUTURE_LOCAL_REPLICA_ID
_SESSION_ID = 1
_SLEEP_S_MAX = 0.1  # after one read; the loop gets as much time for others as the read took
_LOOK_S_MAX = 1.0  # between checks of a quota that may have been raised
_WAIT_S_MIN = 0.001

_FetchTopic = FetchResponse.FetchableTopicResponse
_Offset = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse


class MovePace:
    """Limits the moves of all replicas of this broker to `bytes_per_second`."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], int]) -> None:
        """`bytes_per_second` returns the current replica.alter.log.dirs.io.max.bytes.per.second."""
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._owed_bytes = 0.0  # bytes above the limit so far
        self._owed_at = clock.monotonic()

    def record(self, size: int) -> None:
        """Count copied bytes."""
        self._owed_bytes += size

    async def wait(self) -> None:
        """Wait until the limit allows more."""
        seconds = self._seconds_to_wait()
        while seconds > 0:
            await asyncio.sleep(min(seconds, _LOOK_S_MAX))
            seconds = self._seconds_to_wait()

    def _seconds_to_wait(self) -> float:
        now, rate = self._clock.monotonic(), self._bytes_per_second()
        self._owed_bytes = max(0.0, self._owed_bytes - rate * (now - self._owed_at))
        self._owed_at = now
        seconds = self._owed_bytes / rate if rate > 0 else _LOOK_S_MAX
        # Waits too short for the clock are carried forward.
        return seconds if self._owed_bytes and seconds > _WAIT_S_MIN else 0.0


class LocalLeader:
    """One fetcher's end point. Invariant: `_asked` has the requests of its fetch session, oldest
    first."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        pace: MovePace,
        on_caught_up: Callable[[Partition], Awaitable[None]],
    ) -> None:
        """`on_caught_up` is awaited when a future replica has everything of the current one."""
        self._replicas = replicas
        self._clock = clock
        self._pace = pace
        self._on_caught_up = on_caught_up
        self._asked: dict[Key, FetchedPartition] = {}
        self._busy_since: float | None = None

    def close(self) -> None:
        """Do nothing: there is no connection."""

    # ---- Fetch --------------------------------------------------------------------------------

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Copy some of the first partition of the session, or report that it has caught up."""
        self._note(request)
        key, asked = next(iter(self._asked.items()))
        partition = self._current(asked)
        if not isinstance(partition, ErrorCode) and self._has_all(partition, asked):
            await self._on_caught_up(partition)
            return FetchResponse(session_id=_SESSION_ID, responses=[])
        # New records are read, appended and checked again without a pause, so that the copy catches
        # up with a partition under constant writes.
        await self._let_others()
        result = self._read(asked, asked.max_bytes, min_one_batch=True)
        self._pace.record(result.size)
        return FetchResponse(
            session_id=_SESSION_ID,
            responses=[_FetchTopic(topic_id=key[0], partitions=[_fetched(asked, result)])],
        )

    def _note(self, request: FetchRequest) -> None:
        """Update the requests of the session."""
        if request.session_epoch == INITIAL_EPOCH:
            self._asked.clear()
        for topic in request.topics:
            name = self._name(topic.topic_id)
            for one in topic.partitions:
                asked = FetchedPartition(name, topic.topic_id, one)
                self._asked[topic.topic_id, one.partition] = asked
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                self._asked.pop((gone.topic_id, index), None)

    def _name(self, topic_id: bytes) -> str | None:
        image = self._replicas.image
        return None if image is None else image.topic_names.get(topic_id)

    def _current(self, asked: FetchedPartition) -> Partition | ErrorCode:
        return self._replicas.partition(asked.topic or "", asked.partition)

    def _has_all(self, partition: Partition, asked: FetchedPartition) -> bool:
        """Return whether the future log equals the current one."""
        if asked.fetch_offset != partition.log.log_end_offset:
            return False
        result = self._read(asked, 0, min_one_batch=False)
        return not result.error and result.diverging is None

    def _read(self, asked: FetchedPartition, max_bytes: int, *, min_one_batch: bool) -> ReadResult:
        params = FetchParams(replica_id=FUTURE_REPLICA_ID, isolation=LOG_END, leader_only=False)
        return self._replicas.read(
            [asked], params, max_bytes=max_bytes, min_one_batch=min_one_batch
        )[0]

    async def _let_others(self) -> None:
        now = self._clock.monotonic()
        busy_s = 0.0 if self._busy_since is None else now - self._busy_since
        await asyncio.sleep(min(busy_s, _SLEEP_S_MAX))
        await self._pace.wait()
        self._busy_since = self._clock.monotonic()

    # ---- other requests -----------------------------------------------------------------------

    async def list_offsets(self, states: Sequence[FetchState], timestamp: int) -> dict[Key, Any]:
        """See `LeaderEndPoint`."""
        return {key_of(state): self._offset(state, timestamp) for state in states}

    def _offset(self, state: FetchState, timestamp: int) -> _Offset:
        partition = self._replicas.partition(*state.partition.topic_partition)
        if isinstance(partition, ErrorCode):
            return _Offset(error_code=partition)
        found = partition.offset_for(
            timestamp,
            isolation=LOG_END,
            current_leader_epoch=state.leader_epoch,
            leader_only=False,
        )
        if isinstance(found, ErrorCode):
            return _Offset(error_code=found)
        assert isinstance(found, OffsetAndTimestamp)  # never a search by timestamp
        return _Offset(offset=found.offset, leader_epoch=found.leader_epoch)

    async def end_of_epoch(self, state: FetchState, leader_epoch: int) -> OffsetAndEpoch:
        """See `LeaderEndPoint`."""
        partition = self._replicas.partition(*state.partition.topic_partition)
        if isinstance(partition, ErrorCode):
            raise PeerError(partition.name)
        error = partition.leader_error(state.leader_epoch, leader_only=False)
        if error is not None:
            raise PeerError(error.name)
        return partition.log.end_offset_for_epoch(leader_epoch)


def _fetched(asked: FetchedPartition, result: ReadResult) -> _FetchTopic.PartitionData:
    """Return the answer for one partition, like a leader's to a follower."""
    data = _FetchTopic.PartitionData(
        partition_index=asked.partition,
        error_code=result.error,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        records=_joined(result),
    )
    if result.remote is not None:
        data.error_code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    if result.diverging is not None:
        data.diverging_epoch = _FetchTopic.PartitionData.EpochEndOffset(
            epoch=result.diverging.leader_epoch, end_offset=result.diverging.offset
        )
    return data


def _joined(result: ReadResult) -> memoryview | None:
    if not result.size:
        return None
    parts = result.records
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
