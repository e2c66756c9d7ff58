"""Clients' metrics: brokers that take them. Kafka needs a plug-in, tidelog its endpoint.

`python -m compat.conformance.telemetry`: as its parent.
"""

from __future__ import annotations

import fnmatch
import signal
import sys
from typing import TYPE_CHECKING, Protocol

from compat.brokers import SETTINGS, Tidelog
from compat.conformance.cases_telemetry import BYTES_MAX, CASES
from compat.conformance.door import Door
from compat.conformance.recording import FOLDER, comparable
from compat.conformance.registry import runs
from compat.conformance.runner import carried_out, served_ranges
from compat.conformance.session import Session
from compat.jvm import FAST_START, driver_classes
from compat.reference import SMALL
from tidelog_bench.peers import apache_kafka
from tidelog_bench.peers.address import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from compat.conformance.runner import Transcript

RECORDED = FOLDER / "telemetry"
LIMIT = {"telemetry.max.bytes": str(BYTES_MAX)}


class Receiver(Protocol):
    """A broker that takes clients' metrics."""

    bootstrap: str

    def start(self) -> object: ...
    def stop(self) -> object: ...


class KafkaReceiver(apache_kafka.ApacheKafka):
    """An Apache Kafka with the receiver of `java/TelemetryReceiver.java`."""

    def __init__(self, folder: Path) -> None:
        settings = {**SETTINGS, **SMALL, **LIMIT, "metric.reporters": "TelemetryReceiver"}
        super().__init__(folder / "kafka", settings, ["-Xmx400m", *FAST_START])

    def command(self) -> Sequence[str]:
        """The JVM, with the plug-in on its classpath."""
        launch = list(super().command())
        launch[launch.index("-cp") + 1] += f":{driver_classes()}"
        return launch

    def stop(self) -> None:
        """Kill it: its data is not needed."""
        self.end(signal.SIGKILL)


def tidelog_receiver(folder: Path) -> Tidelog:
    """Return a tidelog with an endpoint for Prometheus."""
    return Tidelog(folder, {**LIMIT, "metrics.prometheus.listener": f"127.0.0.1:{free_port()}"})


def collect(broker: Receiver, pattern: str = "*") -> dict[str, Transcript]:
    """Transcripts by run key, of those whose key matches."""
    return {
        run.key: comparable(carried_out(run, Session(run, broker.bootstrap)))
        for run in runs(served_ranges(broker.bootstrap), CASES)
        if fnmatch.fnmatch(run.key, pattern)
    }


DOOR = Door(
    "python -m compat.conformance.telemetry",
    {"kafka": KafkaReceiver, "tidelog": tidelog_receiver},
    collect,
    RECORDED,
)

if __name__ == "__main__":
    sys.exit(DOOR.main())
