"""Java's key stores as PEM."""

from __future__ import annotations

import pytest

from support.certificates import PASSWORD, authority, der_of, jks
from tidelog.security.stores import StoreError, read_store


def test_a_jks_store_is_read() -> None:
    pair = authority().sign("broker")
    store = read_store(jks(pair), PASSWORD, None)
    assert der_of(store.trusted.decode()) == der_of(authority().pem)
    assert b"BEGIN PRIVATE KEY" in store.key
    assert store.chain.count(b"BEGIN CERTIFICATE") == 1
    other = read_store(jks(pair, key_password="k"), PASSWORD, "k")
    assert b"BEGIN PRIVATE KEY" in other.key


def test_a_pkcs12_store_is_read() -> None:
    pair = authority().sign("broker")
    store = read_store(pair.pkcs12(), PASSWORD, None)
    assert (store.key.decode(), store.chain.decode()) == (pair.key_pem, pair.chain_pem)
    trusted = read_store(authority().truststore(), PASSWORD, None).trusted
    assert trusted.decode() == authority().pem


def test_what_is_no_store_is_refused() -> None:
    whole = jks(authority().sign("broker"))
    for data in (b"", b"?" * 99, whole[:-1], whole[:300], whole[:9]):
        with pytest.raises(StoreError):
            read_store(data, PASSWORD, None)


def test_wrong_passwords_are_refused() -> None:
    pair = authority().sign("broker")
    for store in (jks(pair, "other"), jks(pair, key_password="other"), pair.pkcs12("other")):
        with pytest.raises(StoreError, match="wrong"):
            read_store(store, PASSWORD, None)
