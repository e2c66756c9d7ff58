"""`TidelogContainer`: brokers in a container, by testcontainers-python (`tidelog[containers]`).

The image is that of the repository's Dockerfile: `docker build -t tidelog .`. The brokers' ports
are mapped to free ones of this machine, which are known only when the container runs: it waits for
a script with these addresses, then starts the brokers.
"""

from __future__ import annotations

import secrets
import shlex
from typing import TYPE_CHECKING

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tidelog.control.http_client import HttpControl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = ["TidelogContainer", "serve_command"]

PORT = 9092
CONTROL_PORT = 9990
START_S_MAX = 60
# The script is whole when the second file is there.
SCRIPT, IS_WHOLE = "/tmp/tidelog.start", "/tmp/tidelog.go"  # noqa: S108 - in the container
WAIT = f"until [ -e {IS_WHOLE} ]; do sleep 0.05; done; exec bash {SCRIPT}"


def serve_command(brokers: int, bootstrap_servers: str, options: Sequence[str]) -> str:
    """Return the command in the container; clients reach the brokers at `bootstrap_servers`."""
    advertised = ",".join(f"PLAINTEXT://{address}" for address in bootstrap_servers.split(","))
    command = [
        *("tidelog", "serve", "--host=0.0.0.0", f"--port={PORT}", f"--brokers={brokers}"),
        f"--set=advertised.listeners={advertised}",
        f"--control=0.0.0.0:{CONTROL_PORT}",
        *options,
    ]
    return shlex.join(command)


class TidelogContainer(DockerContainer):
    """Brokers in a container.

    with TidelogContainer().with_brokers(3).with_setting("num.partitions", 6) as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})
        kafka.control.topics.create("orders")
    """

    def __init__(self, image: str = "tidelog") -> None:
        super().__init__(image)
        self._brokers = 1
        self._options: list[str] = []
        self._token = secrets.token_hex(16)

    def with_brokers(self, count: int) -> Self:
        """Run this many brokers, all in the one container."""
        self._brokers = count
        return self

    def with_tiered(self, place: str | None = None, *, topics: Sequence[str] = ()) -> Self:
        """Add a remote tier: beside the data, in a folder of the container, or "s3://bucket/prefix".

        Topics join by `remote.storage.enable=true`, or if their names match one of `topics`.
        """
        self._options.append("--tiered" if place is None else f"--tiered={place}")
        if topics:
            self._options.append(f"--tiered-topics={','.join(topics)}")
        return self

    def with_setting(self, key: str, value: object) -> Self:
        """Set a setting by its Kafka name."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._options.append(f"--set={key}={text}")
        return self

    def start(self, timeout: float = START_S_MAX) -> Self:
        """Start the container, and return when its brokers answer clients."""
        self.with_exposed_ports(*self._ports(), CONTROL_PORT)
        self.with_env("TIDELOG_CONTROL_TOKEN", self._token)
        self.with_command(["bash", "-c", WAIT])
        super().start()
        try:
            command = serve_command(self._brokers, self.get_bootstrap_server(), self._options)
            self.copy_into_container(f"exec {command}".encode(), SCRIPT, 0o644)
            self.copy_into_container(b"", IS_WHOLE, 0o644)
            ready = LogMessageWaitStrategy("tidelog ready")
            ready.with_startup_timeout(int(timeout)).with_poll_interval(0.1).wait_until_ready(self)
        except BaseException:
            self.stop()
            raise
        return self

    def _ports(self) -> range:
        """Return the ports of the brokers in the container."""
        return range(PORT, PORT + self._brokers)

    def get_bootstrap_server(self) -> str:
        """Return `host:port` of every broker, for clients on this machine."""
        host = self.get_container_host_ip()
        return ",".join(f"{host}:{self.get_exposed_port(port)}" for port in self._ports())

    @property
    def control(self) -> HttpControl:
        """The control calls: faults, time, actions and state, as on `tidelog.run()`."""
        host, port = self.get_container_host_ip(), self.get_exposed_port(CONTROL_PORT)
        return HttpControl(f"http://{host}:{port}", self._token)
