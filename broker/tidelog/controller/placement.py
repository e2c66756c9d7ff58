"""Which brokers get the replicas of new partitions.

Brokers are laid out so that neighbours are in different racks as far as possible; each partition
takes the next `replication_factor` of them, starting one further than the partition before, from a
random start. So leaders and replicas spread evenly, and a partition's replicas over the racks. The
first replica, the preferred leader, is a broker that is not fenced.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.metadata.image import BrokerImage, ClusterImage
    from tidelog.seams import Rng


class PlacementError(Exception):
    """There are not enough brokers; the text is the client's."""


def place(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, rng: Rng
) -> list[tuple[int, ...]]:
    """Replicas of that many new partitions. PlacementError if the cluster is too small."""
    ring = _ring(brokers)
    unfenced = [broker.node_id for broker in ring if not broker.fenced]
    fenced = [broker.node_id for broker in ring if broker.fenced]
    if replication_factor <= 0:
        raise PlacementError(
            f"Invalid replication factor {replication_factor}: "
            "the replication factor must be positive."
        )
    if not unfenced:
        raise PlacementError(
            "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > len(ring):
        raise PlacementError(
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(ring)} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )
    start = int(rng.uniform(0, len(unfenced))) % len(unfenced)
    placed = []
    for partition in range(partitions):
        first = (start + partition) % len(unfenced)
        candidates = unfenced[first:] + unfenced[:first] + fenced
        placed.append(tuple(candidates[:replication_factor]))
    return placed


def directory_of(image: ClusterImage, node_id: int) -> bytes:
    """The broker's only log directory; the broker itself chooses (zero) when it has several."""
    broker = image.brokers.get(node_id)
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else ZERO_UUID


def _ring(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """Brokers by id, one of each rack in turn."""
    racks: dict[str, list[BrokerImage]] = {}
    for broker in sorted(brokers):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[name] for name in sorted(racks)))
    return [broker for round_ in rounds for broker in round_ if broker is not None]
