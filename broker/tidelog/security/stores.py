"""Key and trust stores of Java as PEM: PKCS12 and JKS.

PKCS12 is read by `cryptography`, an extra. JKS is Java's own format: a list of entries, each with
an alias, and at its end a digest of the password and the content. Keys in it are encrypted with a
stream of SHA-1 digests of the password (sun.security.provider.JavaKeyStore, KeyProtector).

Python's ssl reads PEM alone.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import encodebytes
from typing import NamedTuple

__all__ = ["Store", "StoreError", "read_store"]

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JKS_PHRASE = b"Mighty Aphrodite"  # Java's salt of the digest
_DIGEST_BYTES = 20
_KEY, _CERTIFICATE = 1, 2  # kinds of entries


class StoreError(ValueError):
    """The store cannot be read; the text has no secrets."""


class Store(NamedTuple):
    """The content of a store, all of it PEM: the first key with its certificates, if any, and
    trusted certificates."""

    key: bytes
    chain: bytes
    trusted: bytes


def read_store(data: bytes, password: str | None, key_password: str | None) -> Store:
    """Return what a store has; StoreError."""
    if data.startswith(_JKS_MAGIC):
        return _read_jks(data, password, key_password or password)
    return _read_pkcs12(data, password)


def _read_pkcs12(data: bytes, password: str | None) -> Store:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise StoreError("PKCS12 needs cryptography (pip install 'tidelog[security]')") from error
    secret = None if password is None else password.encode()
    import warnings  # noqa: PLC0415 - few stores are PKCS12

    try:
        with warnings.catch_warnings():  # stores in BER are no users' mistake
            warnings.simplefilter("ignore")
            content = pkcs12.load_pkcs12(data, secret)
    except ValueError:
        raise StoreError("it is no PKCS12 or JKS store, or the password is wrong") from None
    pem = serialization.Encoding.PEM
    key = b""
    if content.key is not None:
        key = content.key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    own = [] if content.cert is None else [content.cert]
    others = [each.certificate.public_bytes(pem) for each in content.additional_certs]
    chain = b"".join([*(each.certificate.public_bytes(pem) for each in own), *others])
    return Store(key, chain if key else b"", b"".join(others) if key else chain)


# -- JKS -------------------------------------------------------------------------------------------


class _Input:
    """Reads big-endian fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        start, self._position = self._position, self._position + count
        if count < 0 or self._position > len(self._data):
            raise StoreError("the store ends early")
        return self._data[start : self._position]

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        return self.take(self.number(2)).decode("utf-8", "replace")


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> Store:
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(  # noqa: S324 - Java's format
            password.encode("utf-16-be") + _JKS_PHRASE + content
        ).digest()
        if not hmac.compare_digest(expected, digest):
            raise StoreError("it is damaged, or the password is wrong")
    source = _Input(content)
    source.take(4)
    version = source.number()
    if version not in (1, 2):
        raise StoreError(f"its JKS version {version} is unknown")
    key, chain, trusted = b"", b"", []
    for _ in range(source.number()):
        kind = source.number()
        source.text()  # the alias
        source.take(8)  # when it was made
        if kind == _KEY:
            locked = source.take(source.number())
            certificates = [_certificate(source, version) for _ in range(source.number())]
            if not key:
                key = _pem("PRIVATE KEY", _unlock(locked, key_password or ""))
                chain = b"".join(certificates)
        elif kind == _CERTIFICATE:
            trusted.append(_certificate(source, version))
        else:
            raise StoreError(f"its entry of kind {kind} is unknown")
    return Store(key, chain, b"".join(trusted))


def _certificate(source: _Input, version: int) -> bytes:
    if version == 2:
        source.text()  # X.509
    return _pem("CERTIFICATE", source.take(source.number()))


def _pem(label: str, der: bytes) -> bytes:
    name = label.encode()
    return b"-----BEGIN %s-----\n%s-----END %s-----\n" % (name, encodebytes(der), name)


def _unlock(locked: bytes, password: str) -> bytes:
    """Decrypt a key: EncryptedPrivateKeyInfo with Java's own algorithm 1.3.6.1.4.1.42.2.17.1.1."""
    sealed = _octets_of(locked)
    if len(sealed) <= 2 * _DIGEST_BYTES:
        raise StoreError("its key is too short")
    secret = password.encode("utf-16-be")
    block, check = sealed[:_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    plain = bytearray()
    for start in range(_DIGEST_BYTES, len(sealed) - _DIGEST_BYTES, _DIGEST_BYTES):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324 - Java's format
        part = sealed[start : min(start + _DIGEST_BYTES, len(sealed) - _DIGEST_BYTES)]
        plain += bytes(a ^ b for a, b in zip(part, block, strict=False))
    expected = hashlib.sha1(secret + bytes(plain)).digest()  # noqa: S324 - Java's format
    if not hmac.compare_digest(expected, check):
        raise StoreError("the password of its key is wrong")
    return bytes(plain)


def _octets_of(info: bytes) -> bytes:
    """Return the second field of a DER sequence."""
    body, _ = _der(info, 0)
    _, after = _der(body, 0)
    octets, _ = _der(body, after)
    return octets


def _der(data: bytes, start: int) -> tuple[bytes, int]:
    """Return the content of the DER value at `start`, and where the next one begins."""
    source = _Input(data[start:])
    source.take(1)
    length, header = source.number(1), 2
    if length & 0x80:
        header += length & 0x7F
        length = source.number(length & 0x7F)
    return source.take(length), start + header + length
