"""What a running broker may change of its listeners (KIP-226).

Listeners come and go by `listeners`; one that stays keeps its protocol and its own settings, but
for its TLS stores and limits, and its address. Texts are those of Kafka's DynamicListenerConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.listeners import LISTENER_PREFIX
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.config.broker import BrokerConfig, Endpoint

__all__ = ["LISTENER_KEYS", "check_listener_changes"]

PROTOCOL_MAP = "listener.security.protocol.map"
LISTENER_KEYS = ("listeners", PROTOCOL_MAP)
_ANY_TIME = (
    "max.connections",
    "max.connection.creation.rate",
    "ssl.key.password",
    "ssl.keystore.",
    "ssl.truststore.",
)


def check_listener_changes(old: BrokerConfig, new: BrokerConfig) -> None:
    """Raise ConfigError if a broker with the old settings does not take the new ones."""
    if old.controller_listeners() and not new.controller_listeners():
        raise ConfigError(
            "listeners",
            "requirement failed: controller.listener.names must contain at least one value"
            " appearing in the 'listeners' configuration when running the KRaft controller role",
        )
    before = [*old.client_listeners(), *old.controller_listeners()]
    after = [*new.client_listeners(), *new.controller_listeners()]
    advertised, names = old.advertised_endpoints(), {one.name for one in after}
    if not names.issuperset(one.name for one in advertised):
        raise _invalid(
            f"Advertised listeners '{_set_of(advertised)}' must be a subset of listeners"
            f" '{_set_of(after)}'"
        )
    for name in (one.name for one in before if one.name in names):
        if _fixed(old, name) != _fixed(new, name):
            raise _invalid(
                f"Configs cannot be updated dynamically for existing listener ListenerName({name}),"
                " restart broker or create a new listener for update"
            )
        if old.listener_settings(name).protocol != new.listener_settings(name).protocol:
            raise _invalid(
                f"Security protocol cannot be updated for existing listener ListenerName({name})"
            )


def _fixed(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Return a listener's own settings that hold as long as it is there."""
    own = config.given_with_prefix(f"{LISTENER_PREFIX}{listener.lower()}.")
    return {key: value for key, value in own.items() if not key.startswith(_ANY_TIME)}


def _set_of(endpoints: Iterable[Endpoint]) -> str:
    return f"Set({', '.join(f'ListenerName({one.name})' for one in endpoints)})"


def _invalid(reason: str) -> ConfigError:
    return ConfigError(
        "listeners",
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for configuration"
        " Invalid dynamic configuration",
    )
