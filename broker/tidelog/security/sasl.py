"""SASL mechanisms of a listener: what the server says.

An exchange is pure: bytes in, bytes out. `network/authentication.py` carries it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidelog.config.security_keys import MECHANISMS
from tidelog.security.jaas import login_entry
from tidelog.security.oauthbearer import BearerServer, Rules
from tidelog.security.plain import PlainServer, users_of
from tidelog.security.scram import SCRAM, ScramServer
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.listeners import ListenerSettings
    from tidelog.seams import Runtime
    from tidelog.security.scram import Credentials

__all__ = ["ServerExchange", "server_exchanges"]


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
    settings: ListenerSettings, runtime: Runtime, credentials: Callable[[], Credentials]
) -> dict[str, Callable[[], ServerExchange]]:
    """Return what begins an exchange of each mechanism that a listener has; ConfigError."""
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
        if mechanism == "PLAIN":
            exchanges[mechanism] = partial(PlainServer, users_of(entry.options))
        elif mechanism in SCRAM:
            exchanges[mechanism] = partial(
                lambda scram: ScramServer(scram, credentials(), lambda: rng.bytes(16).hex()),
                SCRAM[mechanism],
            )
        else:
            rules = Rules.of(jaas, entry.options)
            exchanges[mechanism] = partial(BearerServer, rules, runtime.clock.wall_ms)
    return exchanges
