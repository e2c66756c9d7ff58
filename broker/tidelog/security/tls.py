"""TLS of one listener, and of this broker's connections to others: contexts made of `ssl.*`.

Kafka: DefaultSslEngineFactory. Python's ssl reads keys from files alone, so a key that comes from
somewhere else is in a file of its own, which only this user may read, while it is loaded.
"""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.security.pem import certificates, private_keys
from tidelog.security.stores import Store, StoreError, read_store
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from tidelog.config.listeners import ListenerSettings

__all__ = [
    "ListenerContext",
    "RenewableContext",
    "client_context",
    "has_store",
    "own_chain",
    "server_context",
]

log = logging.getLogger("tidelog.network.authentication")

_VERSIONS = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_CHOICES = {
    "ssl.protocol": ("TLSv1.2", "TLSv1.3", "TLS"),
    "ssl.endpoint.identification.algorithm": ("https", ""),
}
_SUITES_OF_1_3 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)

_WEAK = ("CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "EE_KEY_TOO_SMALL")
"""OpenSSL's names of what it does not load at its usual security level: keys of RSA with fewer than
2,048 bits, signatures with SHA-1."""


class ListenerContext(ssl.SSLContext):
    """The context of a listener."""

    chain = b""
    """The certificates that it shows, as PEM."""


class RenewableContext(ssl.SSLContext):
    """A context whose later connections are those of `current`, so that certificates can be
    renewed while the listener stays open."""

    current: ListenerContext

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection with the current certificates."""
        return self.current.wrap_bio(*arguments, **options)

    @classmethod
    def of(cls, current: ListenerContext) -> RenewableContext:
        """Return a context that begins with this one."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.current = current
        return context


_TOLD = (
    "CERTIFICATE_VERIFY_FAILED",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE",
    "NO_SHARED_CIPHER",
    "UNSUPPORTED_PROTOCOL",
)


class _TellingObject(ssl.SSLObject):
    """A server's connection that tells its client why the handshake failed: asyncio closes it with
    the error, and leaves the alert in the buffer. So the error waits for the next call: until the
    client has the alert and closes, or for the time limit of handshakes."""

    client = "a client"  # and its listener, as `handshakes.py` knows them
    _error: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """Do the next step."""
        if self._error is not None:
            raise self._error
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            reason, advice = _explained(error)
            log.info("failed TLS handshake of %s: %s%s", self.client, reason, advice)
            if error.reason not in _TOLD:  # the client may not speak TLS at all
                raise
            self._error = error
            raise ssl.SSLWantReadError from error


_ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate must be valid, and signed by an"
    " authority of ssl.truststore.location",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "ssl.client.auth is required, and the client has no"
    " certificate: give it a key store",
    "NO_SHARED_CIPHER": "compare ssl.cipher.suites of both sides",
    "UNSUPPORTED_PROTOCOL": "compare ssl.enabled.protocols of both sides",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS: its security.protocol must be that of"
    " the listener",
    "HTTP_REQUEST": "the client speaks HTTP",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this broker's certificate: give it the"
    " authority's",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not take this broker's certificate: its dates,"
    " or the hosts that it is for",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this broker's certificate has expired: renew it",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not take this broker's certificate: give it"
    " the authority's, and connect to a host that it is for",
}
"""What to do, by OpenSSL's name of what went wrong."""


def _explained(error: ssl.SSLError) -> tuple[str, str]:
    """Return why a handshake failed, and what to do, if that is known."""
    reason = error.reason or str(error)
    advice = _ADVICE.get(reason)
    detail = getattr(error, "verify_message", "")
    return reason + (f" ({detail})" if detail else ""), f"; {advice}" if advice else ""


def server_context(settings: ListenerSettings) -> ListenerContext:
    """Return the context of a listener; ConfigError names the key that is wrong."""
    context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _TellingObject
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.chain = _load_own(context, settings)
    if not context.chain:
        key = settings.key("ssl.keystore.location")
        raise ConfigError(
            key, f"{key}: the listener {settings.listener} of {settings.protocol} needs a key store"
        )
    if settings.protocol == "SSL" or settings.is_own("ssl.client.auth"):
        context.verify_mode = _CLIENT_AUTH[settings.value("ssl.client.auth")]
    if not _load_trusted(context, settings) and context.verify_mode != ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)  # as Java's trust manager
    _restrict(context, settings)
    return context


