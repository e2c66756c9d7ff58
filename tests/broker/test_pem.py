"""PEM in the forms that Kafka's PemParser takes; what it finds is asserted of a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.certificates import authority
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.security.pem import certificates, private_keys
from tidelog.security.tls import client_context, server_context

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

ONE = b"-----BEGIN CERTIFICATE-----\nYWFh\n-----END CERTIFICATE-----\n"
TWO = ONE.replace(b"YWFh", b"YmJi")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-----BEGIN CERTIFICATE----- YW Fh -----END CERTIFICATE-----", ONE),
        (ONE.decode().replace("\n", "\r\n"), ONE),
        (f"# Gr\u00fc\u00dfe: x\n{ONE.decode()}# \u540d\u524d\n{TWO.decode()}", ONE + TWO),
        ("-----BEGIN CERTIFICATE-----\nfriendly: x\nYWFh\n-----END CERTIFICATE-----", ONE),
        (" Bag: y -----BEGIN CERTIFICATE----- YWFh -----END CERTIFICATE-----", ONE),
        ("-----BEGIN CERTIFICATE-----YWFh-----END CERTIFICATE-----", b""),
        (
            "-----BEGIN X509 CERTIFICATE-----\n YWFh\n -----END X509 CERTIFICATE-----",
            ONE.replace(b"CERT", b"X509 CERT"),
        ),
        # Kafka takes the last of a line alone.
        ((ONE + TWO).decode().replace("\n", " "), ONE + TWO),
    ],
)
def test_certificates_are_found(text: str, found: bytes) -> None:
    assert certificates(text.encode()) == found
    assert private_keys(text.encode()) == b""


def test_keys_keep_their_kind_and_what_encrypts_them() -> None:
    key = (
        b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n"
        b"YWFh\n-----END RSA PRIVATE KEY-----\n"
    )
    assert private_keys(b"Bag Attributes: <None>\n" + key + ONE) == key
    assert certificates(key + ONE) == ONE


def context(settings: dict[str, str]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    given = BrokerConfig.from_properties({**DEVELOPER_PROFILE, "listeners": "SSL://:1", **settings})
    listener = given.listener_settings("SSL")
    return server_context(listener), client_context(listener)


@pytest.mark.parametrize("password", [None, "k"])
def test_stores_on_one_line_are_read(password: str | None) -> None:
    pair = authority().sign("broker")
    settings = authority().listener("broker")
    if password is not None:
        settings["ssl.keystore.key"] = pair.key_pem_with(password)
        settings["ssl.keystore.certificate.chain"] = pair.chain_pem
        settings["ssl.key.password"] = password
    on_one_line = {key: value.strip().replace("\n", " ") for key, value in settings.items()}
    for each in context(on_one_line):
        assert len(each.get_ca_certs()) == 1


def test_a_trust_store_has_comments_of_any_language(tmp_path: Path) -> None:
    for name, text in (("utf-8", "Z\u00fcrich"), ("latin-1", "Z\u00fcrich")):
        file = tmp_path / f"{name}.pem"
        file.write_bytes(f"# {text}\n{authority().pem}".encode(name))
        settings = authority().listener("broker")
        del settings["ssl.truststore.certificates"]
        settings["ssl.truststore.location"] = str(file)
        for each in context(settings):
            assert len(each.get_ca_certs()) == 1
