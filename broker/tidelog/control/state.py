"""The state of a cluster as values, for tests to look at.

Offsets are Kafka's: `log_end_offset` is the offset of the next record, `end_offset` of a local
segment too; that of a remote segment is its last one, as in KIP-405. Times are in ms since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

__all__ = [
    "BrokerPart",
    "ClusterState",
    "CommittedOffset",
    "ConnectionState",
    "EpochState",
    "GroupState",
    "HostedLog",
    "LogState",
    "MemberState",
    "PartitionName",
    "PartitionState",
    "ProducerState",
    "ReadState",
    "RemoteSegmentState",
    "RunningBrokerState",
    "SegmentState",
    "ShareState",
    "TopicState",
    "TransactionState",
]

T = TypeVar("T")


@dataclass(frozen=True)
class EpochState:
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


@dataclass(frozen=True)
class SegmentState:
    """A segment on a broker's disk. Only the last one is active."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    is_active: bool


@dataclass(frozen=True)
class RemoteSegmentState:
    """A segment in the remote tier; `state` is Kafka's, such as COPY_SEGMENT_FINISHED."""

    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    state: str
    broker: int
    epochs: tuple[EpochState, ...]


@dataclass(frozen=True)
class ProducerState:
    """A producer id that a log knows. `transaction_start` is the first offset of its open
    transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int | None


@dataclass(frozen=True)
class LogState:
    """One replica's log."""

    broker: int
    is_leader: bool
    leader_epoch: int
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    recovery_point: int
    highest_remote_offset: int
    """The last offset that is known to be in the remote tier; -1 if none is."""
    size_bytes: int
    segments: tuple[SegmentState, ...]
    epochs: tuple[EpochState, ...]
    producers: tuple[ProducerState, ...]


@dataclass(frozen=True)
class PartitionState:
    """A partition: what the controller decided, and the logs on the running brokers."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    logs: tuple[LogState, ...] = ()
    remote: tuple[RemoteSegmentState, ...] = ()

    def log(self, broker: int | None = None) -> LogState:
        """Return a broker's log, by default the leader's; LookupError if it is not there."""
        wanted = self.leader if broker is None else broker
        what = f"log of {self.topic}-{self.partition} on broker {wanted}"
        return _find((log for log in self.logs if log.broker == wanted), what)


@dataclass(frozen=True)
class TopicState:
    """A topic; `config` has the settings that differ from the broker's."""

    name: str
    topic_id: str
    is_internal: bool
    config: dict[str, str]
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True)
class MemberState:
    """A member of a group. `assignment` has partitions by topic, if it is a consumer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    assignment: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class CommittedOffset:
    """A committed offset. `lag` is the number of offsets up to the high watermark; None if the
    leader's log is not there."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    lag: int | None = None


@dataclass(frozen=True)
class ShareState:
    """Where a share group is in a partition, as its leader knows it. All records before
    `start_offset` are done, none from `end_offset` on was given out. Of those in between `acquired`
    are held by members and `done` will not come again. `lag` is the number of records that are not
    done."""

    group_id: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    acquired: int
    done: int
    lag: int


@dataclass(frozen=True)
class GroupState:
    """A group and its coordinator. A consumer group has `offsets`; a share group has `shares`, the
    partitions that its members read since their leaders changed."""

    group_id: str
    coordinator: int
    state: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    members: tuple[MemberState, ...]
    offsets: tuple[CommittedOffset, ...]
    shares: tuple[ShareState, ...] = ()

    @property
    def lag(self) -> int:
        """Return the lag of all partitions with a committed offset, or of those that are shared."""
        committed = sum(one.lag or 0 for one in self.offsets)
        return committed + sum(one.lag for one in self.shares)


@dataclass(frozen=True)
class PartitionName:
    """A partition by topic and number."""

    topic: str
    partition: int


@dataclass(frozen=True)
class TransactionState:
    """A transactional id and its coordinator. `start_ms` is -1 while no transaction is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[PartitionName, ...]


@dataclass(frozen=True)
class ConnectionState:
    """A client's connection. `waiting` has the APIs of the requests without an answer."""

    client_host: str
    client_port: int
    listener: str
    software: str
    waiting: tuple[str, ...]


@dataclass(frozen=True)
class BrokerPart:
    """What one broker contributes to the state of the cluster."""

    node_id: int
    controller: int
    metadata_offset: int
    wall_ms: int
    topics: tuple[TopicState, ...]
    logs: tuple[HostedLog, ...]
    groups: tuple[GroupState, ...]
    transactions: tuple[TransactionState, ...]
    purgatories: dict[str, int]
    connections: tuple[ConnectionState, ...]
    shares: tuple[ShareState, ...] = ()


@dataclass(frozen=True)
class HostedLog:
    """A log of one broker; `remote` is known to its leader."""

    topic: str
    partition: int
    log: LogState
    remote: tuple[RemoteSegmentState, ...]


@dataclass(frozen=True)
class RunningBrokerState:
    """A running broker. `purgatories` has the number of parked requests by kind."""

    node_id: int
    metadata_offset: int
    wall_ms: int
    purgatories: dict[str, int]
    connections: tuple[ConnectionState, ...]


@dataclass(frozen=True)
class ClusterState:
    """A cluster at one moment, as its running brokers see it. `controller` is -1 if they know
    none."""

    controller: int
    brokers: tuple[RunningBrokerState, ...]
    topics: tuple[TopicState, ...]
    groups: tuple[GroupState, ...]
    transactions: tuple[TransactionState, ...]

    def topic(self, name: str) -> TopicState:
        """Return a topic; LookupError if there is none."""
        return _find((one for one in self.topics if one.name == name), f"topic {name}")

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        """Return a partition; LookupError if there is none."""
        found = (one for one in self.topic(topic).partitions if one.partition == partition)
        return _find(found, f"partition {topic}-{partition}")

    def group(self, group_id: str) -> GroupState:
        """Return a group; LookupError if there is none."""
        return _find((one for one in self.groups if one.group_id == group_id), f"group {group_id}")

    def transaction(self, transactional_id: str) -> TransactionState:
        """Return a transactional id; LookupError if it is unknown."""
        found = (one for one in self.transactions if one.transactional_id == transactional_id)
        return _find(found, f"transactional id {transactional_id}")

    def broker(self, node_id: int) -> RunningBrokerState:
        """Return a running broker; LookupError if it does not run."""
        found = (one for one in self.brokers if one.node_id == node_id)
        return _find(found, f"running broker {node_id}")


def _find(found: Iterable[T], what: str) -> T:
    for one in found:
        return one
    raise LookupError(f"there is no {what}")


@dataclass(frozen=True)
class ReadState:
    """What to read: all topics, or some; Kafka's own ones only if named or `internal`. One that
    does not exist is an error, or left out if `missing_ok`."""

    topics: tuple[str, ...] | None = None
    internal: bool = False
    missing_ok: bool = False
