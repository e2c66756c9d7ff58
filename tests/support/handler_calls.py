"""Call handlers without connections: `context = make_context(3, 12); handler(context, request)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.network.dispatch import RequestContext
from tidelog.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable


class RecordingPeer:
    """A connection that keeps what deferred requests are answered with."""

    def __init__(self) -> None:
        self.client_host = "192.0.2.1"
        self.client_port = 51234
        self.listener = "PLAINTEXT"
        self.principal = ANONYMOUS
        self.software = ("unknown", "unknown")
        self.is_forwarded = False
        self.responses: list[Any] = []
        self.closed = False
        self.throttles: list[float] = []
        self.callbacks: list[Callable[[], None]] = []

    def close(self) -> None:
        """Note that the handler closed the connection."""
        self.closed = True

    def at_close(self, callback: Callable[[], None]) -> None:
        """Keep what to call when the test closes the connection."""
        self.callbacks.append(callback)

    def throttle(self, seconds: float) -> None:
        """Keep how long the connection is not read."""
        self.throttles.append(seconds)

    def complete(self, context: RequestContext, response: Any) -> None:
        """Keep the response."""
        self.responses.append(response)


def make_context(
    api_key: int, api_version: int, *, client_id: str = "test", peer: RecordingPeer | None = None
) -> RequestContext:
    """A context whose peer records: `context.peer.responses`, `.closed`."""
    return RequestContext(peer or RecordingPeer(), api_key, api_version, 1, client_id)
