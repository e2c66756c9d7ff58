"""Java's key stores as PEM."""

from __future__ import annotations

import base64
import hashlib

import pytest

from support.certificates import PASSWORD, authority
from tidelog.security.stores import StoreError, read_store


def sealed(der: bytes, password: str) -> bytes:
    """A key as Java's KeyProtector locks it."""
    secret, salt = password.encode("utf-16-be"), bytes(range(20))
    block, body = salt, b""
    for start in range(0, len(der), 20):
        block = hashlib.sha1(secret + block).digest()
        body += bytes(a ^ b for a, b in zip(der[start : start + 20], block, strict=False))
    octets = salt + body + hashlib.sha1(secret + der).digest()
    algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
    inner = algorithm + b"\x04\x82" + len(octets).to_bytes(2, "big") + octets
    return b"\x30\x82" + len(inner).to_bytes(2, "big") + inner


def der_of(pem: str) -> bytes:
    return base64.b64decode("".join(pem.splitlines()[1:-1]))


def jks(password: str = PASSWORD, key_password: str = PASSWORD) -> bytes:
    """A store with a key and a trusted certificate."""
    pair = authority().sign("broker")
    locked = sealed(der_of(pair.key_pem), key_password)

    def certificate(pem: str) -> bytes:
        der = der_of(pem)
        return b"\x00\x05X.509" + len(der).to_bytes(4, "big") + der

    alias = b"\x00\x01a" + bytes(8)
    body = b"\xfe\xed\xfe\xed" + (2).to_bytes(4, "big") + (2).to_bytes(4, "big")
    body += (1).to_bytes(4, "big") + alias + len(locked).to_bytes(4, "big") + locked
    body += (1).to_bytes(4, "big") + certificate(pair.chain_pem)
    body += (2).to_bytes(4, "big") + alias + certificate(authority().pem)
    digest = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    return body + digest


def test_a_jks_store_is_read() -> None:
    store = read_store(jks(), PASSWORD, None)
    assert der_of(store.trusted.decode()) == der_of(authority().pem)
    assert b"BEGIN PRIVATE KEY" in store.key
    assert store.chain.count(b"BEGIN CERTIFICATE") == 1
    other = read_store(jks(key_password="k"), PASSWORD, "k")
    assert b"BEGIN PRIVATE KEY" in other.key


def test_a_pkcs12_store_is_read() -> None:
    pair = authority().sign("broker")
    store = read_store(pair.pkcs12(), PASSWORD, None)
    assert (store.key.decode(), store.chain.decode()) == (pair.key_pem, pair.chain_pem)
    trusted = read_store(authority().truststore(), PASSWORD, None).trusted
    assert trusted.decode() == authority().pem


def test_what_is_no_store_is_refused() -> None:
    whole = jks()
    for data in (b"", b"?" * 99, whole[:-1], whole[:300], whole[:9]):
        with pytest.raises(StoreError):
            read_store(data, PASSWORD, None)


def test_wrong_passwords_are_refused() -> None:
    for store in (jks("other"), jks(key_password="other"), authority().sign("b").pkcs12("other")):
        with pytest.raises(StoreError, match="wrong"):
            read_store(store, PASSWORD, None)
