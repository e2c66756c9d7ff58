"""Signed tokens of OAUTHBEARER (JWT), checked by PyJWT of the extra `[security]`.

Their times are checked here, by the broker's clock. Kafka: OAuthBearerValidatorCallbackHandler,
BrokerJwtValidator, VerificationKeyResolverFactory.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import jwt

from tidelog.security.oauthbearer import TokenError, Verified, is_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.config.listeners import ListenerSettings
    from tidelog.security.jwks import KeySet

__all__ = ["Expected", "SignedTokens"]

log = logging.getLogger("tidelog.security.signed_tokens")

_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
    "oct": ("HS256", "HS384", "HS512"),
}
"""What a key of a type may sign with. `none` is not among them."""
RSA_BITS_MIN = 2048
_OPTIONS: Any = {
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_sub", "verify_jti"), False),
    "require": ["exp", "iat"],
}


class Expected(NamedTuple):
    """What a token must have."""

    audience: tuple[str, ...]
    issuer: str | None
    skew_ms: int
    scope_claim: str
    sub_claim: str

    @classmethod
    def of(cls, settings: ListenerSettings, mechanism: str) -> Expected:
        """Return what the settings of a listener say; ConfigError."""

        return cls(
            tuple(settings.value("sasl.oauthbearer.expected.audience", mechanism)),
            settings.value("sasl.oauthbearer.expected.issuer", mechanism),
            settings.value("sasl.oauthbearer.clock.skew.seconds", mechanism) * 1000,
            settings.value("sasl.oauthbearer.scope.claim.name", mechanism),
            settings.value("sasl.oauthbearer.sub.claim.name", mechanism),
        )


class SignedTokens:
    """Checks tokens with the keys of a key set."""

    def __init__(self, expected: Expected, keys: KeySet, wall_ms: Callable[[], int]) -> None:
        self._expected = expected
        self._keys = keys
        self._wall_ms = wall_ms

    def verify(self, value: str) -> Verified:
        """Return the user and the end of a token; TokenError."""
        try:
            return self._verified(self._claims(value))
        except jwt.PyJWTError as error:
            # Clients send what they like: their mistakes are no warnings of the broker's.
            log.debug("a token is refused: %s", error)
            raise TokenError("invalid_token") from None

    def _claims(self, value: str) -> Mapping[str, Any]:
        header = jwt.get_unverified_header(value)
        algorithm, kid = str(header.get("alg")), header.get("kid")
        found = next((each for each in self._keys.keys if _fits(each, kid, algorithm)), None)
        if found is None:
            self._keys.want()
            raise jwt.InvalidTokenError(f"there is no key for {algorithm} with kid {kid!r}")
        key = _key_of(found, algorithm)
        if _is_short(key.key, algorithm):
            raise jwt.InvalidKeyError(f"a key is too short for {algorithm}")
        expected = self._expected
        claims: Mapping[str, Any] = jwt.decode(
            value,
            key,
            algorithms=[algorithm],
            audience=expected.audience or None,
            issuer=expected.issuer,
            options=_OPTIONS,
        )
        return claims

    def _verified(self, claims: Mapping[str, Any]) -> Verified:
        """Check the times, the user and the scopes (ClaimValidationUtils)."""
        expected, now_ms = self._expected, self._wall_ms()
        expires, issued, begins = claims["exp"], claims["iat"], claims.get("nbf", claims["iat"])
        if not (is_time(expires) and is_time(issued) and is_time(begins)):
            raise jwt.InvalidTokenError("a time is no number")
        if now_ms - expected.skew_ms >= expires * 1000 or expires < issued or expires < begins:
            raise jwt.ExpiredSignatureError("it has expired")
        if "nbf" in claims and now_ms + expected.skew_ms < begins * 1000:
            raise jwt.ImmatureSignatureError("it is not valid yet")
        user = claims.get(expected.sub_claim)
        if not (isinstance(user, str) and user.strip()):
            raise jwt.InvalidTokenError(f"the claim {expected.sub_claim} is missing or no name")
        if not _are_scopes(claims.get(expected.scope_claim)):
            raise jwt.InvalidTokenError(f"the claim {expected.scope_claim} is invalid")
        return Verified(user.strip(), int(expires * 1000))


def _are_scopes(value: object) -> bool:
    """Return whether a claim has scopes, each once and none empty. As in BrokerJwtValidator, what
    is no text and no array has none."""
    scopes = [value] if isinstance(value, str) else value
    if not isinstance(scopes, list):
        return True
    names = [each.strip() for each in scopes if isinstance(each, str)]
    return len(names) == len(scopes) == len(set(names)) and all(names)


def _key_of(found: Mapping[str, Any], algorithm: str) -> jwt.PyJWK:
    """Return a key of the set; PyJWTError if it lacks a part."""
    try:
        return jwt.PyJWK(dict(found), algorithm=algorithm)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise jwt.InvalidKeyError(f"a key of the set is invalid: {error!r}") from None


def _is_short(key: Any, algorithm: str) -> bool:
    if isinstance(key, bytes):  # shared: as long as the hash at least (RFC 7518)
        return len(key) * 8 < int(algorithm[-3:])
    return algorithm[:2] in ("RS", "PS") and key.key_size < RSA_BITS_MIN


def _fits(key: Mapping[str, Any], kid: object, algorithm: str) -> bool:
    return (
        (kid is None or key.get("kid") == kid)
        and algorithm in _ALGORITHMS.get(str(key.get("kty")), ())
        and key.get("alg") in (None, algorithm)
        and key.get("use") in (None, "sig")
    )
