"""Propose changes of the in-sync replicas of partitions that this broker leads.

It owns the timer that finds lagging followers; `replica_manager.py` reports followers that have
fetched and leaders that have recovered. The partition decides the change (`partition.py`), and
`alter_partition.py` sends it to the controller. A lone broker has no followers and needs none of
this.

Kafka: Partition (maybeExpandIsr, maybeShrinkIsr), and isr-expiration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.replication.alter_partition import AlterPartitionManager
    from tidelog.replication.partition import Partition
    from tidelog.replication.purgatory import TimerHandle, Timers
    from tidelog.replication.replica_state import IsrChange

__all__ = ["IsrProposals"]


class IsrProposals:
    """Proposals of one broker. Invariant: the timer is set until `close`."""

    def __init__(
        self,
        changes: AlterPartitionManager,
        partitions: Callable[[], Iterable[Partition]],
        timers: Timers,
        lag_ms_max: int,
    ) -> None:
        """`partitions` returns all current ones of this broker; `lag_ms_max`
        replica.lag.time.max.ms."""
        self._changes = changes
        self._partitions = partitions
        self._timers = timers
        self._pause_s = lag_ms_max / 2000  # half of it, as Kafka
        self._timer = self._set_timer()

    def expand(self, partition: Partition, node_id: int) -> None:
        """Propose that a follower joins, if it may, after it has fetched."""
        change = partition.propose_expansion(node_id)
        if change is not None:  # rare, but checked for each partition of every fetch
            self._changes.submit(change)

    def recovered(self, partition: Partition) -> None:
        """Report the recovery of a leader after an unclean election."""
        self._submit(partition.propose_recovered())

    async def close(self) -> None:
        """Stop the timer and drop unanswered changes."""
        self._timer.cancel()
        await self._changes.close()

    def _set_timer(self) -> TimerHandle:
        return self._timers.call_at(self._timers.time() + self._pause_s, self._shrink)

    def _shrink(self) -> None:
        for partition in self._partitions():
            if partition.remotes:
                self._submit(partition.propose_shrink())
        self._timer = self._set_timer()

    def _submit(self, change: IsrChange | None) -> None:
        if change is not None:
            self._changes.submit(change)
