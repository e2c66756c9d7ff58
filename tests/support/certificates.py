"""Certificates for tests: one authority, and what it signed."""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

PEM = serialization.Encoding.PEM
PASSWORD = "store-password"


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

    @property
    def chain_pem(self) -> str:
        return self.certificate.public_bytes(PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key_pem_with(None)

    def key_pem_with(self, password: str | None) -> str:
        lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            lock = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(PEM, form, lock).decode()

    def pkcs12(self, password: str = PASSWORD) -> bytes:
        """Its key store."""
        lock = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, None, lock)


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "authority") -> None:
        self.pair = _signed(name, None, is_authority=True)

    @property
    def pem(self) -> str:
        return self.pair.chain_pem

    def sign(
        self, name: str, *, hosts: tuple[str, ...] = ("localhost", "127.0.0.1"), rsa_bits: int = 0
    ) -> Pair:
        """Return a certificate with this common name, and unit `tests`: of an elliptic curve, or
        of RSA."""
        return _signed(name, self.pair, hosts=hosts, rsa_bits=rsa_bits)

    def truststore(self, password: str = PASSWORD) -> bytes:
        """A PKCS12 store with its certificate."""
        lock = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            None, None, None, [self.pair.certificate], lock
        )

    def listener(self, name: str, **more: str) -> dict[str, str]:
        """Settings of TLS with a certificate of this name."""
        own = self.sign(name)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": own.key_pem,
            "ssl.keystore.certificate.chain": own.chain_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.pem,
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def client_files(self, folder: Path, name: str) -> dict[str, str]:
        """Write a client's files; return their names for OpenSSL: ca, certificate, key."""
        own = self.sign(name)
        files = {"ca": self.pem, "certificate": own.chain_pem, "key": own.key_pem}
        for each, text in files.items():
            (folder / f"{name}-{each}.pem").write_text(text)
        return {each: str(folder / f"{name}-{each}.pem") for each in files}


@functools.cache
def authority() -> Authority:
    """The authority of this process."""
    return Authority()


def _signed(
    name: str,
    by: Pair | None,
    *,
    is_authority: bool = False,
    hosts: tuple[str, ...] = (),
    rsa_bits: int = 0,
) -> Pair:
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    if rsa_bits:
        key = rsa.generate_private_key(65537, rsa_bits)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "tests"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    # Python 3.13 and newer look for these.
    issuer = (by.key if by else key).public_key()
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
    ).add_extension(_usage(is_authority=is_authority), critical=True)
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
        )
    return Pair(builder.sign((by.key if by else key), hashes.SHA256()), key)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    names = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    no = dict.fromkeys((*names, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, **no
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


# -- JKS -------------------------------------------------------------------------------------------


def der_of(pem: str) -> bytes:
    return base64.b64decode("".join(pem.splitlines()[1:-1]))


def jks(pair: Pair, password: str = PASSWORD, key_password: str = PASSWORD) -> bytes:
    """A store with this key and the authority of this process."""

    def certificate(pem: str) -> bytes:
        der = der_of(pem)
        return b"\x00\x05X.509" + len(der).to_bytes(4, "big") + der

    locked = _sealed(der_of(pair.key_pem), key_password)
    alias = b"\x00\x01a" + bytes(8)
    body = b"\xfe\xed\xfe\xed" + (2).to_bytes(4, "big") + (2).to_bytes(4, "big")
    body += (1).to_bytes(4, "big") + alias + len(locked).to_bytes(4, "big") + locked
    body += (1).to_bytes(4, "big") + certificate(pair.chain_pem)
    body += (2).to_bytes(4, "big") + alias + certificate(authority().pem)
    digest = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    return body + digest


def _sealed(der: bytes, password: str) -> bytes:
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
