"""Decisions about in-sync replicas: the high watermark, lagging and joining followers.

Pure functions over a leader's state of its followers; `partition.py` acts on them. Kafka: Partition
(maybeIncrementLeaderHW, getOutOfSyncReplicas, isFollowerInSync).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.replica_state import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.cluster.metadata.image import BrokerImage
    from tidelog.replication.replica_state import ReplicaRules, ReplicaState

__all__ = ["committed_end", "has_reached", "lagging_replicas", "preferred_replica"]


def committed_end(
    leader_id: int,
    leader_end: int,
    maximal_isr: Sequence[int],
    replicas: Mapping[int, ReplicaState],
    rules: ReplicaRules,
) -> int:
    """Return the smallest log end of the maximal in-sync replicas and of caught-up followers that
    may just be joining. UNKNOWN_OFFSET if that of an in-sync replica is unknown.

    Kafka also waits for a follower whose log directory has failed, until it counts as lagging.
    """
    end = leader_end
    for node_id in maximal_isr:
        if node_id != leader_id:
            replica = replicas.get(node_id)
            if replica is None:
                return UNKNOWN_OFFSET
            end = min(end, replica.log_end_offset)
    for node_id, replica in replicas.items():
        if (
            replica.log_end_offset < end
            and node_id not in maximal_isr
            and rules.is_eligible(node_id, replica)
            and rules.has_online(node_id, replica)
            and replica.is_caught_up(leader_end, rules.now_ms(), rules.lag_ms_max)
        ):
            end = replica.log_end_offset
    return end


def lagging_replicas(
    leader_id: int,
    leader_end: int,
    isr: Sequence[int],
    replicas: Mapping[int, ReplicaState],
    *,
    now_ms: int,
    lag_ms_max: int,
) -> tuple[int, ...]:
    """Return ISR members to remove: those not at the leader's end, now or recently."""
    return tuple(
        node_id
        for node_id in isr
        if node_id != leader_id
        and (
            node_id not in replicas
            or not replicas[node_id].is_caught_up(leader_end, now_ms, lag_ms_max)
        )
    )


def has_reached(replica: ReplicaState, high_watermark: int, epoch_start: int) -> bool:
    """Return whether a follower has everything committed, and no records that it may have to
    cut."""
    return replica.log_end_offset >= high_watermark and replica.log_end_offset >= epoch_start


def preferred_replica(
    rack: str,
    offset: int,
    leader_id: int,
    *,
    isr: Sequence[int],
    replicas: Mapping[int, ReplicaState],
    brokers: Mapping[int, BrokerImage],
) -> int:
    """Return the replica that a consumer of this rack should read from (KIP-392): the leader if it
    is in the rack, or if no replica is; else the most caught-up in-sync follower there that has the
    offset."""
    here = brokers.get(leader_id)
    if not rack or (here is not None and here.rack == rack):
        return leader_id
    best = leader_id
    best_rank = (UNKNOWN_OFFSET, 0, 0)
    for node_id in isr:
        replica, broker = replicas.get(node_id), brokers.get(node_id)
        if (
            replica is not None
            and broker is not None
            and broker.rack == rack
            and not broker.fenced
            and replica.log_start_offset <= offset <= replica.log_end_offset
        ):
            rank = (replica.log_end_offset, replica.last_caught_up_ms, -node_id)
            if rank > best_rank:
                best, best_rank = node_id, rank
    return best
