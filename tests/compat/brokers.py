"""A broker under test: tidelog as its users start it, or the reference, behind one small door."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

from tidelog_bench.peers.address import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

READY = "tidelog ready bootstrap.servers="
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0  # for the machine; it ends itself, with code 1, when it takes 4.5 s

# What both brokers run with, in Kafka's names: only what makes tests fast and small.
SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",  # tests write timestamps of the past
    "node.id": "1",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


class Broker(Protocol):
    """What a test may do to a broker. `start` again after `kill` uses the same port and data."""

    name: str
    bootstrap: str
    folder: Path  # its data is somewhere in it

    def start(self) -> None: ...
    def stop(self) -> int: ...
    def kill(self) -> None: ...


def address(bootstrap: str) -> tuple[str, int]:
    """The host and port of a bootstrap string."""
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


class Tidelog:
    """`python -m tidelog serve` as a child process on a folder of its own."""

    name = "tidelog"

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        has_controller_listener: bool = False,
    ) -> None:
        """A single Kafka always has a controller listener."""
        self.folder = folder
        self.controller = f"127.0.0.1:{free_port()}" if has_controller_listener else ""
        self.bootstrap = ""
        self._settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait for its line; the port of an earlier start is taken again."""
        port = address(self.bootstrap)[1] if self.bootstrap else free_port()
        command = [sys.executable, "-m", "tidelog", "serve"]
        command += ["--data-dir", str(self.folder / "data")]
        if self.controller:
            listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{self.controller}"
            command += ["--set", f"listeners={listeners}"]
        else:
            command += ["--port", str(port)]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "tidelog.log").open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        line = self._first_line()
        if not line.startswith(READY):
            self.kill()
            log = (self.folder / "tidelog.log").read_text()[-3000:]
            raise RuntimeError(f"tidelog did not start: {line!r}\n{log}")
        self.bootstrap = line.removeprefix(READY).strip()

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], START_TIMEOUT_S)[0]:
            return ""
        return self._process.stdout.readline().decode()

    def kill(self) -> None:
        """SIGKILL, as the machine's out-of-memory killer would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code (bounded by 60 s, then killed)."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
        return code

    def rss_bytes(self) -> int:
        """Resident memory of the broker process now."""
        assert self._process is not None
        with open(f"/proc/{self._process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
