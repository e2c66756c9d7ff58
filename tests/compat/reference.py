"""The reference: a real Apache Kafka from its Maven jars, one KRaft node in one JVM.

`python -m compat.reference` (with tests/ on the path) runs one until Ctrl-C and prints its address.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from compat.brokers import SETTINGS, START_TIMEOUT_S, address, free_port, wait_until_listening
from compat.jvm import Jvm
from compat.raw import RawConnection

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER_ID = "tidelogReference_01AAA"


class ApacheKafka:
    """One broker that is its own controller. Same door as `compat.brokers.Tidelog`."""

    name = "kafka"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.bootstrap = ""
        self._settings = {**SETTINGS, **(settings or {})}
        self._controller_port = free_port()
        self._jvm: Jvm | None = None

    def start(self) -> None:
        """Format the storage the first time, start, and wait until the broker is unfenced."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first = not self.bootstrap
        if first:
            self.bootstrap = f"127.0.0.1:{free_port()}"
        properties = self.folder / "server.properties"
        lines = [f"{key}={value}" for key, value in self._properties().items()]
        properties.write_text("\n".join(lines) + "\n")
        self._jvm = Jvm(self.folder / "kafka.log", heap="-Xmx512m")
        if first:
            arguments = ["format", "-t", CLUSTER_ID, "-c", str(properties)]
            formatted = self._jvm.tool("kafka.tools.StorageTool", *arguments)
            if formatted.exit:
                raise RuntimeError(f"could not format the reference's storage: {formatted}")
        self._jvm.call("start", main="kafka.Kafka", args=[str(properties)])
        wait_until_listening(self.bootstrap)
        self._wait_until_serving()

    def _properties(self) -> dict[str, str]:
        controller = f"127.0.0.1:{self._controller_port}"
        return {
            **self._settings,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": "8388608",
        }

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with RawConnection(self.bootstrap) as connection:
                # Metadata v1 for no topics: throttle-free answer begins with the live brokers.
                answer = connection.ask_bytes(3, 1, struct.pack(">i", 0))
                if struct.unpack_from(">i", answer)[0] > 0:
                    return
            time.sleep(0.05)
        raise TimeoutError("the reference did not become ready")

    def kill(self) -> None:
        """SIGKILL of the JVM."""
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm = None

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
        print("stopping", address(kafka.bootstrap))
    finally:
        kafka.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
