"""When this broker asks for other in-sync replicas of a partition that it leads.

Owns the timer that looks for followers who lag; `replica_manager.py` tells of followers that have
fetched and of leaders that have recovered. Which change is right is the partition's to decide
(`replica.py`), how it gets to the controller `alter_partition.py`'s. Made when there is a
controller to ask: a broker that is alone has no followers.

replication.md 4. Kafka: Partition (maybeExpandIsr, maybeShrinkIsr), and isr-expiration.
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
        """`partitions` are all of this broker, as of now; `lag_ms_max` replica.lag.time.max.ms."""
        self._changes = changes
        self._partitions = partitions
        self._timers = timers
        self._pause_s = lag_ms_max / 2000  # half of it, as Kafka
        self._timer = self._set_timer()

    def expand(self, partition: Partition, node_id: int) -> None:
        """A follower has fetched: it joins, if it may."""
        change = partition.propose_expansion(node_id)
        if change is not None:  # seldom, and asked for each partition of every such fetch
            self._changes.submit(change)

    def recovered(self, partition: Partition) -> None:
        """The partition says after an unclean election that it is led again."""
        self._submit(partition.propose_recovered())

    async def close(self) -> None:
        """Look for nobody any more, and give up what is not answered."""
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