def client_context(settings: ListenerSettings) -> ssl.SSLContext:
    """Return the context of connections to a listener of other brokers; ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = settings.value("ssl.endpoint.identification.algorithm")
    context.check_hostname = algorithm.lower() == "https"
    _load_own(context, settings)
    if not _load_trusted(context, settings):
        context.load_default_certs()
    _restrict(context, settings)
    return context


# -- certificates ----------------------------------------------------------------------------------


def own_chain(settings: ListenerSettings) -> bytes:
    """Return the certificates of the key store as PEM, empty without one; ConfigError."""
    store = _store(settings, _KEYSTORE)
    return b"" if store is None else store.chain


def has_store(settings: ListenerSettings, kind: str) -> bool:
    """Return whether the settings have a `keystore`, or a `truststore`."""
    names = _KEYSTORE if kind == "keystore" else _TRUSTSTORE
    return any(settings.value(name) is not None for name in (names.location, names.inline))


class _Names(NamedTuple):
    """The keys of one store."""

    kind: str
    location: str
    password: str
    inline: str


_KEYSTORE = _Names(
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
)
_TRUSTSTORE = _Names(
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)


def _load_own(context: ssl.SSLContext, settings: ListenerSettings) -> bytes:
    """Load the broker's key and certificates; return these, empty without a key store."""
    key_password = settings.value("ssl.key.password")
    pem = settings.value("ssl.keystore.key")
    chain = settings.value("ssl.keystore.certificate.chain")
    if (pem is None) != (chain is None):
        given, missing = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if pem is None:
            given, missing = missing, given
        raise ConfigError(missing, f"{settings.key(missing)} is missing beside {given}")
    store = _store(settings, _KEYSTORE)
    if store is None:
        return b""
    is_pem = settings.value("ssl.keystore.type") == "PEM"
    name = settings.key("ssl.keystore.location" if pem is None else "ssl.keystore.key")
    where = f"{name}: {settings.value('ssl.keystore.location')}" if pem is None else name
    if pem is not None:
        store = store._replace(key=private_keys(pem.encode()))
    if not store.key:
        raise ConfigError(name, f"{where}: there is no private key in it")
    if not store.chain:
        if pem is not None:
            name = where = settings.key("ssl.keystore.certificate.chain")
        raise ConfigError(name, f"{where}: there is no certificate in it")
    try:
        _load_chain(context, store, key_password if is_pem else None, where)
    except (ssl.SSLError, ValueError, _NoPasswordError) as error:
        if isinstance(error, _NoPasswordError) or "PEM" in str(error) or "decrypt" in str(error):
            raise ConfigError(
                name, f"{where}: the private key is invalid, or ssl.key.password is wrong"
            ) from None
        reason = getattr(error, "reason", None) or error
        raise ConfigError(name, f"{where}: {reason}") from None
    return store.chain


class _NoPasswordError(Exception):
    """The key is encrypted, and there is no password."""


