"""Which remote segments a leader deletes, and where that leaves the log start (KIP-405).

Pure: `tidelog.remote.tasks` gives frozen values and carries the plan out: it raises the log start
first, so that no reader is sent to what is going, then deletes one by one, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tidelog_storage.config import LogConfig
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["ExpiryPlan", "RemoteRetention", "local_only_bytes", "plan"]


class RemoteRetention(NamedTuple):
    """The limits of a partition's whole log; -1 unlimited."""

    retention_ms: int = -1
    retention_bytes: int = -1

    @classmethod
    def of(cls, config: LogConfig) -> RemoteRetention:
        """A topic's limits. An empty `cleanup.policy` keeps the remote part for ever, as Kafka
        documents it (its code deletes all the same)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What one pass does. `new_log_start`: at least the one given; raise the log's to it first."""

    new_log_start: int
    deletions: tuple[RemoteSegment, ...]


def plan(
    segments: Iterable[RemoteSegment],
    epochs: Sequence[tuple[int, int]],
    *,
    log_start_offset: int,
    log_end_offset: int,
    local_only_bytes: int,
    retention: RemoteRetention,
    now_ms: int,
    copying: Collection[bytes] = (),
) -> ExpiryPlan:
    """The remote segments to delete. `segments`: all of `PartitionMetadata.segments()`; `epochs`:
    the leader's; `copying`: ids of copies that run right now on this broker."""
    raise NotImplementedError


def local_only_bytes(segments: Iterable[tuple[int, int]], highest_remote_offset: int) -> int:
    """Bytes of the local segments, given as (base offset, size), of which nothing is remote."""
    raise NotImplementedError
