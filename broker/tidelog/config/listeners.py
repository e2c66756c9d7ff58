"""The settings of one listener: its own, else those of all listeners.

Kafka: AbstractConfig.valuesWithPrefixOverride, ListenerName.configPrefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.config.keys import ProcessKeys
from tidelog.config.security_keys import (
    BEARER,
    PROTOCOLS,
    UNSECURED_VALIDATOR,
    SaslKeys,
    TlsKeys,
)
from tidelog_storage.config_key import ConfigError, collect_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog_storage.config_key import ConfigKey

__all__ = [
    "CLUSTER_WIDE_LIMITS",
    "LISTENER_PREFIX",
    "ListenerSettings",
    "broken_listeners",
    "check_listener_name",
    "listed",
    "parse_own",
    "security_protocols",
    "shared_port",
]

LISTENER_PREFIX = "listener.name."
CLUSTER_WIDE_LIMITS = ("max.connection.creation.rate", "max.connections")
"""Settings of one listener that all brokers may share."""
_OWN = {
    **collect_keys(TlsKeys),
    **collect_keys(SaslKeys),
    **{name: key for name, key in collect_keys(ProcessKeys).items() if name in CLUSTER_WIDE_LIMITS},
}
_NEVER_OWN = {
    "security.inter.broker.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
    "connection.failed.authentication.delay.ms",
}


class ListenerSettings:
    """What one listener follows."""

    def __init__(
        self, values: Mapping[str, object], given: Mapping[str, str], listener: str, protocol: str
    ) -> None:
        """`values` are those of all listeners, by Kafka's names with underscores."""
        self._values = values
        self._given = given
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        self._over: str | None = None
        self.listener = listener
        self.protocol = protocol

    @property
    def is_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        """Whether its clients authenticate by SASL."""
        return self.protocol.startswith("SASL")

    @property
    def takes_unsecured_tokens(self) -> bool:
        """Whether its clients may show tokens of OAUTHBEARER that anyone can make."""
        handler = self.value("sasl.server.callback.handler.class", BEARER)
        is_unsecured = handler in (None, UNSECURED_VALIDATOR)
        return is_unsecured and BEARER in self.value("sasl.enabled.mechanisms")

    def with_prefix(self, prefix: str) -> ListenerSettings:
        """Return these settings, with those that have this prefix over them."""
        settings = ListenerSettings(self._values, self._given, self.listener, self.protocol)
        settings._over = prefix
        return settings

    def key(self, name: str, mechanism: str | None = None) -> str:
        """Return the key that gives the value: what an error names."""
        own = f"{self._prefix}{name}"
        if self._over is not None and f"{self._over}{name}" in self._given:
            return f"{self._over}{name}"
        if mechanism is not None:
            of_mechanism = f"{self._prefix}{mechanism.lower()}.{name}"
            if of_mechanism in self._given or name == "sasl.jaas.config":
                return of_mechanism
        return own if own in self._given else name

    def value(self, name: str, mechanism: str | None = None) -> Any:
        """Return a value; ConfigError if the listener's own is invalid."""
        key = self.key(name, mechanism)
        if key != name:
            text = self._given.get(key)
            return None if text is None else parse_own(key, text, _OWN[name])
        return self._values[name.replace(".", "_")]

    def is_own(self, name: str) -> bool:
        """Whether the listener has its own value."""
        return f"{self._prefix}{name}" in self._given


def check_listener_name(name: str) -> ConfigKey | None:
    """Return the key behind `listener.name.<listener>.[<mechanism>.]<key>`; None if there is none.
    Listener and mechanism are in lower case: Kafka reads no others."""
    if not name.startswith(LISTENER_PREFIX) or name != name.lower():
        return None
    parts = name[len(LISTENER_PREFIX) :].split(".")
    for start in (1, 2):
        key = _OWN.get(".".join(parts[start:]))
        if key is not None and key.name not in _NEVER_OWN and all(parts[:start]):
            return key
    return None


def listed(entries: Sequence[str]) -> str:
    """Return entries of `listeners` as Kafka's texts have them."""
    return f"[{', '.join(entries)}]"


def broken_listeners(key: str, entries: Sequence[str], reason: str) -> ConfigError:
    """Return the error of listeners that no broker can have (Kafka's AbstractKafkaConfig)."""
    return ConfigError(key, f"Error creating broker listeners from '{listed(entries)}': {reason}")


def shared_port(addresses: Sequence[tuple[str, int]], entries: Sequence[str]) -> str | None:
    """Return why these listeners cannot share a port: only an IPv4 and an IPv6 address may."""
    by_port: dict[int, list[str]] = {}
    for host, port in addresses:
        if port:
            by_port.setdefault(port, []).append(host)
    where = f"listeners: {listed(entries)}"
    for port, hosts in by_port.items():
        kinds = sorted(filter(None, (_address_kind(host) for host in hosts)))
        if len(hosts) == 1 or (kinds == [4, 6] and len(hosts) == 2):
            continue
        if len(kinds) == 2 and kinds != [4, 6]:
            return (
                "If you have two listeners on the same port then one needs to be IPv4 and the other"
                f" IPv6, {where}, port: {port}"
            )
        if kinds and kinds != [4, 6]:
            return (
                "Each listener must have a different port unless exactly one listener has an IPv4"
                f" address and the other IPv6 address, {where}, port: {port}"
            )
        return f"Each listener must have a different port, {where}"
    return None


def _address_kind(host: str) -> int:
    """Return 4 or 6 for an IP address, 0 for a name."""
    if ":" in host:
        return 6
    parts = host.split(".")
    return 4 if len(parts) == 4 and all(part.isascii() and part.isdigit() for part in parts) else 0


def security_protocols(text: str) -> dict[str, str]:
    """Return the protocol of each listener that listener.security.protocol.map names; ConfigError
    for another form."""
    name, protocols = "listener.security.protocol.map", dict[str, str]()
    for entry in filter(None, (part.strip() for part in text.split(","))):
        listener, colon, protocol = entry.rpartition(":")
        if not (colon and listener):
            raise ConfigError(name, f"{name}: {entry!r} is not of the form LISTENER:PROTOCOL")
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(name, f"Invalid security protocol `{protocol}` defined in {name}")
        protocols[listener.upper()] = protocol.upper()
    return protocols


def parse_own(key: str, text: str, declared: ConfigKey) -> Any:
    """Return the value that a listener's own key has; ConfigError."""
    try:
        return declared.parse(text)
    except ConfigError as error:
        raise ConfigError(key, error.message.replace(declared.name, key)) from None
