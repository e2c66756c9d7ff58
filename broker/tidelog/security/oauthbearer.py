"""SASL OAUTHBEARER (RFC 7628), and unsecured tokens, which are for tests.

An unsecured token is a JWS of algorithm `none`: anyone can make one. `signed_tokens.py` checks
others. Kafka: OAuthBearerSaslServer, OAuthBearerUnsecuredValidatorCallbackHandler,
OAuthBearerUnsecuredJws.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tidelog.security.refused import RefusedError
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BearerServer", "Rules", "TokenError", "Verified", "is_time"]

SKEW_MS_MAX = 2**31 - 1
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_AUTH = re.compile(r"([\w]+) +([-_~+/.a-zA-Z0-9]+=*)")


class Verified(NamedTuple):
    """An acceptable token: the user, and its end in milliseconds since 1970."""

    user: str
    expires_ms: int


class TokenError(Exception):
    """A token is refused: the status that the client gets, and the scope that it lacks."""

    def __init__(self, status: str, scope: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.scope = scope


class Rules(NamedTuple):
    """What an unsecured token must have."""

    principal_claim: str
    scope_claim: str
    scopes: frozenset[str]
    skew_ms: int

    @classmethod
    def of(cls, key: str, options: Mapping[str, str]) -> Rules:
        """Return those of a login module's options; ConfigError names `key`."""
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not re.fullmatch(r"[0-9]{1,10}", skew) or int(skew) > SKEW_MS_MAX:
            raise ConfigError(key, f"{key}: unsecuredValidatorAllowableClockSkewMs is no number")
        return cls(
            options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub",
            options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope",
            frozenset(options.get("unsecuredValidatorRequiredScope", "").split()),
            int(skew),
        )

    def verify(self, value: str, now_ms: int) -> Verified:
        """Return the user and the end of a token; TokenError."""
        claims = _claims(value)
        if claims is None:
            raise TokenError("invalid_token")
        user = claims.get(self.principal_claim)
        issued, expires = claims.get("iat"), claims.get("exp")
        if not (isinstance(user, str) and user.strip() and is_time(expires)):
            raise TokenError("invalid_token")
        if issued is not None and not (
            is_time(issued) and issued * 1000 - self.skew_ms <= now_ms and expires > issued
        ):
            raise TokenError("invalid_token")
        if now_ms - self.skew_ms >= expires * 1000:
            raise TokenError("invalid_token")
        scopes = _scopes(claims.get(self.scope_claim))
        if not self.scopes <= scopes:
            raise TokenError("insufficient_scope", f"[{', '.join(sorted(self.scopes))}]")
        return Verified(user, int(expires * 1000))


class BearerServer:
    """A server's side. `verify` checks a token; TokenError."""

    is_of_token = False

    def __init__(self, verify: Callable[[str], Verified]) -> None:
        self._verify = verify
        self._error = ""
        self.user: str | None = None
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Check a token. An invalid one is answered with the reason; the client confirms."""
        if token == b"\x01" and self._error:
            raise RefusedError.openly(self._error)
        wanted, value = _parsed(token)
        try:
            user, expires_ms = self._verify(value)
        except TokenError as error:
            self._error = f'{{"status":"{error.status}"'
            if error.scope is not None:
                self._error += f', "scope":"{error.scope}"'
            self._error += "}"
            return self._error.encode()
        if wanted and wanted != user:
            raise RefusedError.openly(
                f"Authentication failed: Client requested an authorization id ({wanted}) that is"
                f" different from the token's principal name ({user})"
            )
        self.user, self.expires_ms = user, expires_ms
        return b""


def _parsed(token: bytes) -> tuple[str, str]:
    """Return the authorization id and the value of the token."""
    match = _FIRST.fullmatch(token.decode("utf-8", "replace"))
    if match is None:
        raise RefusedError("Invalid OAUTHBEARER client first message")
    pairs = dict(part.split("=", 1) for part in match[2].split("\x01") if part)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise RefusedError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth[1].lower() != "bearer":  # Kafka closes, too: it fails to make the text of its answer
        raise ProtocolError(f"Invalid scheme in OAUTHBEARER client first message: {auth[1]}")
    return match[1] or "", auth[2]


def _claims(value: str) -> dict[str, Any] | None:
    """Return the claims of an unsecured token, None for any other text."""
    parts = value.split(".")
    if len(parts) != 3 or parts[2]:
        return None
    try:
        header, claims = (json.loads(_unpadded(part)) for part in parts[:2])
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not (isinstance(header, dict) and isinstance(claims, dict)) or header.get("alg") != "none":
        return None
    return claims


def _scopes(value: object) -> set[str]:
    """Return the scopes of a claim; TokenError. As in Kafka (OAuthBearerUnsecuredJws) a text is one
    scope, whatever blanks are in it."""
    found = [value] if isinstance(value, str) else value or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise TokenError("invalid_token")
    return {each.strip() for each in found if each.strip()}


def _unpadded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def is_time(value: object) -> TypeGuard[float]:
    """Return whether a claim is a time: a number of seconds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
