"""The parameters of a Fetch for every partition, and the result of one partition.

Values only; `api/fetch_delayed.py` creates the parameters and `partition.py` the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.types import AbortedTransaction, InRemoteTier, OffsetAndEpoch

__all__ = [
    "HIGH_WATERMARK",
    "LOG_END",
    "TRANSACTION_COMMITTED",
    "FetchParams",
    "ReadResult",
    "Redirection",
    "RemotePart",
    "SearchRemote",
]

# Upper bound of a read (Kafka's FetchIsolation).
LOG_END = 0  # replicas
HIGH_WATERMARK = 1  # consumers
TRANSACTION_COMMITTED = 2  # consumers with read_committed: the last stable offset

_NO_RECORDS: tuple[bytes, ...] = ()


class FetchParams:
    """The parameters of a Fetch. `replica_id` -1 is a consumer, >= 0 a follower.

    `replica_epoch` is the follower's broker epoch, -1 if it sent none; `rack` is the consumer's,
    empty if the leader should serve it anywhere (KIP-392). `moved` are the partitions whose
    watermarks the fetch of a follower may have moved.
    """

    __slots__ = (
        "isolation",
        "leader_only",
        "moved",
        "rack",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        *,
        replica_id: int = -1,
        replica_epoch: int = -1,
        isolation: int = HIGH_WATERMARK,
        leader_only: bool = True,
        rack: str = "",
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.isolation = isolation
        self.leader_only = leader_only
        self.rack = rack
        self.moved: list[tuple[str, int]] = []


class ReadResult:
    """One partition's part of a Fetch answer; offsets are -1 beside an error.

    `records` are `size` bytes of whole batches in one or more buffers. `aborted` is None unless the
    reader is read_committed. `diverging` is where the reader's log diverges from this one.
    `preferred_replica`: see `Redirection`. `remote`: see `RemotePart`.
    """

    preferred_replica = -1
    remote: InRemoteTier | None = None

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "records",
        "size",
    )

    def __init__(
        self,
        error: int,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        aborted: Sequence[AbortedTransaction] | None = None,
    ) -> None:
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records: Sequence[bytes | memoryview] = _NO_RECORDS
        self.size = 0
        self.aborted = aborted
        self.diverging: OffsetAndEpoch | None = None

    def refuse(self, error: int) -> None:
        """Replace the result by an error."""
        self.error = error
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.records = _NO_RECORDS
        self.size = 0
        self.aborted = None
        self.diverging = None


class Redirection(ReadResult):
    """A redirection of a consumer to `preferred_replica` (KIP-392): offsets, and no records."""

    __slots__ = ("preferred_replica",)

    def __init__(self, result: ReadResult, preferred_replica: int) -> None:
        super().__init__(
            0, result.high_watermark, result.last_stable_offset, result.log_start_offset
        )
        self.preferred_replica = preferred_replica


class RemotePart(ReadResult):
    """A read that continues in the remote tier: offsets, and no records."""

    __slots__ = ("remote",)

    def __init__(self, result: ReadResult, remote: InRemoteTier) -> None:
        super().__init__(
            0,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            result.aborted,
        )
        self.remote = remote


class SearchRemote(NamedTuple):
    """A search by time that begins in the remote tier: between log start and local log start.

    If nothing there is as new as `timestamp`, the local part is searched
    (`Partition.offset_for(..., local_only=True)`).
    """

    timestamp: int
    log_start_offset: int
    local_log_start_offset: int
