"""SASL OAUTHBEARER (RFC 7628) with unsecured tokens, which are for tests.

A token is a JWS of algorithm `none`: anyone can make one. Kafka:
OAuthBearerSaslServer, OAuthBearerUnsecuredValidatorCallbackHandler, OAuthBearerUnsecuredJws.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tidelog.security.refused import RefusedError
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BearerServer", "Rules"]

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_AUTH = re.compile(r"([\w]+) +([-_~+/.a-zA-Z0-9]+=*)")


class Rules(NamedTuple):
    """What a token must have."""

    principal_claim: str
    scope_claim: str
    scopes: frozenset[str]
    skew_ms: int

    @classmethod
    def of(cls, key: str, options: Mapping[str, str]) -> Rules:
        """Return those of a login module's options; ConfigError names `key`."""
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not (skew.isascii() and skew.isdigit()):
            raise ConfigError(key, f"{key}: unsecuredValidatorAllowableClockSkewMs is no number")
        return cls(
            options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub",
            options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope",
            frozenset(options.get("unsecuredValidatorRequiredScope", "").split()),
            int(skew),
        )


class BearerServer:
    """A server's side."""

    is_of_token = False

    def __init__(self, rules: Rules, wall_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._wall_ms = wall_ms
        self._error = ""
        self.user: str | None = None
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Check a token. An invalid one is answered with the reason; the client confirms."""
        if token == b"\x01" and self._error:
            raise RefusedError.openly(self._error)
        wanted, value = _parsed(token)
        problem = self._check(value)
        if problem is not None:
            status, scope = problem
            self._error = f'{{"status":"{status}"'
            if scope is not None:
                self._error += f', "scope":"{scope}"'
            self._error += "}"
            return self._error.encode()
        if wanted and wanted != self.user:
            user, self.user = self.user, None
            raise RefusedError.openly(
                f"Authentication failed: Client requested an authorization id ({wanted}) that is"
                f" different from the token's principal name ({user})"
            )
        return b""

    def _check(self, value: str) -> tuple[str, str | None] | None:
        """Take an acceptable token; return status and scope of the error of another one."""
        rules, claims = self._rules, _claims(value)
        if claims is None:
            return "invalid_token", None
        user = claims.get(rules.principal_claim)
        issued, expires = claims.get("iat"), claims.get("exp")
        now_ms = self._wall_ms()
        if not (isinstance(user, str) and user.strip() and _is_time(expires)):
            return "invalid_token", None
        if issued is not None and not (
            _is_time(issued) and issued * 1000 - rules.skew_ms <= now_ms and expires > issued
        ):
            return "invalid_token", None
        if now_ms - rules.skew_ms >= expires * 1000:
            return "invalid_token", None
        scope = claims.get(rules.scope_claim, [])
        # As in Kafka: a text is one scope, whatever blanks are in it.
        scopes = {scope.strip()} if isinstance(scope, str) else set(scope)
        if not rules.scopes <= scopes:
            return "insufficient_scope", f"[{', '.join(sorted(rules.scopes))}]"
        self.user, self.expires_ms = user, int(expires * 1000)
        return None


def _parsed(token: bytes) -> tuple[str, str]:
    """Return the authorization id and the value of the token."""
    match = _FIRST.fullmatch(token.decode("utf-8", "replace"))
    if match is None:
        raise RefusedError("Invalid OAUTHBEARER client first message")
    pairs = dict(part.split("=", 1) for part in match[2].split("\x01") if part)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise RefusedError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
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


def _unpadded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
