"""The brokers' settings of a secured cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.credentials.folder import BAD_CERTIFICATES, BROKER, USERS
from tidelog.control.credentials.kinds import MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.control.credentials.folder import Credentials
    from tidelog.control.credentials.kinds import Kind

__all__ = ["bad_listener_count", "listener_of", "secured"]

_PLAINTEXT = "PLAINTEXT://"
_PROTOCOLS = "listener.security.protocol.map"
_INNER = ("BROKER", "CONTROLLER")
_MODULE = "org.apache.kafka.common.security"
_PLAIN = f"{_MODULE}.plain.PlainLoginModule required"


def bad_listener_count(kind: Kind) -> int:
    """Return how many listeners show a bad certificate."""
    return len(BAD_CERTIFICATES) if kind.is_tls else 0


def secured(
    properties: Mapping[str, str], credentials: Credentials, ports: Sequence[int]
) -> dict[str, str]:
    """Return the properties of a broker whose first listener, PLAINTEXT, is secured, with listeners
    for bad certificates at these ports beside it. What the user has set stays."""
    kind = credentials.kind
    listeners, bad_names = properties["listeners"], [listener_of(bad) for bad in BAD_CERTIFICATES]
    host = listeners.split(",", 1)[0].removeprefix(_PLAINTEXT).rpartition(":")[0]
    bad = {name: f"{name}://{host}:{port}" for name, port in zip(bad_names, ports, strict=False)}
    names = [kind.protocol, *bad]
    inner = [name for name in _INNER if f"{name}://" in listeners]
    own = {
        "listeners": ",".join([_renamed(listeners, kind), *bad.values()]),
        _PROTOCOLS: ",".join(f"{name}:{kind.protocol}" for name in (*names, *inner)),
    }
    if "advertised.listeners" in properties:
        advertised = _renamed(properties["advertised.listeners"], kind)
        there = advertised.split(",", 1)[0].partition("://")[2].rpartition(":")[0]
        away = (each.replace(f"://{host}:", f"://{there}:", 1) for each in bad.values())
        own["advertised.listeners"] = ",".join([advertised, *away])
    given = {"super.users": f"User:{USERS[0]};User:{BROKER}"}
    if kind.is_tls:
        given |= _tls(credentials, list(bad))
    if kind.is_sasl:
        given |= _sasl(credentials, names)
    if inner:
        given |= _between(credentials)
    return {**given, **properties, **own}


def listener_of(bad: str) -> str:
    """Return the name of the listener that shows a bad certificate."""
    return bad.upper().replace("-", "_")


def _renamed(listeners: str, kind: Kind) -> str:
    """Return listeners whose first has the protocol's name."""
    return listeners.replace(_PLAINTEXT, f"{kind.protocol}://", 1)


def _tls(credentials: Credentials, bad_names: Sequence[str]) -> dict[str, str]:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": credentials.broker_file(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": credentials.trusted,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    }
    if credentials.kind.has_client_certificates:
        settings["ssl.client.auth"] = "required"
    for name, bad in zip(bad_names, BAD_CERTIFICATES, strict=False):
        key = f"listener.name.{name.lower()}.ssl.keystore.location"
        settings[key] = credentials.broker_file(bad)
    return settings


def _sasl(credentials: Credentials, names: Sequence[str]) -> dict[str, str]:
    users = " ".join(f'user_{name}="{text}"' for name, text in credentials.passwords.items())
    scram = f"{_MODULE}.scram.ScramLoginModule required;"
    modules = {
        "PLAIN": f"{_PLAIN} {users};",
        "SCRAM-SHA-256": scram,
        "SCRAM-SHA-512": scram,
        "OAUTHBEARER": f"{_MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    settings = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for name in names:
        for mechanism, entry in modules.items():
            prefix = f"listener.name.{name.lower()}.{mechanism.lower()}"
            settings[f"{prefix}.sasl.jaas.config"] = entry
    return settings


def _between(credentials: Credentials) -> dict[str, str]:
    """Return what brokers authenticate to each other with: certificates, or a password that no
    listener of clients knows."""
    kind, password = credentials.kind, credentials.broker_password
    entry = f'{_PLAIN} username="{BROKER}" password="{password}" user_{BROKER}="{password}";'
    settings = {}
    if kind.is_sasl:
        settings["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        settings["sasl.mechanism.controller.protocol"] = "PLAIN"
    for name in map(str.lower, _INNER):
        if kind.is_sasl:
            settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN"
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = entry
        else:
            settings[f"listener.name.{name}.ssl.client.auth"] = "required"
    return settings
