"""The clients' side of the mechanisms, each by a few functions of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

AUDIENCE, ISSUER = "the brokers", "https://issuer.example"
NONCE = "a-client-nonce"


def key() -> Any:
    """A private key of RSA, the same for all cases of a run."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    global _KEY
    if _KEY is None:
        _KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return _KEY


_KEY: Any = None


def key_set() -> dict[str, Any]:
    """The public key as a JSON Web Key Set."""
    numbers = key().public_key().public_numbers()
    public = {"n": _number(numbers.n), "e": _number(numbers.e)}
    return {"keys": [{"kty": "RSA", "kid": "first", "alg": "RS256", "use": "sig", **public}]}


def encoded(data: bytes) -> str:
    """Base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def unsigned(header: dict[str, Any] | None = None, /, **claims: Any) -> str:
    """A token of algorithm `none`; claims without a value are left out."""
    known = {key: value for key, value in claims.items() if value is not None}
    head = {key: value for key, value in (header or {"alg": "none"}).items() if value is not None}
    parts = [head, known]
    return ".".join([*(encoded(json.dumps(part).encode()) for part in parts), ""])


def signed(header: dict[str, Any] | None = None, /, **claims: Any) -> str:
    """A token that the key has signed."""
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA256

    head = {"alg": "RS256", "kid": "first", "typ": "JWT", **(header or {})}
    text = unsigned(head, **claims)[:-1]
    return f"{text}.{encoded(key().sign(text.encode(), padding.PKCS1v15(), SHA256()))}"


def good(**changes: Any) -> dict[str, Any]:
    """The claims of a good token, but for some."""
    now = int(time.time())
    claims = {"sub": "dave", "iat": now, "exp": now + 3600, "iss": ISSUER, "aud": AUDIENCE}
    return {**claims, "scope": "read write", **changes}


def bearer(token: str, authzid: str = "", more: str = "") -> bytes:
    """The first message of OAUTHBEARER."""
    wanted = f"a={authzid}" if authzid else ""
    return f"n,{wanted},\x01auth=Bearer {token}{more}\x01\x01".encode()


class Scram:
    """One conversation of SCRAM."""

    def __init__(self, mechanism: str, name: str, password: str, more: str = "") -> None:
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password
        self.bare = f"n={name},r={NONCE}{more}"
        self._said = b""
        self._salted = b""

    def final(self, first: str, *, nonce: str = "", channel: str = "biws") -> bytes:
        """The last message, after the server's first one."""
        parts = dict(part.split("=", 1) for part in first.split(","))
        salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
        password = self._password.encode()
        self._salted = hashlib.pbkdf2_hmac(self._hash, password, salt, iterations)
        bare = f"c={channel},r={nonce or parts['r']}"
        self._said = f"{self.bare},{first},{bare}".encode()
        client_key = hmac.digest(self._salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored, self._said, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def proves(self, last: str) -> bool:
        """Whether the server's last message shows that it knows the password's hash."""
        server_key = hmac.digest(self._salted, b"Server Key", self._hash)
        expected = hmac.digest(server_key, self._said, self._hash)
        return last == f"v={base64.b64encode(expected).decode()}"
