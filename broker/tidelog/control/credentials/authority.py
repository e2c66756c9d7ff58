"""Makes certificates, and stores of them. Needs cryptography, the extra [security]."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Authority", "Pair"]

_PEM = serialization.Encoding.PEM
_DAYS = 3650
_DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"Pair({self.certificate.subject.rfc4514_string()})"

    @property
    def certificate_pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(_PEM)

    @property
    def key_pem(self) -> bytes:
        """The key, in the form PKCS8 that Java reads."""
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(_PEM, form, serialization.NoEncryption())

    @property
    def pem(self) -> bytes:
        """The key and the certificate."""
        return self.key_pem + self.certificate_pem

    def key_store(self, password: str) -> bytes:
        """A store in the format PKCS12."""
        lock = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, None, lock)


class Authority:
    """Signs certificates."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    @classmethod
    def new(cls, name: str) -> Authority:
        """Make one."""
        return cls(_made(name, None, is_authority=True))

    @classmethod
    def read(cls, pem: bytes) -> Authority:
        """Read what `Pair.pem` has; ValueError if it is damaged."""
        algorithm = ec.ECDSA(hashes.SHA256())
        try:
            key = serialization.load_pem_private_key(pem, None)
            certificate = x509.load_pem_x509_certificate(pem)
            certificate.verify_directly_issued_by(certificate)
            known = certificate.public_key()
            if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(
                known, ec.EllipticCurvePublicKey
            ):
                known.verify(key.sign(b"", algorithm), b"", algorithm)
                return cls(Pair(certificate, key))
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
            pass
        raise ValueError("no key and certificate of an authority")

    def sign(self, name: str, hosts: Sequence[str] = (), *, is_expired: bool = False) -> Pair:
        """Return a certificate of this common name for hosts."""
        return _made(name, self.pair, hosts=hosts, is_expired=is_expired)

    def trust_store(self, password: str) -> bytes:
        """Return a store with its certificate that Java trusts."""
        trusted = pkcs12.PKCS12Certificate(self.pair.certificate, b"authority")
        lock = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_java_truststore([trusted], lock)


def self_signed(name: str, hosts: Sequence[str] = ()) -> Pair:
    """Return a certificate that only its own key has signed."""
    return _made(name, None, hosts=hosts)


def _made(
    name: str,
    by: Pair | None,
    *,
    hosts: Sequence[str] = (),
    is_authority: bool = False,
    is_expired: bool = False,
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = by.key if by else key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)  # clocks of containers differ
        .not_valid_after(now - _DAY if is_expired else now + _DAYS * _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(own_id, critical=False)
        .add_extension(issuer_id, critical=False)  # Python 3.13 looks for it
        .add_extension(_usage(is_authority=is_authority), critical=True)
    )
    if not is_authority:
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return Pair(builder.sign(issuer, hashes.SHA256()), key)


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
