"""The security of one listener: its TLS context, and what its connections belong to.

Only listeners that are not PLAINTEXT have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.security.names import NameRules
from tidelog.security.principal import ANONYMOUS, USER, Principal
from tidelog.security.renewal import check_certificates
from tidelog.security.sasl import server_exchanges
from tidelog.security.tls import RenewableContext, server_context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.config.listeners import ListenerSettings
    from tidelog.seams import Runtime
    from tidelog.security.sasl import ServerExchange
    from tidelog.security.scram import Credentials

__all__ = ["Guard"]


class Guard:
    """Authenticates the connections of one listener."""

    def __init__(
        self,
        settings: ListenerSettings,
        runtime: Runtime,
        credentials: Callable[[], Credentials],
    ) -> None:
        """ConfigError if its settings do not fit."""
        self._clock = runtime.clock
        self.settings = settings
        self.tls = RenewableContext.of(server_context(settings)) if settings.is_tls else None
        rules = "ssl.principal.mapping.rules"
        self._rules = NameRules(settings.value(rules), settings.key(rules))
        self._ends: list[Callable[[], None]] = []
        self.exchanges: Mapping[str, Callable[[], ServerExchange]] = {}
        """What begins an exchange of each SASL mechanism that clients may use."""
        if settings.is_sasl:
            self.exchanges = server_exchanges(settings, runtime, credentials, self._ends)
        self.frame_bytes_max: int = settings.value("sasl.server.max.receive.size")
        """Largest frame in bytes of a client that is not authenticated yet by SASL."""
        delay_ms: int = settings.value("connection.failed.authentication.delay.ms")
        self.failure_delay_s = delay_ms / 1000

    def close(self) -> None:
        """End background work."""
        for end in self._ends:
            end()

    def lifetime_ms(self, mechanism: str, expires_ms: int | None) -> int | None:
        """Return how long a session lasts whose credential ends at `expires_ms`; None: for ever."""
        limits = []
        longest_ms = self.settings.value("connections.max.reauth.ms", mechanism)
        if longest_ms > 0:
            limits.append(longest_ms)
        if expires_ms is not None:
            limits.append(max(expires_ms - self._clock.wall_ms(), 0))
        return min(limits, default=None)

    def renew(self, settings: ListenerSettings) -> None:
        """Use the certificates of these settings for new connections; ConfigError."""
        if self.tls is not None:
            new = server_context(settings)
            check_certificates(self.tls.current.chain, new.chain, settings)
            self.tls.current = new

    def principal_of(self, transport: Any) -> Principal | None:
        """Return what a new connection belongs to; None if no rule knows its certificate's name."""
        if self.settings.protocol != "SSL":
            return ANONYMOUS
        secured = transport.get_extra_info("ssl_object")
        certificate = None if secured is None else secured.getpeercert()
        if not certificate:
            return ANONYMOUS
        name = self._rules.name_of(certificate.get("subject", ()))
        return None if name is None else Principal(USER, name)
