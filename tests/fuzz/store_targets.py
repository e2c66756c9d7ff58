"""What security reads of files and settings: stores in PKCS12, PEM, JAAS entries."""

from __future__ import annotations

import datetime
import functools
import random
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from fuzz.mutation import mutated
from fuzz.oracles import Target
from support.logs import NOW
from tidelog.embedded.client_security import ClientSecurity
from tidelog.runtime import SystemClock
from tidelog.security.jaas import MODULES, login_entry
from tidelog.security.login import unsecured_tokens
from tidelog.security.oauthbearer import Rules
from tidelog.security.plain import users_of
from tidelog.security.stores import StoreError, read_store
from tidelog_storage.config_key import ConfigError

_PEM, _PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()


class _Pair(NamedTuple):
    """A key and its certificate, the same in each run: Ed25519 signs without chance."""

    key: ed25519.Ed25519PrivateKey
    certificate: x509.Certificate


@functools.cache
def _pair() -> _Pair:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fuzz")])
    began = datetime.datetime.fromtimestamp(NOW / 1000, datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(began)
        .not_valid_after(began + datetime.timedelta(days=9999))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    )
    return _Pair(key, built.sign(key, None))


# ---- PKCS12 --------------------------------------------------------------------------------------


def _run_pkcs12(data: bytes) -> None:
    read_store(data, None, None)


def _pkcs12_stores() -> list[bytes]:
    """Without passwords: with one, nothing behind the check of the whole is reached, and a store
    says itself how often to hash."""
    key, certificate = _pair()
    more = [certificate]
    return [
        pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, _PLAIN),
        pkcs12.serialize_key_and_certificates(b"own", key, certificate, more, _PLAIN),
        pkcs12.serialize_key_and_certificates(None, None, None, more, _PLAIN),
    ]


# ---- PEM -----------------------------------------------------------------------------------------


def _run_pem(data: bytes) -> None:
    """The text is a key, a chain and what is trusted, as inline settings have them."""
    text = data.decode("utf-8", "replace")
    ClientSecurity(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": text,
            "ssl.keystore.certificate.chain": text,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": text,
        }
    )


def _pem_texts() -> list[bytes]:
    key, certificate = _pair()
    own = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _PLAIN)
    text = own + certificate.public_bytes(_PEM)
    return [
        text,
        text + certificate.public_bytes(_PEM),
        b"Bag Attributes\n    friendlyName: \xc3\xb6\n" + text,
        text.replace(b"\n", b" "),  # as it is in a file of properties
    ]


# ---- JAAS ----------------------------------------------------------------------------------------

_SIGNS = (
    *(
        "required",
        "optional",
        "=",
        ";",
        ";;",
        '"',
        "'",
        "\\",
        "\\u0000",
        "//",
        "/*",
        "*/",
        " ",
        "\n",
    ),
    *("a.b$c", *MODULES.values()),
)
_OPTIONS = (
    *("username", "password", "user_x", "tokenauth", "unsecuredLoginStringClaim_sub"),
    *("unsecuredLoginLifetimeSeconds", "unsecuredLoginNumberClaim_n", "unsecuredLoginListClaim_l"),
    *("unsecuredValidatorAllowableClockSkewMs", "unsecuredValidatorRequiredScope"),
    *("unsecuredLoginPrincipalClaimName", "unsecuredLoginStringClaim_"),
)
_VALUES = (
    "u",
    '""',
    "'|a|b'",
    "true",
    "-1",
    "9" * 400,
    "9" * 5000,
    "nan",
    "1e999",
    "5_0",
    "\u0663",
)


def _run_jaas(data: bytes) -> None:
    """As a listener's and as a client's."""
    text = data.decode("utf-8", "replace")
    refused: ConfigError | None = None
    accepted = False
    for mechanism in MODULES:
        try:
            entry = login_entry("sasl.jaas.config", text, mechanism)
            if mechanism == "OAUTHBEARER":
                Rules.of("", entry.options)
                unsecured_tokens("", entry.options, SystemClock())()
            users_of(entry.options)
            accepted = True
        except ConfigError as error:
            refused = error
    if not accepted and refused is not None:
        raise refused


def _jaas_texts() -> list[bytes]:
    plain, bearer = MODULES["PLAIN"], MODULES["OAUTHBEARER"]
    return [
        f'{plain} required username="a" password="b" user_a="b";'.encode(),
        f"{plain} required /* one */ user_a='it\\'s' // two\n;".encode(),
        f'{MODULES["SCRAM-SHA-256"]} required username="a" password="b" tokenauth=true;'.encode(),
        f"{bearer} required unsecuredLoginStringClaim_sub=u ;".encode(),
        f'{bearer} required unsecuredLoginStringClaim_sub="u" unsecuredLoginNumberClaim_n="5"'
        f' unsecuredLoginLifetimeSeconds="60" unsecuredLoginListClaim_l="|a|b"'
        f' unsecuredValidatorAllowableClockSkewMs="5";'.encode(),
    ]


def _mutated_jaas(data: bytes, seed: int) -> bytes:
    """Put words of its grammar, or any bytes, somewhere."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        return mutated(data, seed)
    parts = data.split(b" ")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(parts))
        parts[at : at + rng.choice((0, 0, 1))] = [_word(rng).encode()]
    return b" ".join(parts)


def _word(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(_SIGNS)
    return f"{rng.choice(_OPTIONS)}={rng.choice(_VALUES)}"


STORE_TARGETS = [
    Target("pkcs12", _run_pkcs12, (StoreError,), _pkcs12_stores),
    Target("pem", _run_pem, (ConfigError,), _pem_texts),
    Target("jaas", _run_jaas, (ConfigError,), _jaas_texts, _mutated_jaas),
]
