"""One broker of either kind, with listeners for each way to authenticate."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import tidelog
from compat.brokers import SETTINGS
from compat.conformance.sasl.clients import AUDIENCE, ISSUER, key_set
from compat.jvm import FAST_START
from compat.reference import SMALL
from tidelog_bench.peers import apache_kafka
from tidelog_bench.peers.address import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from compat.conformance.door import Brokers

    class SaslDoor(Brokers):
        """A broker, and the addresses of its listeners by their names."""

        addresses: Mapping[str, str]


LISTENERS = ("PLAINTEXT", "SASL", "SIGNED")
USERS = {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret"}
_SECURITY = "org.apache.kafka.common.security"
_USERS = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
_BEARER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required"
_SCRAM = f"{_SECURITY}.scram.ScramLoginModule required;"
DAY_MS = 86_400_000


def sasl_settings(folder: Path) -> dict[str, str]:
    """What both brokers run with."""
    keys = folder / "keys.json"
    folder.mkdir(parents=True, exist_ok=True)
    keys.write_text(json.dumps(key_set()))
    own, signed = "listener.name.sasl", "listener.name.signed"
    handler = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL:SASL_PLAINTEXT,SIGNED:SASL_PLAINTEXT",
        f"{own}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{own}.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule required {_USERS};",
        f"{own}.plain.connections.max.reauth.ms": str(DAY_MS),
        f"{own}.scram-sha-256.sasl.jaas.config": _SCRAM,
        f"{own}.scram-sha-512.sasl.jaas.config": _SCRAM,
        f"{own}.oauthbearer.sasl.jaas.config": _BEARER
        + ' unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="read";',
        f"{signed}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{signed}.oauthbearer.sasl.jaas.config": _BEARER
        + ' unsecuredLoginStringClaim_sub="broker";',
        f"{signed}.oauthbearer.sasl.server.callback.handler.class": handler,
        f"{signed}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{signed}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{signed}.sasl.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "a secret of all brokers",
        "delegation.token.max.lifetime.ms": str(7 * DAY_MS),
        "delegation.token.expiry.time.ms": str(DAY_MS),
    }


class TidelogSasl:
    """A tidelog in one process beside this one."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        ports = free_ports(len(LISTENERS))
        self.addresses: Mapping[str, str] = {
            name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, ports, strict=True)
        }
        listeners = ",".join(f"{name}://{at}" for name, at in self.addresses.items())
        settings = {**SETTINGS, **sasl_settings(folder), **(more or {}), "listeners": listeners}
        self._running = tidelog.run(settings)

    def start(self) -> None:
        """Start it."""
        self._running.start()

    def stop(self) -> None:
        """Kill it: its data is not needed."""
        self._running.kill()
        self._running.stop()


class KafkaSasl(apache_kafka.ApacheKafka):
    """An Apache Kafka with more listeners."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        allowed = (folder / "keys.json").as_uri()
        options = ["-Xmx400m", *FAST_START]
        options += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}"]
        settings = {**SETTINGS, **SMALL, **sasl_settings(folder), **(more or {})}
        super().__init__(folder / "kafka", settings, options)
        ports = free_ports(len(LISTENERS) - 1)
        self.addresses: Mapping[str, str] = {
            "PLAINTEXT": self.bootstrap,
            **{name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS[1:], ports, strict=True)},
        }

    def prepare(self) -> None:
        """Add the listeners; of a key that comes twice the last counts."""
        super().prepare()
        properties = self.folder / "server.properties"
        text = properties.read_text()
        known = dict(line.split("=", 1) for line in text.splitlines())
        more = ",".join(f"{name}://{self.addresses[name]}" for name in LISTENERS[1:])
        protocols = self._settings["listener.security.protocol.map"]
        text += f"listeners={known['listeners']},{more}\n"
        properties.write_text(f"{text}listener.security.protocol.map={protocols}\n")

    def stop(self) -> None:
        """Kill it: its data is not needed."""
        self.end(signal.SIGKILL)
