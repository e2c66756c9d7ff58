"""`TidelogContainer`: brokers in a container, by testcontainers-python (`tidelog[containers]`).

The image is that of the repository's Dockerfile: `docker build -t tidelog .`. The brokers' ports
are mapped to free ones of this machine, which are known only when the container runs: it waits for
a script with these addresses, then starts the brokers.
"""

from __future__ import annotations

import io
import secrets
import shlex
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tidelog.control.credentials.folder import BAD_CERTIFICATES, Credentials
from tidelog.control.credentials.kinds import Kind, kind_of
from tidelog.control.credentials.state import SecurityState, client_config
from tidelog.control.http_client import HttpControl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self, Unpack

    from tidelog.control.credentials.wishes import Wishes

__all__ = ["TidelogContainer", "serve_command"]

PORT = 9092
CONTROL_PORT = 9990
BAD_PORT = 9192  # the first with a bad certificate
START_S_MAX = 60
# The script is whole when the second file is there.
SCRIPT, IS_WHOLE = "/tmp/tidelog.start", "/tmp/tidelog.go"  # noqa: S108 - in the container
CREDENTIALS = "tidelog-security"  # the folder in the container's /tmp
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
        self._security: Kind | None = None
        self._credentials: tempfile.TemporaryDirectory[str] | None = None

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

    def with_security(self, kind: str) -> Self:
        """Ask clients for certificates or users, as `security=...` of `tidelog.run` does; they are
        made on this machine. `client_config` has what clients need."""
        self._security = kind_of(kind)
        return self

    def with_setting(self, key: str, value: object) -> Self:
        """Set a setting by its Kafka name."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._options.append(f"--set={key}={text}")
        return self

    def start(self, timeout: float = START_S_MAX) -> Self:
        """Start the container, and return when its brokers answer clients."""
        bad = (port for ports in self._bad_ports().values() for port in ports)
        self.with_exposed_ports(*self._ports(), *bad, CONTROL_PORT)
        self.with_env("TIDELOG_CONTROL_TOKEN", self._token)
        self.with_command(["bash", "-c", WAIT])
        super().start()
        try:
            options = [*self._options, *self._secured()]
            command = serve_command(self._brokers, self.get_bootstrap_server(), options)
            self.copy_into_container(f"exec {command}".encode(), SCRIPT, 0o644)
            self.copy_into_container(b"", IS_WHOLE, 0o644)
            ready = LogMessageWaitStrategy("tidelog ready")
            ready.with_startup_timeout(int(timeout)).with_poll_interval(0.1).wait_until_ready(self)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *arguments: Any, **options: Any) -> None:
        """Stop and remove the container, and the credentials of this machine."""
        if self._credentials is not None:
            self._credentials.cleanup()
            self._credentials = None
        super().stop(*arguments, **options)

    def _secured(self) -> Iterator[str]:
        """Make credentials, copy them into the container, and yield the options that name them."""
        if self._security is None:
            return
        container = self.get_wrapped_container()
        self._credentials = tempfile.TemporaryDirectory(prefix="tidelog-")
        hosts = [self.get_container_host_ip(), container.attrs["Config"]["Hostname"], "0.0.0.0"]  # noqa: S104 - a name in a certificate
        hosts += self._network_aliases or []
        Credentials.make(self._credentials.name, self._security, hosts)
        owner = int(container.exec_run("id -u").output)
        container.put_archive("/tmp", _archive(self._credentials.name, owner))  # noqa: S108 - in the container
        yield f"--security={self._security.name}"
        yield f"--security-dir=/tmp/{CREDENTIALS}"
        if self._security.is_tls:
            yield f"--bad-certificates={BAD_PORT}"

    def client_config(self, client: str, **wishes: Unpack[Wishes]) -> Any:
        """Return the configuration of a client library on this machine: see
        `Cluster.client_config`. A client that takes a bad certificate of the brokers gets addresses
        inside the container."""
        servers = self.get_bootstrap_server()
        if self._security is None or self._credentials is None:
            return client_config(SecurityState(servers), client, wishes)
        host, bad = self.get_container_host_ip(), self._bad_ports()
        addresses = {
            name: ",".join(f"{host}:{self.get_exposed_port(port)}" for port in ports)
            for name, ports in bad.items()
        }
        state = SecurityState(servers, self._security.name, self._credentials.name, addresses)
        return client_config(state, client, wishes)

    def _ports(self) -> range:
        """Return the ports of the brokers in the container."""
        return range(PORT, PORT + self._brokers)

    def _bad_ports(self) -> dict[str, range]:
        """Return the ports in the container that show a bad certificate, by what is wrong."""
        if self._security is None or not self._security.is_tls:
            return {}
        count = len(BAD_CERTIFICATES)
        end = BAD_PORT + self._brokers * count
        return {bad: range(BAD_PORT + n, end, count) for n, bad in enumerate(BAD_CERTIFICATES)}

    def get_bootstrap_server(self) -> str:
        """Return `host:port` of every broker, for clients on this machine."""
        host = self.get_container_host_ip()
        return ",".join(f"{host}:{self.get_exposed_port(port)}" for port in self._ports())

    @property
    def control(self) -> HttpControl:
        """The control calls: faults, time, actions and state, as on `tidelog.run()`."""
        host, port = self.get_container_host_ip(), self.get_exposed_port(CONTROL_PORT)
        return HttpControl(f"http://{host}:{port}", self._token)


def _archive(folder: str, owner: int) -> bytes:
    """Return an archive of a folder's files, which only a user of the container may read."""

    def own(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = owner
        return entry

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(Path(folder), CREDENTIALS, filter=own)
    return data.getvalue()
