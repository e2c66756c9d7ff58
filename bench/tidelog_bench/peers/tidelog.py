"""tidelog as its users start it: one broker, several in one process, or each in its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tidelog_bench.peers.address import free_ports, free_range, wait_until_serving
from tidelog_bench.peers.cluster import PeerCluster
from tidelog_bench.peers.peer import PARTITIONS, Peer
from tidelog_bench.peers.process import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Tidelog", "TidelogCluster", "TidelogServe"]

CLUSTER_ID = "tidelogBench_______01A"
# `log.segment.delete.delay.ms` as for the other peers.
_SETTINGS: Mapping[str, str] = {
    "num.partitions": str(PARTITIONS),
    "log.segment.delete.delay.ms": "1000",
}


class Tidelog(Peer):
    """This project's broker on the interpreter that runs the harness."""

    name = "tidelog"

    def command(self) -> Sequence[str]:
        """Serve until standard input ends."""
        options = ["--port", str(self.port), "--data-dir", str(self.folder), "--until-stdin-ends"]
        return [sys.executable, "-m", "tidelog", "serve", *options, *_given(_SETTINGS)]


class TidelogServe(Peer):
    """`tidelog serve --brokers N`: all in its process, or in processes of its own."""

    def __init__(self, folder: Path, *, isolated: bool, brokers: int = 3) -> None:
        super().__init__(folder, "tidelog", free_range(brokers))
        self._brokers = brokers
        self._isolated = isolated

    def command(self) -> Sequence[str]:
        """Serve until standard input ends, on ports that follow each other."""
        options = ["--brokers", str(self._brokers), *(["--isolated"] if self._isolated else [])]
        options += ["--port", str(self.port), "--data-dir", str(self.folder), "--until-stdin-ends"]
        return [sys.executable, "-m", "tidelog", "serve", *options, *_given(_SETTINGS)]

    def start(self) -> float:
        """Start it; seconds from exec until each broker knows all of them."""
        child = self.launch()
        for port in range(self.port, self.port + self._brokers):
            nodes = frozenset(range(1, self._brokers + 1))
            wait_until_serving(f"127.0.0.1:{port}", child.check, nodes=nodes)
        return child.age()

    def remove(self) -> None:
        """End it, then remove its data. Killed, it would leave its brokers to themselves: they end
        too, but a little later, and write until then."""
        self.end(signal.SIGTERM)
        super().remove()

    def cpu_seconds(self) -> float:
        """Of its process and those that it looks after."""
        return sum(cpu_seconds(pid) for pid in (self.child.pid, *self.child.children()))


class _Node(Peer):
    """`tidelog broker`: one of several."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        node_id: int,
        voters: Mapping[int, str],
        port: int,
    ) -> None:
        super().__init__(folder, "tidelog", port)
        self._settings = settings
        self._node_id = node_id
        self._voters = voters

    def command(self) -> Sequence[str]:
        """Serve until standard input ends."""
        voters = ",".join(f"{node_id}@{at}" for node_id, at in self._voters.items())
        options = ["--node-id", str(self._node_id), "--controller-quorum", voters]
        options += ["--port", str(self.port), "--until-stdin-ends"]
        return [sys.executable, "-m", "tidelog", "broker", *options, *self._data()]

    def prepare(self) -> None:
        """Format its directories, before its first life."""
        super().prepare()
        options = ["--cluster-id", CLUSTER_ID, "--node-id", str(self._node_id)]
        subprocess.run(
            [sys.executable, "-m", "tidelog", "format", "-g", *options, *self._data()],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def _data(self) -> list[str]:
        return ["--data-dir", str(self.folder / "data"), *_given(self._settings)]


class TidelogCluster(PeerCluster):
    """Several nodes, broker and controller, each in a process and a folder of its own."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        name: str = "tidelog",
    ) -> None:
        """`settings` go over the developer's profile of a cluster of so many."""
        ports = free_ports(2 * brokers)
        voters = {node_id: f"127.0.0.1:{ports.pop()}" for node_id in range(1, brokers + 1)}
        nodes = {
            node_id: _Node(
                folder / f"broker-{node_id}",
                {**_SETTINGS, **(settings or {})},
                node_id=node_id,
                voters=voters,
                port=ports.pop(),
            )
            for node_id in voters
        }
        super().__init__(folder, name, nodes)


def _given(settings: Mapping[str, str]) -> list[str]:
    return [f"--set={key}={value}" for key, value in settings.items()]
