"""What a leader knows of its followers, and by which rules it judges them.

Pure: time comes as an argument (milliseconds of the clock that never goes back). Kept by
`partition.py`; replication.md 1 (remote log end) and 4 (caught up, eligible).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.metadata.image import BrokerImage

__all__ = ["UNKNOWN_OFFSET", "IsrChange", "ReplicaRules", "ReplicaState"]

UNKNOWN_OFFSET = -1
_LAG_MS_MAX = 30_000
_NEVER_MS = -(1 << 62)  # Kafka's 0: clocks here may have begun a moment ago


class ReplicaRules:
    """What all partitions of one broker share: who is alive, the allowed lag, the clock.

    `brokers` is the newest image's; the replica manager replaces it. `now_ms` never goes back.
    """

    __slots__ = ("brokers", "lag_ms_max", "now_ms")

    def __init__(
        self, now_ms: Callable[[], int] = lambda: 0, lag_ms_max: int = _LAG_MS_MAX
    ) -> None:
        """`lag_ms_max`: replica.lag.time.max.ms."""
        self.brokers: Mapping[int, BrokerImage] = MappingProxyType({})
        self.lag_ms_max = lag_ms_max
        self.now_ms = now_ms

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def is_eligible(self, node_id: int, replica: ReplicaState) -> bool:
        """Whether a follower may join the in-sync replicas (KIP-841, KIP-903): alive, staying, and
        the incarnation that the cluster knows."""
        broker = self.brokers.get(node_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and replica.log_end_offset >= 0  # it has fetched from this leader
            and replica.broker_epoch in (-1, broker.epoch)
        )


class ReplicaState:
    """One follower as its fetches told.

    `log_end_offset` and `log_start_offset` are UNKNOWN_OFFSET until it fetches after an election;
    `broker_epoch` is -1 until it sends one, and never one that the cluster has not given.
    `last_caught_up_ms` never goes back between elections.
    """

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = _NEVER_MS
        self.last_caught_up_ms = _NEVER_MS
        self.broker_epoch = -1

    def reset(self, *, in_sync: bool, new_leader: bool, leader_end: int, now_ms: int) -> None:
        """A leader epoch begins. A leader that stays keeps what it knew of log ends; a new one
        knows nothing, and gives members of the ISR the whole allowed lag."""
        self.last_caught_up_ms = now_ms if in_sync else _NEVER_MS
        if new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = _NEVER_MS
            self.broker_epoch = -1
        else:
            self.last_fetch_leader_end_offset = leader_end
            self.last_fetch_ms = self.last_caught_up_ms

    def record_fetch(
        self, fetch_offset: int, log_start: int, *, leader_end: int, now_ms: int, broker_epoch: int
    ) -> None:
        """Note that it holds everything below `fetch_offset`."""
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start
        self.last_fetch_leader_end_offset = leader_end
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        """At the leader's end now, or not long ago."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max


class IsrChange:
    """In-sync replicas that a leader asked the controller for; compared by identity.

    `members`: (broker id, broker epoch), epoch -1 where none is known. `joining`: the broker that
    an expansion adds, -1 for a shrink or for "recovered", which ask no more of the high watermark.
    `partition` is the one that proposed it.
    """

    __slots__ = ("joining", "leader_epoch", "members", "partition", "partition_epoch")

    def __init__(
        self,
        partition: Any,
        members: tuple[tuple[int, int], ...],
        *,
        leader_epoch: int,
        partition_epoch: int,
        joining: int = -1,
    ) -> None:
        self.partition = partition
        self.members = members
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.joining = joining

    @property
    def isr(self) -> tuple[int, ...]:
        """The ids alone."""
        return tuple(node_id for node_id, _ in self.members)
