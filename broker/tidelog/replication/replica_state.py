"""A leader's state of its followers, and the rules for them.

Pure: time comes as an argument (milliseconds of the monotonic clock). `partition.py` keeps it.
Kafka: ReplicaState, Partition (isReplicaIsrEligible).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.image import BrokerImage
    from tidelog_storage.segment import Segment
    from tidelog_storage.types import StorageError

__all__ = ["UNKNOWN_OFFSET", "IsrChange", "ReplicaRules", "ReplicaState"]

UNKNOWN_OFFSET = -1
_LAG_MS_MAX = 30_000
_NEVER_MS = -(1 << 62)  # Kafka's 0: clocks here may have begun a moment ago


class ReplicaRules:
    """Shared by all partitions of one broker: live brokers, the allowed lag, the clock.

    `brokers` is the newest image's; the replica manager replaces it. `now_ms` never goes back.
    `append_failed` is called with a partition whose log refused its leader's append. `prove` has a
    segment's transaction index compared off the loop, if it can.
    """

    __slots__ = ("append_failed", "brokers", "lag_ms_max", "now_ms", "prove")

    def __init__(
        self, now_ms: Callable[[], int] = lambda: 0, lag_ms_max: int = _LAG_MS_MAX
    ) -> None:
        """`lag_ms_max`: replica.lag.time.max.ms."""
        self.brokers: Mapping[int, BrokerImage] = MappingProxyType({})
        self.lag_ms_max = lag_ms_max
        self.now_ms = now_ms
        self.append_failed: Callable[[Any, StorageError], None] | None = None
        self.prove: Callable[[Any, Segment], bool] | None = None

    def is_alive(self, node_id: int) -> bool:
        """Return whether a broker is registered and not fenced."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def is_eligible(self, node_id: int, replica: ReplicaState) -> bool:
        """Return whether a follower may join the in-sync replicas (KIP-841, KIP-903): it is alive,
        not shutting down, and the registered incarnation."""
        broker = self.brokers.get(node_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and replica.log_end_offset >= 0  # it has fetched from this leader
            and replica.broker_epoch in (-1, broker.epoch)
        )

    def has_online(self, node_id: int, replica: ReplicaState) -> bool:
        """Return whether the log directory of a follower is online, as far as it is known."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.has_online(replica.directory)


class ReplicaState:
    """One follower, by its fetches.

    `log_end_offset` and `log_start_offset` are UNKNOWN_OFFSET until it fetches after an election;
    `broker_epoch` is -1 until it sends one, and always one that the cluster assigned.
    `last_caught_up_ms` never goes back between elections. `directory` is its log directory in the
    metadata, zero if unknown.
    """

    __slots__ = (
        "broker_epoch",
        "directory",
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
        self.directory = ZERO_UUID

    def reset(self, *, in_sync: bool, new_leader: bool, leader_end: int, now_ms: int) -> None:
        """Begin a leader epoch. A leader that stays keeps the known log ends; a new one knows none,
        and allows members of the ISR the full lag."""
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
        """Record that it has everything below `fetch_offset`."""
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
        """Return whether it is at the leader's end, now or recently."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max


class IsrChange(NamedTuple):
    """A proposed change of the in-sync replicas; compared by identity.

    `members`: (broker id, broker epoch), epoch -1 where none is known. `joining`: the broker that
    an expansion adds, -1 for a shrink or for "recovered", which do not hold back the high
    watermark. `is_shrink` tells these two apart. `partition` is the one that proposed it.
    """

    partition: Any
    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int
    joining: int = -1
    is_shrink: bool = False

    @property
    def isr(self) -> tuple[int, ...]:
        """Return only the ids."""
        return tuple(node_id for node_id, _ in self.members)
