"""What every measured broker is: a process, a bootstrap address, data in one folder."""

from __future__ import annotations

import abc
import shutil
import signal
from typing import TYPE_CHECKING, Protocol

from tidelog_bench.peers.address import free_port, wait_until_serving
from tidelog_bench.peers.process import Child

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["PARTITIONS", "Peer", "Served"]

PARTITIONS = 4  # of automatically created topics; equal for all peers


class Served(Protocol):
    """What a load and a case need of what they measure: one broker or a cluster."""

    name: str
    replication_factor: int
    authority: Path | None

    @property
    def bootstrap(self) -> str:
        """`host:port`, of each broker."""
        ...

    def cpu_seconds(self) -> float:
        """CPU time of all its processes."""
        ...


class Peer(abc.ABC):
    """One broker. `start` again after `end` uses the same port and data."""

    name: str
    replication_factor = 1
    authority: Path | None = None  # the certificate that clients trust, if its listener has TLS

    def __init__(self, folder: Path, name: str | None = None, port: int | None = None) -> None:
        self.name = name or self.name
        self.folder = folder
        self.port = port or free_port()
        self._child: Child | None = None

    @property
    def bootstrap(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def child(self) -> Child:
        """Its process, while it runs."""
        assert self._child is not None, f"{self.name} is not started"
        return self._child

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended."""
        return self._child is not None

    @property
    def log(self) -> Path:
        """What it writes to standard output and error, over all its lives."""
        return self.folder.parent / f"{self.folder.name}.log"

    def cpu_seconds(self) -> float:
        """CPU time of its process."""
        return self.child.cpu_seconds()

    def prepare(self) -> None:
        """Do what comes before the first start (formatting, building), outside any figure."""
        self.folder.mkdir(parents=True, exist_ok=True)

    @abc.abstractmethod
    def command(self) -> Sequence[str]:
        """The command line of the broker."""

    def launch(self) -> Child:
        """Start its process, and wait for nothing."""
        self.prepare()
        self._child = Child(self.command(), self.log)
        return self._child

    def start(self) -> float:
        """Start it; seconds from exec to its first Metadata answer."""
        child = self.launch()
        wait_until_serving(self.bootstrap, child.check, authority=self.authority)
        return child.age()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process; its exit code."""
        child, self._child = self._child, None
        return 0 if child is None else child.end(how)

    def remove(self) -> None:
        """Kill it and remove its data."""
        self.end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
