"""SASL mechanisms of a listener: what the server says.

An exchange is pure: bytes in, bytes out. `network/authentication.py` carries it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidelog.config.security_keys import (
    BEARER,
    MECHANISMS,
    UNSECURED_VALIDATOR,
    VALIDATORS,
)
from tidelog.security.jaas import login_entry
from tidelog.security.oauthbearer import BearerServer, Rules
from tidelog.security.plain import PlainServer, users_of
from tidelog.security.scram import SCRAM, ScramServer
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.listeners import ListenerSettings
    from tidelog.seams import Runtime
    from tidelog.security.oauthbearer import Verified
    from tidelog.security.scram import Credentials

__all__ = ["ServerExchange", "server_exchanges"]


_HANDLER = "sasl.server.callback.handler.class"


class ServerExchange(Protocol):
    """A server's side of one authentication."""

    user: str | None
    """The user's name, once the exchange is complete."""
    expires_ms: int | None
    """When the credential ends, in milliseconds since 1970, if it does."""
    is_of_token: bool
    """Whether a delegation token proved the user."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to a client's token; RefusedError."""
        ...


def server_exchanges(
    settings: ListenerSettings,
    runtime: Runtime,
    credentials: Callable[[], Credentials],
    ends: list[Callable[[], None]],
) -> dict[str, Callable[[], ServerExchange]]:
    """Return what begins an exchange of each mechanism that a listener has; ConfigError. `ends`
    gets what ends their background work."""
    key = settings.key("sasl.enabled.mechanisms")
    mechanisms = settings.value("sasl.enabled.mechanisms")
    if not mechanisms:
        raise ConfigError(key, f"{key}: No SASL mechanisms are enabled")
    exchanges: dict[str, Callable[[], ServerExchange]] = {}
    rng = runtime.rng
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            names = ", ".join(MECHANISMS)
            raise ConfigError(key, f"{key}: {mechanism} is not supported; there are {names}")
        jaas = settings.key("sasl.jaas.config", mechanism)
        entry = login_entry(jaas, settings.value("sasl.jaas.config", mechanism), mechanism)
        _check_handler(settings, mechanism)
        if mechanism == "PLAIN":
            exchanges[mechanism] = partial(PlainServer, users_of(entry.options))
        elif mechanism in SCRAM:
            exchanges[mechanism] = partial(
                lambda scram: ScramServer(scram, credentials(), lambda: rng.bytes(16).hex()),
                SCRAM[mechanism],
            )
        else:
            rules = Rules.of(jaas, entry.options)
            verify = _verifier(settings, rules, runtime, ends)
            exchanges[mechanism] = partial(BearerServer, verify)
    return exchanges


def _check_handler(settings: ListenerSettings, mechanism: str) -> None:
    """Refuse a class that checks clients otherwise than the mechanism does; ConfigError."""
    handler = settings.value(_HANDLER, mechanism)
    key = settings.key(_HANDLER, mechanism)
    if mechanism != BEARER and key.endswith(f".{mechanism.lower()}.{_HANDLER}"):
        raise ConfigError(key, f"{key}: only {BEARER} has one")
    if handler is not None and handler not in VALIDATORS:
        raise ConfigError(key, f"{key}: {handler} is none of {', '.join(VALIDATORS)}")


def _verifier(
    settings: ListenerSettings, rules: Rules, runtime: Runtime, ends: list[Callable[[], None]]
) -> Callable[[str], Verified]:
    """Return what checks tokens of OAUTHBEARER; ConfigError."""
    handler = settings.value(_HANDLER, BEARER)
    wall_ms = runtime.clock.wall_ms
    if handler is None or handler == UNSECURED_VALIDATOR:
        return lambda value: rules.verify(value, wall_ms())
    url = settings.value("sasl.oauthbearer.jwks.endpoint.url", BEARER)
    key = settings.key("sasl.oauthbearer.jwks.endpoint.url", BEARER)
    if url is None:
        raise ConfigError(key, f"{key}: is missing, and {_HANDLER} checks signed tokens")
    try:
        from tidelog.security.signed_tokens import (  # noqa: PLC0415 - an extra
            Expected,
            SignedTokens,
        )
    except ModuleNotFoundError:
        raise ConfigError(
            key, f"{key}: signed tokens need PyJWT: pip install 'tidelog[security]'"
        ) from None
    from tidelog.security.jwks import KeySet, Pauses  # noqa: PLC0415 - few listeners have keys

    pauses = Pauses(
        settings.value("sasl.oauthbearer.jwks.endpoint.refresh.ms", BEARER),
        settings.value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", BEARER),
        settings.value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", BEARER),
    )
    expected = Expected.of(settings, BEARER)
    keys = KeySet(key, url, pauses, runtime)
    ends.append(keys.close)
    return SignedTokens(expected, keys, wall_ms).verify
