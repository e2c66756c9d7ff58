"""TLS and SASL of a blocking client, by the names of Kafka's clients: `security.protocol`,
`sasl.mechanism`, `sasl.jaas.config`, `ssl.*`.

Certificates and mechanisms are those that brokers use among each other (`tidelog.security`).
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tidelog.config.listeners import ListenerSettings
from tidelog.config.security_keys import PROTOCOLS, SaslKeys, TlsKeys
from tidelog.control.credentials.tokens import aiokafka_provider
from tidelog.control.errors import ClusterError
from tidelog.network.peers import tls_reason
from tidelog.runtime import SystemClock, SystemRng
from tidelog.security.conversation import authenticate
from tidelog.security.jaas import login_entry
from tidelog.security.login import Means, is_token, login_of, tokens_of
from tidelog.security.refused import RefusedError
from tidelog.security.tls import client_context
from tidelog_storage.config_key import ConfigError, collect_keys

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Mapping

    from tidelog.security.login import Login
    from tidelog_protocol.schema import Message

__all__ = ["ClientSecurity"]

P = ParamSpec("P")
T = TypeVar("T")

_KEYS = {**collect_keys(TlsKeys), **collect_keys(SaslKeys)}
_MECHANISM = "sasl.mechanism"
_OWN = {"security.protocol", _MECHANISM}
_NOT_SUPPORTED = ("sasl.client.callback.handler.class", "sasl.login.", "sasl.oauthbearer.")
_SUPPORTED = ("sasl.login.callback.handler.class", "sasl.oauthbearer.token.endpoint.url")


class _AtOnce:
    """Runs what a login computes in the caller's thread, which has to wait for it anyway."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it."""
        return function(*args, **kwargs)

    def close(self) -> None:
        """There is nothing to end."""

    async def wait_closed(self) -> None:
        """There is nothing to wait for."""


class ClientSecurity:
    """The security of all connections of a client."""

    def __init__(self, properties: Mapping[str, str], prefix: str = "") -> None:
        """ConfigError if the properties do not fit; it names a key with the prefix, and no secret.
        Properties that are of something else are left alone."""
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            key = f"{prefix}security.protocol"
            raise ConfigError(key, f"{key}: {protocol!r} is none of {', '.join(PROTOCOLS)}")
        for name in properties:
            if name.startswith(_NOT_SUPPORTED) and name not in _SUPPORTED:
                raise ConfigError(prefix + name, f"{prefix}{name} is not supported")
        given = {f"{prefix or '.'}{name}": text for name, text in properties.items()}
        values = {name.replace(".", "_"): key.default for name, key in _KEYS.items()}
        settings = ListenerSettings(values, given, "", protocol).with_prefix(prefix or ".")
        self._mechanism = properties.get(_MECHANISM, "GSSAPI")  # Kafka's default
        self._context: ssl.SSLContext | None = client_context(settings) if settings.is_tls else None
        self._protocol = protocol
        self._login: Login | None = None
        self._aiokafka: Callable[[], dict[str, Any]] = dict
        if settings.is_sasl:
            key = f"{prefix}sasl.jaas.config"
            if "sasl.jaas.config" not in properties:
                raise ConfigError(key, f"{key} is missing beside {prefix}security.protocol")
            means = Means(SystemClock(), SystemRng(), _AtOnce())
            self._login = login_of(settings, prefix + _MECHANISM, self._mechanism, means)
            entry = login_entry(key, properties["sasl.jaas.config"], self._mechanism)
            self._aiokafka = partial(_aiokafka_sasl, settings, key, self._mechanism, entry.options)

    @staticmethod
    def names(name: str) -> bool:
        """Whether a client's property is one of these."""
        return name in _OWN or name.startswith(("ssl.", "sasl."))

    def aiokafka_config(self) -> dict[str, Any]:
        """Return this as the keywords of a client of aiokafka."""
        config: dict[str, Any] = {"security_protocol": self._protocol, **self._aiokafka()}
        if self._context is not None:
            config["ssl_context"] = self._context
        return config

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        """Begin TLS on a new connection, if it is asked for. ClusterError if that fails."""
        if self._context is None:
            return plain
        try:
            return self._context.wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            plain.close()
            raise ClusterError(f"{host}: {tls_reason(error)}") from None

    def authenticate(self, ask: Callable[[Message, int], Any]) -> None:
        """Authenticate a new connection; `ask` sends a request on it. ClusterError if the broker
        refuses."""
        if self._login is None and self._context is None:
            return

        async def ask_at_once(request: Message, version: int) -> Any:
            return ask(request, version)

        try:
            _complete(authenticate(ask_at_once, self._mechanism, self._login))
        except RefusedError as error:
            raise ClusterError(f"not authenticated: {error}") from None
        except ssl.SSLError as error:
            raise ClusterError(tls_reason(error)) from None


def _aiokafka_sasl(
    settings: ListenerSettings, key: str, mechanism: str, options: Mapping[str, str]
) -> dict[str, Any]:
    config: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        tokens = tokens_of(settings, key, options, SystemClock())
        return config | {"sasl_oauth_token_provider": aiokafka_provider(tokens)}
    if is_token(options):
        raise ConfigError(key, f"{key}: tokenauth=true is not known to aiokafka")
    return config | {
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def _complete(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run what never waits: its requests block."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("a login waits for nothing but its answers")
