"""Delegation tokens (KIP-48): their secrets, and what SCRAM finds when a client logs in with one.

A token's secret, the HMAC of its id by `delegation.token.secret.key`, is never stored: each node
computes it. Kafka: DelegationTokenManager, DelegationTokenCache.
"""

from __future__ import annotations

import base64
import hmac
from functools import lru_cache
from typing import TYPE_CHECKING

from tidelog.security.principal import Principal
from tidelog.security.scram import TokenLogin, of_password

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.security.scram import Scram
    from tidelog_protocol.messages.metadata_records import (
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

__all__ = ["is_of", "token_hmac", "token_logins"]

SALT_BYTES = 20
CREDENTIALS_MAX = 1000  # that are kept: one for each token and mechanism


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the secret of a token."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def is_of(token: DelegationTokenRecord, principal: Principal) -> bool:
    """Return whether a principal owns a token or may renew it."""
    return str(principal) in (token.owner, *token.renewers)


def token_logins(
    tokens: Callable[[], Mapping[str, DelegationTokenRecord]],
    secret: str | None,
    draw: Callable[[int], bytes],
) -> Callable[[str, Scram], TokenLogin | None]:
    """Return what finds a token by its id. `draw` returns random bytes, for the salt.

    What a login is checked with costs up to 3 ms, and hundreds of executors log in with one token:
    it is computed once, as Kafka does when it learns of a token.
    """

    @lru_cache(CREDENTIALS_MAX)
    def credential(token_id: str, scram: Scram) -> UserScramCredentialRecord:
        # The password of a client is the secret as text.
        password = base64.b64encode(token_hmac(secret or "", token_id)).decode()
        return of_password(scram, token_id, password, draw(SALT_BYTES))

    def find(token_id: str, scram: Scram) -> TokenLogin | None:
        token = tokens().get(token_id)
        if token is None or not secret:
            return None
        owner = Principal.parse(token.owner).name
        return TokenLogin(owner, token.expiration_timestamp, credential(token_id, scram))

    return find
