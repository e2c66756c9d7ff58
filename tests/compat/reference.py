"""The reference: a real Apache Kafka from its Maven jars, each KRaft node in a JVM of its own.

`python -m compat.reference [BROKERS]` (with tests/ on the path) runs one, or so many, until Ctrl-C
and prints the address.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from compat.brokers import SETTINGS
from compat.jvm import FAST_START
from tidelog_bench.peers import apache_kafka

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog_bench.peers.peer import Peer

SMALL: Mapping[str, str] = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


class ApacheKafka:
    """One broker that is its own controller. Same door as `compat.brokers.Tidelog`."""

    name = "kafka"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**SETTINGS, **SMALL, **(settings or {})}
        self._peer = apache_kafka.ApacheKafka(folder / "kafka", settings, ["-Xmx512m", *FAST_START])
        self.bootstrap = self._peer.bootstrap
        self.controller = self._peer.controller
        self.folder = folder

    def start(self) -> None:
        """Start, formatted the first time, and wait until the broker is unfenced."""
        self._peer.start()

    def kill(self) -> None:
        """SIGKILL of the JVM."""
        self._peer.end(signal.SIGKILL)

    def stop(self) -> int:
        """End it. Its own shutdown takes seconds and nobody needs its data: killed as well."""
        self.kill()
        return 0


class ApacheKafkaCluster:
    """Several nodes, each broker and controller, one of them chosen by its id: 1, 2, ...

    `start` of all waits until each of them serves and knows all; a node that was killed is taken
    back when its session has ended (`broker.session.timeout.ms`), and `start` waits for that.
    """

    name = "kafka"

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, brokers: int = 3
    ) -> None:
        self.folder = folder
        own = ("node.id", "offsets.topic.", "transaction.state.log.")  # the cluster decides those
        chosen = {key: value for key, value in SETTINGS.items() if not key.startswith(own)}
        self._peer = apache_kafka.ApacheKafkaCluster(
            folder / "kafka",
            {**chosen, "offsets.topic.num.partitions": "8", **SMALL, **(settings or {})},
            ["-Xmx400m", *FAST_START],
            brokers=brokers,
        )
        self.bootstrap = self._peer.bootstrap  # of all, whether they run or not

    @property
    def brokers(self) -> Mapping[int, Peer]:
        """Each node: its `bootstrap`, its process (`child.pid`), its `log`."""
        return self._peer.nodes

    def start(self, node_id: int | None = None) -> None:
        """Start all, or one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._peer.start(node_id)

    def kill(self, node_id: int | None = None) -> None:
        """SIGKILL of all, or of one."""
        self._peer.kill(node_id)

    def stop(self, node_id: int | None = None) -> int:
        """A controlled shutdown of one; all together are killed, for nobody needs their data."""
        if node_id is None:
            self.kill()
            return 0
        return self._peer.stop(node_id)


def main(brokers: int) -> None:
    """Run one or more until interrupted."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-reference-"))
    made = ApacheKafka(folder) if brokers == 1 else ApacheKafkaCluster(folder, brokers=brokers)
    try:
        started = time.monotonic()
        made.start()
        print(
            f"Apache Kafka on {made.bootstrap} after {time.monotonic() - started:.1f} s",
            flush=True,
        )
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print("stopping", made.bootstrap)
    finally:
        made.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
