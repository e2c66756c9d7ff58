"""TLS and SASL of connections to other nodes, as the settings of their listeners say.

`PeerChannel` connects with the context, has each connection authenticated before its first request,
and replaces it before its session ends (KIP-368: a new connection in the place of an
authentication on the old one). Channels to PLAINTEXT listeners have none of this.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.security.conversation import authenticate
from tidelog.security.login import Means, login_of
from tidelog.security.tls import client_context
from tidelog.security.trust import check_trust
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import ListenerSettings
    from tidelog.seams import Executor, Runtime
    from tidelog.security.conversation import Ask
    from tidelog.security.login import Login

    SettingsOf = Callable[[BrokerConfig], ListenerSettings]

__all__ = ["PeerSecurities", "PeerSecurity"]

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


class PeerSecurities:
    """Those of the listeners to which a node connects: of brokers, of controllers, and others."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime
        self._executor: Executor | None = None
        self._known: dict[str, PeerSecurity | None] = {}  # by the name of the listener
        self._made: list[tuple[PeerSecurity, SettingsOf]] = []

    def load(self) -> None:
        """Read the files of brokers and controllers, so that the start finds what is wrong;
        ConfigError."""
        self.of_brokers()
        self.of_controllers()
        listener = self._config.inter_broker_listener()
        settings = self._config.listener_settings(listener)
        if settings.is_tls and listener in [one.name for one in self._config.client_listeners()]:
            check_trust(settings, settings)

    def of_brokers(self) -> PeerSecurity | None:
        """Return that of the listener for traffic between brokers; None if it is PLAINTEXT."""
        config, key = self._config, "sasl.mechanism.inter.broker.protocol"
        return self._of(
            config.inter_broker_listener(), key, config.sasl_mechanism_inter_broker_protocol
        )

    def of_controllers(self) -> PeerSecurity | None:
        """Return that of the controllers' listener; None if it is PLAINTEXT."""
        config, key = self._config, "sasl.mechanism.controller.protocol"
        return self._of(
            config.controller_listener_names[0], key, config.sasl_mechanism_controller_protocol
        )

    def _of(self, listener: str, mechanism_key: str, mechanism: str) -> PeerSecurity | None:
        if listener not in self._known:
            self._known[listener] = self.new(
                lambda config: config.listener_settings(listener), mechanism_key, mechanism
            )
        return self._known[listener]

    def new(
        self, settings_of: SettingsOf, mechanism_key: str, mechanism: str
    ) -> PeerSecurity | None:
        """Return the security of connections with these settings; None for PLAINTEXT. ConfigError,
        also for `mechanism_key`, which names the mechanism."""
        settings = settings_of(self._config)
        if settings.protocol == "PLAINTEXT":
            return None
        runtime = self._runtime
        if self._executor is None:
            self._executor = runtime.new_executor("sasl", 1)
        means = Means(runtime.clock, runtime.rng, self._executor)
        made = PeerSecurity(settings, mechanism_key, mechanism, means)
        self._made.append((made, settings_of))
        return made

    def renew(self, config: BrokerConfig) -> None:
        """Read the key and trust stores again, for new connections."""
        for made, settings_of in self._made:
            settings = settings_of(config)
            try:
                made.renew(settings)
            except ConfigError as error:
                log.error("connections to %s keep their certificates: %s", settings.listener, error)

    def close(self) -> None:
        """End the thread that computes; no connection begins any more."""
        if self._executor is not None:
            self._executor.close()
