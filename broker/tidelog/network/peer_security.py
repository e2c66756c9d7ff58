"""TLS and SASL of connections to other nodes, as the settings of their listeners say.

`PeerChannel` connects with the context, has each connection authenticated before its first request,
and replaces it before its session ends (KIP-368: a new connection in the place of an
authentication on the old one). Channels to PLAINTEXT listeners have none of this.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.security.conversation import authenticate
from tidelog.security.login import login_of
from tidelog.security.tls import client_context

if TYPE_CHECKING:
    import ssl

    from tidelog.config.listeners import ListenerSettings
    from tidelog.security.conversation import Ask
    from tidelog.security.login import Login, Means

__all__ = ["PeerSecurity"]

log = logging.getLogger("tidelog.network.peers")

SESSION_PART = (0.85, 0.95)  # Kafka's window of a session's time in which it is renewed


class PeerSecurity:
    """The security of all connections to the listeners of one name."""

    def __init__(
        self, settings: ListenerSettings, mechanism_key: str, mechanism: str, means: Means
    ) -> None:
        """ConfigError if the settings do not fit. `mechanism_key` is the setting that names the
        mechanism."""
        self._means = means
        self._mechanism = mechanism
        self._login: Login | None = None
        self._reported: dict[tuple[str, int], str] = {}  # the reason of the last failure
        self.tls: ssl.SSLContext | None = client_context(settings) if settings.is_tls else None
        """The context of new connections."""
        if settings.is_sasl:
            self._login = login_of(settings, mechanism_key, mechanism, means)

    def renew(self, settings: ListenerSettings) -> None:
        """Use the certificates of these settings for new connections; ConfigError."""
        if self.tls is not None:
            self.tls = client_context(settings)

    async def authenticate(self, ask: Ask) -> float | None:
        """Authenticate a new connection; return after how many seconds to replace it, None: never.
        `ask` sends a request on it and returns the response. RefusedError."""
        lifetime_ms = await authenticate(ask, self._mechanism, self._login)
        if not lifetime_ms:
            return None
        return lifetime_ms / 1000 * self._means.rng.uniform(*SESSION_PART)

    def failed(self, address: tuple[str, int], reason: str) -> None:
        """Log that an address cannot be connected to securely: once for each reason."""
        if self._reported.get(address) != reason:
            self._reported[address] = reason
            log.warning("no authenticated connection to %s:%d: %s", *address, reason)

    def succeeded(self, address: tuple[str, int]) -> None:
        """Log the next failure."""
        self._reported.pop(address, None)
