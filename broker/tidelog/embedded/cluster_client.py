"""Blocking client that routes each request to a broker able to answer it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tidelog.control.errors import ClusterError
from tidelog.embedded.simple_client import Closing, SimpleClient, places_of
from tidelog_protocol.messages.cluster import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.embedded.client_security import ClientSecurity
    from tidelog_protocol.schema import Message

__all__ = ["BrokerGoneError", "ClusterClient", "Servers", "opened", "reached"]

Servers = str | Mapping[str, str]
"""`host:port` of brokers, or properties of a client as `client_config("tidelog")` returns them."""


@contextmanager
def reached(bootstrap_servers: str) -> Iterator[None]:
    """Raise a ClusterError with the address if no broker there answers, or if it is none."""
    try:
        places_of(bootstrap_servers)
    except ValueError:
        raise ClusterError(f"{bootstrap_servers!r} is not HOST:PORT[,HOST:PORT...]") from None
    try:
        yield
    except OSError as error:
        text = f"no answer from {bootstrap_servers}: {error.strerror or error}"
        raise ClusterError(text) from error


@contextmanager
def opened(servers: Servers) -> Iterator[ClusterClient]:
    """Yield a client of these brokers, and close it. ClusterError if no broker answers, or if the
    properties do not fit."""
    if isinstance(servers, str):
        with reached(servers), ClusterClient(servers) as client:
            yield client
        return
    from tidelog.embedded.client_security import ClientSecurity  # noqa: PLC0415 - few have it
    from tidelog_storage.config_key import ConfigError  # noqa: PLC0415 - too

    address = servers.get("bootstrap.servers", "")
    try:
        security = ClientSecurity(servers)
    except ConfigError as error:
        raise ClusterError(error.message) from None
    with reached(address), ClusterClient(address, security) as client:
        yield client


class BrokerGoneError(OSError):
    """A broker of the cluster does not answer; the text is one line."""


class ClusterClient(Closing):
    """A connection to the bootstrap broker, and one to each other broker that is needed."""

    def __init__(self, bootstrap_servers: str, security: ClientSecurity | None = None) -> None:
        """Take the arguments of `SimpleClient`."""
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._bootstrap = self._connect(bootstrap_servers)
        self._clients: dict[int, SimpleClient] = {}
        self._addresses: dict[int, str] = {}

    def _connect(self, servers: str) -> SimpleClient:
        return SimpleClient(servers, security=self._security)

    def ask(self, request: Message, *, version_max: int = 32767) -> Any:
        """Ask any broker; see `SimpleClient.ask`."""
        return self._bootstrap.ask(request, version_max=version_max)

    def topics(self, names: Sequence[str] | None) -> list[Any]:
        """Return topics from Metadata (all if None), including those in error."""
        asked = None
        if names is not None:
            asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        self._addresses = {
            broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers
        }
        return list(answer.topics)

    def nodes(self) -> list[int]:
        """Return the ids of the live brokers."""
        self.topics([])
        return sorted(self._addresses)

    def broker(self, node_id: int) -> SimpleClient:
        """Return a connection to a broker; BrokerGoneError if it is away."""
        if not self._addresses:
            self.topics([])
        client = self._clients.get(node_id)
        if client is None:
            address = self._addresses.get(node_id)
            if address is None:
                raise BrokerGoneError(f"there is no broker {node_id}")
            try:
                client = self._clients[node_id] = self._connect(address)
            except OSError as error:
                reason = error.strerror or error
                raise BrokerGoneError(f"broker {node_id} at {address}: {reason}") from error
        return client

    def close(self) -> None:
        """Close all connections."""
        for client in (self._bootstrap, *self._clients.values()):
            client.close()

    def forget_brokers(self) -> None:
        """Close the connections to single brokers: one may have gone."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def reconnect(self) -> None:
        """Connect to any broker that answers: the one before may have gone."""
        self.forget_brokers()
        for address in (self._bootstrap_servers, *self._addresses.values()):
            with suppress(OSError):
                bootstrap = self._connect(address)
                self._bootstrap.close()
                self._bootstrap = bootstrap
                return
