"""Whether brokers with these key and trust stores would connect to each other.

Kafka: SslFactory.SslEngineValidator, which each node asks about its listener for other brokers.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from tidelog.security.tls import client_context, server_context
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from tidelog.config.listeners import ListenerSettings

__all__ = ["check_trust"]

_STEPS_MAX = 10


def check_trust(server: ListenerSettings, client: ListenerSettings) -> None:
    """Raise ConfigError if a node with the settings `client` would not connect to the listener
    `server`, or would not be let in. Names of hosts are not looked at."""
    accepting, connecting = server_context(server), client_context(client)
    accepting.sslobject_class = ssl.SSLObject
    connecting.check_hostname = False
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        connecting.wrap_bio(inward, outward),
        accepting.wrap_bio(outward, inward, server_side=True),
    ]
    try:
        for _ in range(_STEPS_MAX):
            waiting = [side for side in waiting if not _is_done(side)]
            if not waiting:
                return
        reason = "the handshake does not end"
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
    key = client.key("ssl.truststore.location")
    raise ConfigError(
        key,
        f"{key}: brokers would not connect to each other on the listener {server.listener}:"
        f" {reason}: its key store must have a certificate that its trust store trusts",
    )


def _is_done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
