"""The security of one listener: its TLS context, and what its connections belong to.

Only listeners that are not PLAINTEXT have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.security.names import NameRules
from tidelog.security.principal import ANONYMOUS, USER, Principal
from tidelog.security.tls import RenewableContext, server_context

if TYPE_CHECKING:
    from tidelog.config.listeners import ListenerSettings

__all__ = ["Guard"]


class Guard:
    """Authenticates the connections of one listener."""

    def __init__(self, settings: ListenerSettings) -> None:
        """ConfigError if its settings do not fit."""
        self.settings = settings
        self.tls = RenewableContext.of(server_context(settings)) if settings.is_tls else None
        self._rules = NameRules(settings.value("ssl.principal.mapping.rules"))

    def renew(self, settings: ListenerSettings) -> None:
        """Use the certificates of these settings for new connections; ConfigError."""
        if self.tls is not None:
            self.tls.current = server_context(settings)

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
