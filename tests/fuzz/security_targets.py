"""What security reads: tokens, sets of keys and the HTTP responses that have them, key stores."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fuzz.mutation import mutated
from fuzz.oracles import Target
from support.logs import NOW
from tidelog.security import jwks
from tidelog.security.oauthbearer import Rules, TokenError
from tidelog.security.signed_tokens import Expected, SignedTokens
from tidelog.security.stores import StoreError, read_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SECRET = b"s" * 64
_EXPECTED = Expected((), None, 0, "scope", "sub")
_RULES = Rules.of("", {})
_CLAIMS = {"sub": "u", "iat": NOW // 1000 - 1, "exp": NOW // 1000 + 9}
_VALUES: list[Any] = [
    *(None, True, 5, -1, 1.5, 1e300, 10**30, "", " ", "a", "\ud800", "AQAB"),
    *([], ["a"], [["a"]], [1], [None], {}, {"a": 1}),
]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


class _Keys:
    """A set of keys that never changes."""

    def __init__(self, keys: Iterable[Mapping[str, Any]]) -> None:
        self.keys = tuple(keys)

    def want(self) -> None:
        """There are no others."""


def _checks(keys: Iterable[Mapping[str, Any]]) -> SignedTokens:
    known: Any = _Keys(keys)
    return SignedTokens(_EXPECTED, known, lambda: NOW)


_SIGNED = _checks([{"kty": "oct", "k": _text(_SECRET)}])


# ---- tokens --------------------------------------------------------------------------------------


def _run_token(data: bytes) -> None:
    """A header and claims, with a zero byte between: the signature is always right."""
    header, _, claims = data.partition(b"\0")
    signed = f"{_text(header)}.{_text(claims)}"
    if b'"none"' in header:
        _RULES.verify(f"{signed}.", NOW)
    else:
        mac = hmac.digest(_SECRET, signed.encode(), "sha256")
        _SIGNED.verify(f"{signed}.{_text(mac)}")


def _tokens() -> list[bytes]:
    return [
        _json({"alg": algorithm}) + b"\0" + _json(_CLAIMS | more)
        for algorithm in ("HS256", "none")
        for more in ({}, {"scope": ["a", "b"]}, {"scope": "a"}, {"nbf": NOW // 1000, "aud": "x"})
    ]


def _mutated_token(data: bytes, seed: int) -> bytes:
    if seed % 4 == 0:
        return mutated(data, seed)
    header, _, claims = data.partition(b"\0")
    rng = random.Random(seed)
    if rng.random() < 0.2:
        return _with_other_value(header, rng) + b"\0" + claims
    return header + b"\0" + _with_other_value(claims, rng)


def _with_other_value(text: bytes, rng: random.Random) -> bytes:
    """Give a name of a JSON object a value of some kind."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if isinstance(values, dict):
        names = [*values, "aud", "iss", "nbf", "scope", "kid", "typ", "crit", "b64"]
        values[rng.choice(names)] = rng.choice(_VALUES)
    return _json(values)


# ---- sets of keys --------------------------------------------------------------------------------

_PUBLIC_KEYS: list[dict[str, str]] = [
    {"kty": "RSA", "n": _text(b"\xc5" * 256), "e": "AQAB"},
    {
        "kty": "EC",  # the base point of P-256
        "crv": "P-256",
        "x": _text(
            bytes.fromhex("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296")
        ),
        "y": _text(
            bytes.fromhex("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5")
        ),
    },
    {"kty": "oct", "k": _text(_SECRET)},
    {"kty": "OKP", "crv": "Ed25519", "x": _text(bytes(range(32)))},
]
_UNPROVED = [
    f"{_text(_json({'alg': algorithm}))}.{_text(_json(_CLAIMS))}.{_text(bytes(64))}"
    for algorithm in ("RS256", "PS512", "ES256", "HS256", "EdDSA")
]


def _run_key_set(data: bytes) -> None:
    checks = _checks(jwks.parsed(data))
    for token in _UNPROVED:
        with suppress(TokenError):
            checks.verify(token)


def _key_sets() -> list[bytes]:
    sets = [_PUBLIC_KEYS, *([each] for each in _PUBLIC_KEYS)]
    return [_json({"keys": keys}) for keys in sets]


def _mutated_key_set(data: bytes, seed: int) -> bytes:
    if seed % 4 == 0:
        return mutated(data, seed)
    rng = random.Random(seed)
    keys = [dict(each) for each in _PUBLIC_KEYS]
    changed = rng.choice(keys)
    name = rng.choice([*changed, "use", "alg", "kid", "d", "p", "key_ops"])
    known = str(changed.get(name, "x"))
    changed[name] = rng.choice([*_VALUES, known[:-2], known + "A", known[::-1], "P-521"])
    return _json({"keys": keys})


def _run_response(data: bytes) -> None:
    jwks.body_of(data)


def _responses() -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\n"
    return [
        head + b"\r\n{}",
        head + b"Content-Length: 2\r\n\r\n{}",
        head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ]


# ---- key stores ----------------------------------------------------------------------------------

_PASSWORD = "secret"


def _run_store(data: bytes) -> None:
    """JKS; PKCS12 is read by a library, which hashes as many times as a store says."""
    if data.startswith(b"\xfe\xed\xfe\xed"):
        digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()
        read_store(data + digest, _PASSWORD, None)
        read_store(data, None, _PASSWORD)


def _store(version: int) -> bytes:
    """A key that is `key`, with a certificate, and a trusted certificate."""
    secret, salt = _PASSWORD.encode("utf-16-be"), bytes(20)
    block = hashlib.sha1(secret + salt).digest()
    octets = salt + bytes(a ^ b for a, b in zip(b"key", block, strict=False))
    octets += hashlib.sha1(secret + b"key").digest()
    locked = b"\x30\x2f\x30\x00\x04" + bytes([len(octets)]) + octets
    kind = b"\0\5X.509" if version == 2 else b""
    certificate = kind + b"\0\0\0\4cert"
    alias = b"\0\1a" + bytes(8)
    return (
        b"\xfe\xed\xfe\xed" + version.to_bytes(4, "big") + b"\0\0\0\2"
        b"\0\0\0\1" + alias + len(locked).to_bytes(4, "big") + locked
        + b"\0\0\0\1" + certificate
        + b"\0\0\0\2" + alias + certificate
    )  # fmt: skip


def _stores() -> list[bytes]:
    # The digest at the end of the second reading is not looked at, but is there.
    return [_store(version) + bytes(20) for version in (1, 2)]


SECURITY_TARGETS = [
    Target("tokens", _run_token, (TokenError,), _tokens, _mutated_token),
    Target("key-sets", _run_key_set, (jwks.KeySetError,), _key_sets, _mutated_key_set),
    Target("key-set-responses", _run_response, (jwks.KeySetError,), _responses),
    Target("key-stores", _run_store, (StoreError,), _stores),
]
