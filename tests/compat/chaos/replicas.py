"""The replicas' files, which end up the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog_bench.peers.cluster import PeerCluster


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
