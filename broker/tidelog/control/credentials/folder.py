"""The folder with the certificates, keys and passwords of a secured cluster.

It is made at the first start and used again by later ones, so clients keep their configurations.
Only its owner may read it. `Credentials.make` writes it; `Credentials.read` is for what configures
clients, in another process too.
"""

# ruff: noqa: PLC0415 - cryptography is an extra, and takes 0.1 s to import

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
from typing import TYPE_CHECKING, Any

from tidelog.control.credentials.kinds import Kind, kind_of
from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.control.credentials.authority import Authority, Pair

__all__ = ["BAD_CERTIFICATES", "BROKER", "FOLDER", "USERS", "Credentials"]

FOLDER = "security"
"""Its name in the folder of the data."""
USERS = ("admin", "alice", "bob")
"""The users; the first is a super user."""
BROKER = "broker"
"""The user of brokers, a super user on their own listeners."""
BAD_CERTIFICATES = ("expired", "wrong-host", "self-signed")
"""What is wrong with a certificate; each has a listener that shows it."""
WRONG_HOST = "wrong-host.invalid"
_SECRETS = "secrets.json"
_AUTHORITY = "authority-key.pem"
_OR_NEW = "put it back, or remove the folder for new certificates and passwords"


class Credentials:
    """What is in the folder. Files are made when they are first needed."""

    def __init__(self, path: str, kind: Kind, known: dict[str, Any]) -> None:
        self.path = path
        self.kind = kind
        self._known = known

    def __repr__(self) -> str:
        return f"Credentials({self.path!r}, {self.kind.name!r})"

    @classmethod
    def make(cls, path: str, kind: Kind, hosts: Iterable[str]) -> Credentials:
        """Read the folder, make what it lacks, and sign the brokers' certificates for these hosts;
        ClusterError if that cannot be."""
        _make_folder(path)
        os.chmod(path, 0o700)
        try:
            credentials = cls.read(path)
        except FileNotFoundError:
            if os.path.exists(f"{path}/{_AUTHORITY}"):
                raise ClusterError(
                    f"{path}: {_SECRETS} is missing beside {_AUTHORITY}: {_OR_NEW}"
                ) from None
            known = {
                "kind": kind.name,
                "store_password": secrets.token_urlsafe(12),
                "users": {user: secrets.token_urlsafe(12) for user in USERS},
                "broker_password": secrets.token_urlsafe(12),
            }
            credentials = cls(path, kind, known)
        known = credentials._known
        known["kind"], credentials.kind = kind.name, kind
        wanted = _with_this_machine(hosts)
        if kind.is_tls and not set(wanted) <= set(known.get("hosts", ())):
            check_extra(kind)
            credentials._save()  # before the authority, which needs its password
            credentials._sign_for_brokers(wanted)
            known["hosts"] = wanted
        credentials._save()
        return credentials

    @classmethod
    def read(cls, path: str) -> Credentials:
        """Read a folder; FileNotFoundError if there is none, ClusterError if it is not readable."""
        try:
            with open(f"{path}/{_SECRETS}", encoding="utf-8") as file:
                known = _checked(json.load(file))
            return cls(path, kind_of(known["kind"]), known)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, RecursionError, ClusterError) as error:
            raise ClusterError(f"{path}: no credentials of tidelog: {error}") from None

    @property
    def passwords(self) -> dict[str, str]:
        """The passwords of the users."""
        return dict(self._known["users"])

    @property
    def broker_password(self) -> str:
        """The password with which brokers authenticate to each other."""
        return str(self._known["broker_password"])

    @property
    def store_password(self) -> str:
        """The password of all key and trust stores."""
        return str(self._known["store_password"])

    @property
    def trusted(self) -> str:
        """The file with the authority's certificate."""
        return f"{self.path}/authority.pem"

    @property
    def trust_store(self) -> str:
        """The same as a store in the format PKCS12."""
        return f"{self.path}/authority.p12"

    def broker_file(self, bad: str | None = None) -> str:
        """Return the file with the brokers' key and certificate, or with a bad one."""
        return f"{self.path}/broker{f'-{bad}' if bad else ''}.pem"

    def client_file(self, user: str, bad: str | None, ending: str) -> str:
        """Return a file of a client's certificate: `pem` has key and certificate, `crt` and `key`
        one of them, `p12` is a store. It is made if it is not there."""
        base = f"{self.path}/client-{user}{f'-{bad}' if bad else ''}"
        if not os.path.exists(f"{base}.p12"):
            self._sign_for_client(base, user, bad)
        return f"{base}.{ending}"

    def token_file(self, token: str) -> str:
        """Return the file of a token, the same for each call."""
        path = f"{self.path}/token-{hashlib.sha256(token.encode()).hexdigest()[:16]}.jwt"
        _write(path, token.encode())
        return path

    def _authority(self) -> Authority:
        from tidelog.control.credentials.authority import Authority

        path = f"{self.path}/{_AUTHORITY}"
        if os.path.exists(path):
            with open(path, "rb") as file:
                data = file.read()
            try:
                made = Authority.read(data)
            except ValueError as error:
                raise ClusterError(f"{path}: {error}: {_OR_NEW}") from None
        elif os.path.exists(self.trusted):
            raise ClusterError(f"{path} is missing beside the authority's certificate: {_OR_NEW}")
        else:
            made = Authority.new("tidelog")
            _write(path, made.pair.pem)
        if not os.path.exists(self.trusted):
            _write(self.trusted, made.pair.certificate_pem)
        if not os.path.exists(self.trust_store):
            _write(self.trust_store, made.trust_store(self.store_password))
        return made

    def _save(self) -> None:
        _write(f"{self.path}/{_SECRETS}", json.dumps(self._known, indent=1).encode())

    def _sign_for_brokers(self, hosts: Sequence[str]) -> None:
        authority = self._authority()
        for bad in (None, *BAD_CERTIFICATES):
            _write(self.broker_file(bad), _signed(authority, BROKER, hosts, bad).pem)

    def _sign_for_client(self, base: str, user: str, bad: str | None) -> None:
        check_extra(self.kind)
        pair = _signed(self._authority(), user, (), bad)
        _write(f"{base}.pem", pair.pem)
        _write(f"{base}.crt", pair.certificate_pem)
        _write(f"{base}.key", pair.key_pem)
        _write(f"{base}.p12", pair.key_store(self.store_password))


