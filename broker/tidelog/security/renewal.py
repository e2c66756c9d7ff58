"""What the stores of an open listener may be exchanged for (KIP-226).

A new certificate has the subject of the old one and all the names that it is for, unless
`ssl.allow.dn.changes` and `ssl.allow.san.changes` say otherwise. A listener does not lose its key
store, and gets no first trust store. Kafka: SslFactory, SslFactory.CertificateEntries.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.security_keys import STORE_KEYS
from tidelog.security.names import distinguished_name
from tidelog.security.tls import has_store, own_chain, server_context
from tidelog.security.trust import check_trust
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.config.listeners import ListenerSettings

__all__ = ["check_certificates", "check_stores", "identity_of"]

_SUBJECT, _EXTENSIONS = 4, 0xA3  # place behind the version, and tag, in a TBSCertificate
_VERSION = 0xA0
_SUBJECT_ALT_NAME = bytes.fromhex("0603551d11")
_ATTRIBUTES = {
    "060355040a": "organizationName",
    "060355040b": "organizationalUnitName",
    "0603550403": "commonName",
    "0603550406": "countryName",
    "0603550407": "localityName",
    "0603550408": "stateOrProvinceName",
    "0603550409": "streetAddress",
    "060a0992268993f22c640101": "userId",
    "060a0992268993f22c640119": "domainComponent",
}


class Identity(NamedTuple):
    """The subject of a certificate, and its other names."""

    subject: str
    names: frozenset[bytes]
    """Its alternative names, each as DER."""

    def __str__(self) -> str:
        return f"DN={self.subject}"


def check_stores(
    old: ListenerSettings, new: ListenerSettings, *, is_of_brokers: bool = False
) -> None:
    """Raise ConfigError if an open listener cannot change to the stores of new settings. Brokers
    connect to each other while some of them have the old ones."""
    if all(old.value(name) == new.value(name) for name in STORE_KEYS):
        return  # the files may have changed: they are read when the settings are followed
    if not has_store(old, "keystore"):
        return  # it was added without one, and is not open yet
    if not has_store(new, "keystore"):
        raise ConfigError(
            new.key("ssl.keystore.location"),
            "Cannot remove the SSL keystore from an existing listener for which a keystore was"
            " configured.",
        )
    if has_store(new, "truststore") and not has_store(old, "truststore"):
        raise ConfigError(
            new.key("ssl.truststore.location"),
            "Cannot add SSL truststore to an existing listener for which no truststore was"
            " configured.",
        )
    after = server_context(new).chain
    try:
        before = own_chain(old)
    except ConfigError:  # its files are gone
        return
    check_certificates(before, after, new)
    if is_of_brokers:
        check_trust(old, new)
        check_trust(new, old)


def check_certificates(old: bytes, new: bytes, settings: ListenerSettings) -> None:
    """Raise ConfigError if a certificate cannot take another one's place."""
    before, after = identity_of(old), identity_of(new)
    if before is None or after is None:
        return
    is_renamed = before.subject.lower() != after.subject.lower()
    if is_renamed and not settings.value("ssl.allow.dn.changes"):
        changed = "DistinguishedName does"
    elif not before.names <= after.names and not settings.value("ssl.allow.san.changes"):
        changed = "SubjectAltNames do"
    else:
        return
    raise ConfigError(
        settings.key("ssl.keystore.location"),
        f"Keystore {changed} not match:  existing={{{before}}}, new={{{after}}}",
    )


def identity_of(chain: bytes) -> Identity | None:
    """Return the identity of the first certificate of a PEM, None if there is none."""
    first, end, _ = chain.decode("ascii", "replace").partition("-----END CERTIFICATE-----")
    try:
        return _identity(ssl.PEM_cert_to_DER_cert(first + end))
    except (ValueError, IndexError, StopIteration):
        return None


# -- DER -------------------------------------------------------------------------------------------


class _Value(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def _values(data: bytes) -> Iterator[_Value]:
    """Yield the values that follow each other; IndexError or ValueError if they are damaged."""
    at = 0
    while at < len(data):
        length, start = data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, start = int.from_bytes(data[start : start + size], "big"), start + size
        end = start + length
        if end > len(data):
            raise ValueError("a value ends early")
        yield _Value(data[at], data[start:end], data[at:end])
        at = end


def _identity(der: bytes) -> Identity:
    (certificate,) = _values(der)
    signed = next(_values(certificate.content))
    fields = [each for each in _values(signed.content) if each.tag != _VERSION]
    subject = [
        [_attribute(*_values(pair.content)) for pair in _values(part.content)]
        for part in _values(fields[_SUBJECT].content)
    ]
    names = frozenset[bytes]()
    for extensions in (each for each in fields if each.tag == _EXTENSIONS):
        for extension in _values(next(_values(extensions.content)).content):
            oid, *_, value = _values(extension.content)
            if oid.whole == _SUBJECT_ALT_NAME:
                (listed,) = _values(value.content)
                names = frozenset(each.whole for each in _values(listed.content))
    return Identity(distinguished_name(subject), names)


def _attribute(oid: _Value, value: _Value) -> tuple[str, str]:
    """Return an attribute of a name as `ssl.SSLSocket.getpeercert` gives it."""
    number = oid.whole.hex()
    return _ATTRIBUTES.get(number, number), value.content.decode("utf-8", "replace")
