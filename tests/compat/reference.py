"""The reference: a real Apache Kafka from its Maven jars, one KRaft node in one JVM.

`python -m compat.reference` (with tests/ on the path) runs one until Ctrl-C and prints its address.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from compat.brokers import SETTINGS
from compat.jvm import FAST_START
from tidelog_bench.peers import apache_kafka

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def main() -> None:
    """Run one until interrupted."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-reference-"))
    kafka = ApacheKafka(folder)
    try:
        started = time.monotonic()
        kafka.start()
        print(
            f"Apache Kafka on {kafka.bootstrap} after {time.monotonic() - started:.1f} s",
            flush=True,
        )
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print("stopping", kafka.bootstrap)
    finally:
        kafka.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