def _load_chain(context: ssl.SSLContext, store: Store, password: str | None, where: str) -> None:
    """Load the key and certificates from `where`, weak ones with a warning.

    Kafka shows weak certificates too, for Java bounds only those that it verifies. OpenSSL looks at
    its own again in each handshake, so that the context keeps the lower level.
    """

    def ask() -> str:
        if password is None:
            raise _NoPasswordError
        return password

    import tempfile  # noqa: PLC0415 - a start imports this module

    handle, path = tempfile.mkstemp(prefix="tidelog-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(store.key + b"\n" + store.chain)
        try:
            context.load_cert_chain(path, password=ask)
        except ssl.SSLError as error:
            if error.reason not in _WEAK:
                raise
            suites = [suite["name"] for suite in context.get_ciphers()]
            older = [suite for suite in suites if suite not in _SUITES_OF_1_3]
            context.set_ciphers(":".join([*older, "@SECLEVEL=0"]))
            context.load_cert_chain(path, password=ask)
            if isinstance(context, ListenerContext):
                advice = "clients may refuse it: renew it"
                log.warning("%s: weak certificate (%s); %s", where, error.reason, advice)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _load_trusted(context: ssl.SSLContext, settings: ListenerSettings) -> bool:
    """Load the certificates that are trusted; return whether there are some."""
    store = _store(settings, _TRUSTSTORE)
    if store is None:
        return False
    inline = settings.value(_TRUSTSTORE.inline) is not None
    name = settings.key(_TRUSTSTORE.inline if inline else _TRUSTSTORE.location)
    where = name if inline else f"{name}: {settings.value(_TRUSTSTORE.location)}"
    try:
        context.load_verify_locations(cadata=store.trusted.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise ConfigError(name, f"{where}: there are no certificates in it") from None
    return True


def _store(settings: ListenerSettings, names: _Names) -> Store | None:
    """Read what a store has, from its file or from the settings."""
    kind, location = settings.value(names.kind), settings.value(names.location)
    password, inline = settings.value(names.password), settings.value(names.inline)
    key = settings.key(names.location)
    if inline is not None:
        if kind != "PEM" or location is not None:
            wrong = settings.key(names.inline)
            other = names.kind if kind != "PEM" else names.location
            raise ConfigError(
                wrong,
                f"{wrong}: is for {names.kind}=PEM, without {other}={kind}"
                if kind != "PEM"
                else f"{wrong}: cannot be beside {other}",
            )
        return _store_of_pem(inline.encode())
    if location is None:
        if password is not None:
            raise ConfigError(key, f"{key} is missing beside {names.password}")
        return None
    if kind == "PEM" and password is not None:
        wrong = settings.key(names.password)
        raise ConfigError(wrong, f"{wrong}: a PEM file has no password but ssl.key.password")
    data = _read(key, location)
    if kind == "PEM":
        return _store_of_pem(data)
    if password is None and names is _KEYSTORE:
        missing = settings.key(names.password)
        raise ConfigError(missing, f"{missing} is missing beside {names.location}")
    try:
        return read_store(data, password, settings.value("ssl.key.password"))
    except StoreError as error:
        raise ConfigError(key, f"{key}: {location}: {error}") from None


def _store_of_pem(data: bytes) -> Store:
    found = certificates(data)
    return Store(private_keys(data), found, found)


def _read(key: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(key, f"{key}: {path}: {error.strerror}") from None


# -- versions and ciphers --------------------------------------------------------------------------


def _restrict(context: ssl.SSLContext, settings: ListenerSettings) -> None:
    """Allow the versions and ciphers that the settings name."""
    for name, known in _CHOICES.items():
        if settings.value(name).lower() not in map(str.lower, known):
            key = settings.key(name)
            raise ConfigError(key, f"{key}: {settings.value(name)} is none of {', '.join(known)}")
    name = "ssl.enabled.protocols"
    wanted = settings.value(name) or list(_VERSIONS)
    unknown = [version for version in wanted if version not in _VERSIONS]
    if unknown:
        key = settings.key(name)
        raise ConfigError(key, f"{key}: {unknown[0]} is none of {', '.join(_VERSIONS)}")
    suites = settings.value("ssl.cipher.suites")
    if suites:
        older = [_of_openssl(settings, suite) for suite in suites if suite not in _SUITES_OF_1_3]
        if older:
            context.set_ciphers(":".join(older))
        if not older or len(older) == len(suites):  # suites of one version alone
            kept = "TLSv1.2" if older else "TLSv1.3"
            wanted = [version for version in wanted if version == kept]
        if not wanted:
            key = settings.key("ssl.cipher.suites")
            raise ConfigError(key, f"{key}: none is of a version in ssl.enabled.protocols")
    versions = sorted(_VERSIONS[version] for version in wanted)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _of_openssl(settings: ListenerSettings, suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2."""
    exchange, with_, rest = suite.removeprefix("TLS_").partition("_WITH_")
    name = rest.replace("AES_128", "AES128").replace("AES_256", "AES256")
    name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_CBC", "")
    name = "-".join([exchange, name]).replace("_", "-").removeprefix("RSA-")
    known = {each["name"] for each in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()}
    if not with_ or name not in known:
        key = settings.key("ssl.cipher.suites")
        raise ConfigError(key, f"{key}: {suite} is not known here")
    return name