def _checked(known: Any) -> dict[str, Any]:
    """Return what the file of secrets has; ValueError if it lacks something."""
    if not isinstance(known, dict):
        raise ValueError(f"{_SECRETS} is no object")
    users, hosts = known.get("users"), known.get("hosts", [])
    texts = [known.get(name) for name in ("kind", "store_password", "broker_password")]
    texts += users.values() if isinstance(users, dict) else [None]
    texts += hosts if isinstance(hosts, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{_SECRETS} is not whole")
    return known


def check_extra(kind: Kind) -> None:
    """ClusterError if a package is missing."""
    if not kind.is_tls:
        return
    try:
        import cryptography  # noqa: F401 - only whether it is there
    except ModuleNotFoundError:
        text = f"security {kind.name}: needs cryptography (pip install 'tidelog[security]')"
        raise ClusterError(text) from None


def _signed(authority: Authority, name: str, hosts: Sequence[str], bad: str | None) -> Pair:
    from tidelog.control.credentials.authority import self_signed

    if bad == "self-signed":
        return self_signed(name, hosts)
    named = (WRONG_HOST,) if bad == "wrong-host" else hosts
    return authority.sign(name, named, is_expired=bad == "expired")


def _with_this_machine(hosts: Iterable[str]) -> list[str]:
    """Return these hosts and the names of this machine, each once."""
    own = ("localhost", "127.0.0.1", "::1", socket.gethostname())
    return list(dict.fromkeys(host for host in (*own, *hosts) if host))


def _make_folder(path: str) -> None:
    """Make a folder, and those above it that are missing, for its owner alone: the folder of the
    data may be among them."""
    missing = [os.path.abspath(path)]
    while not os.path.isdir(above := os.path.dirname(missing[-1])):
        missing.append(above)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o700)


def _write(path: str, data: bytes) -> None:
    """Replace a file whole: another process may read it. Only its owner may."""
    temporary = f"{path}.{secrets.token_hex(4)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, path)
