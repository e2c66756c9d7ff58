"""Several brokers of one cluster behind one door: all of them, or one by its node id."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

from tidelog.embedded.cluster_settings import profile_of as of_cluster
from tidelog_bench.peers.address import wait_until_serving

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidelog_bench.peers.peer import Peer

__all__ = ["PeerCluster", "of_cluster"]


class PeerCluster:
    """Brokers in processes of their own; `nodes` are they by node id, running or not."""

    replication_factor = 3
    authority: Path | None = None

    def __init__(self, folder: Path, name: str, nodes: Mapping[int, Peer]) -> None:
        self.folder = folder
        self.name = name
        self.nodes = nodes

    @property
    def bootstrap(self) -> str:
        """`host:port` of every broker, whether it runs or not."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def prepare(self) -> None:
        """Do what comes before the first start, outside any figure."""
        for node in self.nodes.values():
            node.prepare()

    def start(self, node_id: int | None = None) -> float:
        """Start all (or one); seconds from the first exec until each of them knows all of them."""
        chosen = self._chosen(node_id)
        self.prepare()
        children = [node.launch() for node in chosen.values()]
        for node, child in zip(chosen.values(), children, strict=True):
            wait_until_serving(node.bootstrap, child.check, nodes=frozenset(chosen))
        return children[0].age()

    def stop(self, node_id: int | None = None) -> int:
        """SIGTERM, all at once, and wait; the worst exit code."""
        return self._end(node_id, signal.SIGTERM)

    def kill(self, node_id: int | None = None) -> None:
        """SIGKILL, and wait until the processes are gone."""
        self._end(node_id, signal.SIGKILL)

    def _end(self, node_id: int | None, how: signal.Signals) -> int:
        chosen = [node for node in self._chosen(node_id).values() if node.is_running]
        for node in chosen:
            node.child.send(how)
        return max((abs(node.end(how)) for node in chosen), default=0)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: it is there, and does nothing."""
        self.nodes[node_id].child.send(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self.nodes[node_id].child.send(signal.SIGCONT)

    def check(self) -> None:
        """RuntimeError with the end of its log if one ended by itself."""
        for node in self.nodes.values():
            if node.is_running:
                node.child.check()

    def cpu_seconds(self) -> float:
        """CPU time of all that run."""
        return sum(node.cpu_seconds() for node in self.nodes.values() if node.is_running)

    def remove(self) -> None:
        """Kill all and remove their data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _chosen(self, node_id: int | None) -> Mapping[int, Peer]:
        return self.nodes if node_id is None else {node_id: self.nodes[node_id]}
