"""A blocking client for one request at a time, for uses too small for a whole Kafka client.

The handles of `cluster.py`, the pytest fixtures and the console tools for topics, groups and
settings use it. It asks for ApiVersions once and uses the newest version that both sides know, so
it works with Apache Kafka as well.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from tidelog.embedded.cluster_settings import ClusterError
from tidelog_protocol.apis import API
from tidelog_protocol.errors import ErrorCode, error_name
from tidelog_protocol.frames import RequestHeader, request_frame
from tidelog_protocol.messages.cluster import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from tidelog.embedded.client_security import ClientSecurity
    from tidelog_protocol.schema import Message

__all__ = ["Closing", "SimpleClient", "create_topic", "delete_topic", "places_of"]

TIMEOUT_SECONDS = 30.0


class Closing:
    """Base of objects that `with` closes."""

    def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class SimpleClient(Closing):
    """One connection to one broker; OSError if it cannot be opened or breaks."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_s: float = TIMEOUT_SECONDS,
        security: ClientSecurity | None = None,
    ) -> None:
        """Connect to the first of these brokers (`host:port`, separated by commas) that answers;
        ValueError for another form. With `security`, ClusterError if TLS or SASL fail."""
        self._socket, host = _connected(places_of(bootstrap_servers), timeout_s)
        self._correlation_id = 0
        self._served: dict[int, tuple[int, int]] | None = None
        if security is not None:
            self._socket = security.wrapped(self._socket, host)
            try:
                security.authenticate(self.send_and_receive)
            except BaseException:
                self.close()
                raise

    def ask(self, request: Message, *, version_max: int = 32767) -> Any:
        """Send one request and wait for its response message.

        OSError when the connection breaks or the broker does not serve the API.
        """
        api_key = request.API_KEY
        assert api_key is not None, "only requests can be asked"
        if self._served is None:
            self._served = {}  # ApiVersions itself uses version 0, which every broker knows
            asked = self.send_and_receive(ApiVersionsRequest(), 0)
            self._served = {e.api_key: (e.min_version, e.max_version) for e in asked.api_keys}
        api = API[api_key]
        low, high = self._served.get(api_key, (0, -1))
        version = min(api.max_version, high, version_max)
        if version < max(api.min_version, low):
            raise ConnectionError(f"the broker does not serve {api.name}")
        return self.send_and_receive(request, version)

    def send_and_receive(self, request: Message, api_version: int) -> Any:
        """Send one request in a given version and return its response."""
        api_key = request.API_KEY
        assert api_key is not None, "only requests can be sent"
        api = API[api_key]
        self._correlation_id += 1
        header = RequestHeader(api_key, api_version, self._correlation_id, "tidelog")
        self._socket.sendall(b"".join(request_frame(api, header, request)))
        frame = self.receive()
        (correlation_id,) = struct.unpack_from(">i", frame)
        if correlation_id != self._correlation_id:
            raise ConnectionError(
                f"response has correlation id {correlation_id}, request {self._correlation_id}"
            )
        # Response header v1 ends in tagged fields; none are defined.
        offset = 4 + (api.response_header_version(api_version) >= 1)
        return api.response_codec(api_version).decode(frame, offset)

    def receive(self) -> bytes:
        """Receive the next response frame, without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            chunk = self._socket.recv(length - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def places_of(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of `host:port`, separated by commas; ValueError for another
    form."""
    parted = [address.strip().rpartition(":") for address in bootstrap_servers.split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in parted]


def _connected(places: Sequence[tuple[str, int]], timeout_s: float) -> tuple[socket.socket, str]:
    """Return a connection to the first place that takes it, and the host."""
    for place in places[:-1]:
        with suppress(OSError):
            return socket.create_connection(place, timeout_s), place[0]
    return socket.create_connection(places[-1], timeout_s), places[-1][0]


def create_topic(
    bootstrap_server: str,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    replication_factor: int = -1,
) -> None:
    """Create one topic; ClusterError if the broker refuses."""
    from tidelog_protocol.messages.admin import CreateTopicsRequest  # noqa: PLC0415 - heavy table

    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_SECONDS * 1000))
    with SimpleClient(bootstrap_server) as client:
        response = client.ask(request)
    (result,) = response.topics
    _check(f"topic {name}", result.error_code, result.error_message)


def delete_topic(bootstrap_server: str, name: str, *, missing_ok: bool = False) -> None:
    """Delete one topic; ClusterError if the broker refuses."""
    from tidelog_protocol.messages.admin import DeleteTopicsRequest  # noqa: PLC0415 - heavy table

    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name)],
        timeout_ms=int(TIMEOUT_SECONDS * 1000),
    )
    with SimpleClient(bootstrap_server) as client:
        response = client.ask(request)
    (result,) = response.responses
    if missing_ok and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    _check(f"topic {name}", result.error_code, result.error_message)


def _check(what: str, error_code: int, message: str | None) -> None:
    if error_code != ErrorCode.NONE:
        raise ClusterError(f"{what}: {message or error_name(error_code)}")
