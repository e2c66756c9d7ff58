"""The placement of replicas of new partitions on brokers.

The brokers are a ring in which neighbours are in different racks, as far as possible. The first
replica, the preferred leader, goes to the next unfenced broker with each partition, from a random
start. The other replicas go to the brokers behind it, each in a rack with the fewest replicas of
the partition. So leaders and replicas spread evenly, and each partition over the racks. Brokers in
controlled shutdown get no replicas, nor do those whose log directories are all cordoned (KIP-1066).
Fenced brokers get some only if the others are too few.
"""

from __future__ import annotations

from itertools import cycle, islice, zip_longest
from typing import TYPE_CHECKING

from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.cluster.metadata.image import BrokerImage, ClusterImage
    from tidelog.seams import Rng


class PlacementError(Exception):
    """There are not enough brokers; the text goes to the client."""


def place(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, rng: Rng
) -> list[tuple[int, ...]]:
    """Return the replicas of the new partitions; PlacementError if the cluster is too small."""
    ring = _ring(
        broker
        for broker in brokers
        if (broker.fenced or not broker.in_controlled_shutdown) and not broker.is_cordoned
    )
    unfenced = [broker for broker in ring if not broker.fenced]
    fenced = [broker for broker in ring if broker.fenced]
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
    placed = []  # the partitions that each broker is the first of
    for number in range(min(partitions, len(unfenced))):
        first = (start + number) % len(unfenced)
        candidates = unfenced[first:] + unfenced[:first] + fenced
        placed.append(_over_racks(candidates, replication_factor))
    return list(islice(cycle(placed), partitions))


def _over_racks(candidates: list[BrokerImage], replication_factor: int) -> tuple[int, ...]:
    """Choose the first candidate, then each time the first in a rack with the fewest replicas."""
    chosen: list[int] = []
    used: dict[str | None, int] = {}
    left = list(candidates)
    while len(chosen) < replication_factor:
        broker = min(left, key=lambda candidate: used.get(candidate.rack, 0)) if chosen else left[0]
        left.remove(broker)
        chosen.append(broker.node_id)
        used[broker.rack] = used.get(broker.rack, 0) + 1
    return tuple(chosen)


def assignment_problem(image: ClusterImage, brokers: Sequence[int]) -> str | None:
    """Return why these cannot be a partition's replicas, in Kafka's words; None if they can."""
    start = "The manual partition assignment includes"
    if not brokers:
        return f"{start} an empty replica list."
    previous = None
    for broker in sorted(brokers):
        if broker not in image.brokers:
            return f"{start} broker {broker}, but no such broker is registered."
        if broker == previous:
            return f"{start} the broker {broker} more than once."
        previous = broker
    return None


def directory_of(image: ClusterImage, node_id: int) -> bytes:
    """Return the broker's only log directory; zero if it has several and chooses itself."""
    broker = image.brokers.get(node_id)
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else ZERO_UUID


def _ring(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """Return the brokers by id, one of each rack in turn."""
    racks: dict[str, list[BrokerImage]] = {}
    for broker in sorted(brokers):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[name] for name in sorted(racks)))
    return [broker for round_ in rounds for broker in round_ if broker is not None]
