"""What secures connections to other nodes: `peer_security.py`, unless they are PLAINTEXT."""

# ruff: noqa: PLC0415 - only nodes with security import it

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import ListenerSettings
    from tidelog.network.peer_security import PeerSecurity
    from tidelog.seams import Executor, Runtime

    SettingsOf = Callable[[BrokerConfig], ListenerSettings]

__all__ = ["PeerSecurities"]

log = logging.getLogger("tidelog.network.peers")


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
            from tidelog.security.trust import check_trust

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
        from tidelog.network.peer_security import PeerSecurity
        from tidelog.security.login import Means

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
