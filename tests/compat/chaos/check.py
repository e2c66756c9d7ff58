"""What was acknowledged beside what is there: nothing lost, doubled or out of order."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compat.chaos.load import Acknowledgement, Found
    from tidelog_bench.peers.cluster import PeerCluster


def check_found(
    found: Sequence[Sequence[Found]], acknowledged: Mapping[str, Sequence[Acknowledgement]]
) -> None:
    """All that was produced was acknowledged in the end; so all of it is there, once, in order."""
    for partition, records in enumerate(found):
        offsets = [record.offset for record in records]
        assert offsets == list(range(len(records))), f"partition {partition}: offsets left out"
        for producer, entries in acknowledged.items():
            ours = [record for record in records if record.producer == producer]
            mine = {entry.number: entry for entry in entries if entry.partition == partition}
            where = f"partition {partition} of {producer}"
            check_numbers([record.number for record in ours], sorted(mine), where)
            for record in ours:
                told = mine[record.number].offset
                assert told in (-1, record.offset), f"{where}: acknowledged at {told}, is {record}"


def check_numbers(there: Sequence[int], acknowledged: Sequence[int], where: str) -> None:
    """Numbers of one producer in one partition, as they lie in the log."""
    lost = sorted(set(acknowledged) - set(there))
    assert not lost, f"{where}: {len(lost)} lost: {lost[:10]}"
    assert len(set(there)) == len(there), f"{where}: doubled: {_doubled(there)[:10]}"
    bad = [(one, other) for one, other in pairwise(there) if other != one + 1]
    assert not bad, f"{where}: out of order: {bad[:10]}"
    assert list(there) == list(acknowledged), f"{where}: {there[-1]} was not acknowledged"


def check_seen(seen: Sequence[Sequence[Found]], found: Sequence[Sequence[Found]]) -> None:
    """What a consumer saw while brokers failed is what is there now: all of it, each once."""
    for partition, (before, now) in enumerate(zip(seen, found, strict=True)):
        gone = [(one, other) for one, other in zip(before, now, strict=False) if one != other]
        assert not gone, f"partition {partition}: seen, and is now: {gone[:5]}"
        assert len(before) == len(now), f"partition {partition}: saw {len(before)} of {len(now)}"


def _doubled(numbers: Sequence[int]) -> list[int]:
    seen: set[int] = set()
    return [number for number in numbers if number in seen or seen.add(number)]  # type: ignore[func-returns-value]


def check_replicas(cluster: PeerCluster, topic: str, partitions: int) -> str:
    """Empty when the logs of all brokers are the same byte for byte; else which are not."""
    different = []
    for partition in range(partitions):
        digests = {
            node_id: _digest(cluster, node_id, f"{topic}-{partition}") for node_id in cluster.nodes
        }
        if len(set(digests.values())) != 1:
            different.append(f"{topic}-{partition}: {digests}")
    return "; ".join(different)


def _digest(cluster: PeerCluster, node_id: int, name: str) -> str:
    """Of a log's bytes, however they are cut into segments."""
    digest = hashlib.sha256()
    for file in sorted((cluster.nodes[node_id].folder / "data" / name).glob("*.log")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def longest_gap_s(acknowledged: Sequence[Acknowledgement]) -> float:
    """The longest time in which a producer got no acknowledgement for one of its partitions."""
    times: dict[int, list[float]] = {}
    for entry in acknowledged:
        times.setdefault(entry.partition, []).append(entry.seconds)
    return max(after - before for each in times.values() for before, after in pairwise(each))
