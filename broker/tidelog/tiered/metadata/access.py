"""How clients of the metadata topic reach the brokers: which listener, and its TLS and SASL.

The listener is that of `remote.log.metadata.manager.listener.name`, else the one between brokers.
Its settings hold; those after `common.client.` win, as a Kafka's clients have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import ListenerSettings

__all__ = ["CLIENTS", "client_settings", "knows", "listener_of", "mechanism_of"]

CLIENTS = "remote.log.metadata.common.client."
_MECHANISM = "sasl.mechanism"
_SECURITY = (
    _MECHANISM,
    "sasl.jaas.config",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    *(f"ssl.keystore.{each}" for each in ("certificate.chain", "key")),
    *(f"ssl.keystore.{each}" for each in ("location", "password", "type")),
    *(f"ssl.truststore.{each}" for each in ("certificates", "location", "password", "type")),
)


def knows(key: str) -> bool:
    """Return whether a setting has an effect."""
    return key.startswith(CLIENTS) and key[len(CLIENTS) :] in _SECURITY


def listener_of(config: BrokerConfig) -> str:
    """Return the name of the listener."""
    named = config.remote_log_metadata_manager_listener_name
    return config.inter_broker_listener() if named is None else named.upper()


def client_settings(config: BrokerConfig) -> ListenerSettings:
    """Return the settings of the listener, with those of the clients over them."""
    prefix = config.remote_log_metadata_manager_impl_prefix + CLIENTS
    return config.listener_settings(listener_of(config)).with_prefix(prefix)


def mechanism_of(config: BrokerConfig) -> tuple[str, str]:
    """Return the SASL mechanism, behind the key that names it."""
    key = config.remote_log_metadata_manager_impl_prefix + CLIENTS + _MECHANISM
    if key in config.given:
        return key, config.given[key]
    between = "sasl.mechanism.inter.broker.protocol"
    return between, config.sasl_mechanism_inter_broker_protocol
