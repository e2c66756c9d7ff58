"""`security=...`: credentials of a cluster, and listeners that ask for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tidelog.config.broker import parse_endpoints
from tidelog.control.credentials.folder import BAD_CERTIFICATES, FOLDER, Credentials
from tidelog.control.credentials.kinds import kind_of
from tidelog.control.credentials.listeners import bad_listener_count, listener_of, secured
from tidelog.control.credentials.state import SecurityState
from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidelog.embedded.nodes import Node
    from tidelog.seams import Runtime
    from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

__all__ = ["Security"]

_DECIDED = (
    "listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
)


class Security:
    """What one cluster has of it."""

    def __init__(
        self,
        kind: str,
        folder: str | os.PathLike[str] | None = None,
        *,
        bad_port: int | None = 0,
    ) -> None:
        """`folder` is where the credentials are; None: in the folder of the data. `bad_port` is the
        first port with a bad certificate; 0: free ones, None: there are none. ClusterError for an
        unknown kind."""
        self._kind = kind_of(kind)
        self._advertised: str | None = None
        self._folder = None if folder is None else os.fspath(folder)
        self._credentials: Credentials | None = None
        self.bad_count = 0 if bad_port is None else bad_listener_count(self._kind)
        """How many listeners of each broker show a bad certificate."""
        self._bad_port = bad_port or 0

    def check(self, settings: Mapping[str, str]) -> None:
        """ClusterError if the user's settings do not go with it."""
        for key in _DECIDED:
            if key in settings:
                raise ClusterError(f"{key}: is set by security {self._kind.name}: remove it")
        self._advertised = settings.get("advertised.listeners")

    def make(self, data_dir: str, host: str) -> None:
        """Make the credentials of brokers that listen at this host, or read those that are there;
        ClusterError if that fails."""
        folder = os.path.abspath(self._folder or f"{data_dir}/{FOLDER}")
        hosts = [host]
        if self._advertised is not None:
            entries = self._advertised.split(",")
            hosts += (parse_endpoints("advertised.listeners", [one])[0].host for one in entries)
        if self._folder is None and os.path.islink(folder):
            raise ClusterError(f"{folder} is a symbolic link: name where it leads to")
        try:
            self._credentials = Credentials.make(folder, self._kind, hosts)
        except OSError as error:
            raise ClusterError(f"cannot write {folder}: {error.strerror}") from error

    def secured(
        self, properties: Mapping[str, str], index: int, free_ports: Sequence[int]
    ) -> dict[str, str]:
        """Return the properties of a broker whose clients need credentials."""
        assert self._credentials is not None, "make() comes first"
        bad_ports, first = free_ports, self._bad_port + index * self.bad_count
        if self._bad_port:
            bad_ports = range(first, first + self.bad_count)
        return secured(properties, self._credentials, bad_ports)

    def scram_users(self, runtime: Runtime) -> list[UserScramCredentialRecord]:
        """Return the credentials of all users, for the metadata of a new cluster."""
        from tidelog.security.scram import SCRAM, of_password  # noqa: PLC0415 - takes time to import

        assert self._credentials is not None, "make() comes first"
        if not self._kind.is_sasl:
            return []
        draw = runtime.rng.bytes
        users = self._credentials.passwords.items()
        return [of_password(scram, *user, draw(20)) for user in users for scram in SCRAM.values()]

    def state(self, bootstrap_servers: str, nodes: Sequence[Node[Any]]) -> SecurityState:
        """Describe it for running brokers."""
        assert self._credentials is not None, "make() comes first"
        running = [node for node in nodes if node.is_running]
        found = {bad: ",".join(_addresses(bad, running)) for bad in BAD_CERTIFICATES}
        return SecurityState(
            bootstrap_servers,
            self._kind.name,
            self._credentials.path,
            {bad: addresses for bad, addresses in found.items() if addresses},
        )


def _addresses(bad: str, nodes: Sequence[Node[Any]]) -> Iterator[str]:
    for node in nodes:
        host = node.bootstrap_server.rpartition(":")[0]
        for endpoint in node.config.client_listeners():
            if endpoint.name == listener_of(bad):
                yield f"{host}:{endpoint.port}"
