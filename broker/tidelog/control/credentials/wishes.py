"""What one client uses: its user, and what is wrong on request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tidelog.control.credentials import tokens
from tidelog.control.credentials.folder import BAD_CERTIFICATES
from tidelog.control.credentials.kinds import MECHANISMS
from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidelog.control.credentials.folder import Credentials
    from tidelog.control.credentials.kinds import Kind

__all__ = ["Client", "Wishes", "client_of"]

_EXPIRED = "expired"
_BAD_CLIENT_CERTIFICATES = (_EXPIRED, "self-signed", "none")


class Wishes(TypedDict, total=False):
    """What `client_config` may be asked for; what is left out works."""

    user: str
    """admin, alice (if left out) or bob; another with `password`."""
    mechanism: str
    """A SASL mechanism; PLAIN if left out."""
    password: str
    """In the place of the user's."""
    token: str
    """`expired`, or one in the place of the user's."""
    certificate: Literal["expired", "wrong-host", "self-signed"]
    """What is wrong with the certificate that the brokers show to this client."""
    client_certificate: Literal["expired", "self-signed", "none"]
    """What is wrong with its own."""


@dataclass(frozen=True, repr=False)
class Client:
    """What a client's configuration is made of. Files are named by their paths."""

    bootstrap_servers: str
    protocol: str = "PLAINTEXT"
    trusted: str | None = None
    trust_store: str | None = None
    store_password: str = ""
    certificate: Callable[[str], str] | None = None
    """Returns the file of its own certificate with this ending (`Credentials.client_file`)."""
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    token: Callable[[], str] = str
    token_file: Callable[[], str] = str
    """Returns a file with the token, for clients that read one."""
    is_own_token: bool = True
    """Whether the token is the user's, which some clients make on their own."""
    is_expired: bool = False
    """Whether the token is."""

    @property
    def has_token(self) -> bool:
        """Whether it authenticates by a token."""
        return self.mechanism == "OAUTHBEARER"


def client_of(
    credentials: Credentials | None,
    bootstrap_servers: str,
    bad_certificates: Mapping[str, str],
    wishes: Wishes,
) -> Client:
    """Return what a client uses. `bad_certificates` has the addresses of brokers by what is wrong
    with the certificate there. ClusterError for what a cluster of this kind has not."""
    kind = None if credentials is None else credentials.kind
    _check_names(kind, wishes)
    if credentials is None:
        return Client(bootstrap_servers)
    bad = wishes.get("certificate")
    if bad is not None:
        _check("certificate", bad, BAD_CERTIFICATES)
        if bad not in bad_certificates:
            raise ClusterError("the cluster has no listeners with bad certificates")
        bootstrap_servers = bad_certificates[bad]
    parts: dict[str, Any] = {"user": wishes.get("user", "alice")}
    if credentials.kind.is_tls:
        parts |= {
            "trusted": credentials.trusted,
            "trust_store": credentials.trust_store,
            "store_password": credentials.store_password,
        }
    if credentials.kind.has_client_certificates:
        parts["certificate"] = _own_certificate(credentials, wishes)
    if credentials.kind.is_sasl:
        parts |= _sasl(credentials, wishes)
    return Client(bootstrap_servers, credentials.kind.protocol, **parts)


def _check_names(kind: Kind | None, wishes: Wishes) -> None:
    """ClusterError for a wish that has no meaning here, TypeError for an unknown one."""
    has: dict[str, bool] = {
        "user": kind is not None and (kind.is_sasl or kind.has_client_certificates),
        "certificate": kind is not None and kind.is_tls,
        "client_certificate": kind is not None and kind.has_client_certificates,
        **dict.fromkeys(("mechanism", "password", "token"), kind is not None and kind.is_sasl),
    }
    for name in wishes:
        if name not in has:
            raise TypeError(f"client_config() has no argument {name!r}: {', '.join(has)}")
        if not has[name]:
            what = "without security" if kind is None else f"of security {kind.name}"
            raise ClusterError(f"clients of a cluster {what} have no {name}")


def _check(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ClusterError(f"{name} {value!r} is none of {', '.join(known)}")


def _own_certificate(credentials: Credentials, wishes: Wishes) -> Callable[[str], str] | None:
    bad = wishes.get("client_certificate")
    if bad is not None:
        _check("client_certificate", bad, _BAD_CLIENT_CERTIFICATES)
    if bad == "none":
        return None
    return partial(credentials.client_file, wishes.get("user", "alice"), bad)


def _sasl(credentials: Credentials, wishes: Wishes) -> dict[str, Any]:
    """Return mechanism, and password or token."""
    user, token = wishes.get("user", "alice"), wishes.get("token")
    default = MECHANISMS[0] if token is None else "OAUTHBEARER"
    mechanism = wishes.get("mechanism", default).upper()
    _check("mechanism", mechanism, MECHANISMS)
    other = "password" if mechanism == "OAUTHBEARER" else "token"
    if other in wishes:
        raise ClusterError(f"{mechanism} takes no {other}")
    if mechanism == "OAUTHBEARER":
        is_own, is_expired = token in (None, _EXPIRED), token == _EXPIRED
        make: Callable[[], str] = partial(tokens.new, user, is_expired=is_expired)
        if not is_own:
            make = partial(str, token)
        return {
            "mechanism": mechanism,
            "token": make,
            "token_file": lambda: credentials.token_file(make()),
            "is_own_token": is_own,
            "is_expired": is_expired,
        }
    password = wishes.get("password", credentials.passwords.get(user))
    if password is None:
        names = ", ".join(credentials.passwords)
        raise ClusterError(f"there is no user {user!r} but {names}; give a password for another")
    return {"mechanism": mechanism, "password": password}
