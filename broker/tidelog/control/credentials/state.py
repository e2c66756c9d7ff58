"""How clients of a cluster authenticate: without secrets, which are in a folder that only the user
of the brokers may read."""

# ruff: noqa: PLC0415 - a broker without security has a state too: it starts without OpenSSL

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from tidelog.control.credentials.wishes import Wishes

__all__ = ["SecurityState", "client_config"]


@dataclass(frozen=True)
class SecurityState:
    """How clients of a cluster authenticate."""

    bootstrap_servers: str
    kind: str | None = None
    """`ssl`, `mtls`, `sasl_plaintext` or `sasl_ssl`; None without security."""
    folder: str | None = None
    """Where certificates and passwords are, on the machine of the brokers."""
    bad_certificates: dict[str, str] = field(default_factory=dict)
    """Addresses of the running brokers by what is wrong with the certificate there."""


def client_config(state: SecurityState, client: str, wishes: Wishes) -> Any:
    """Return the configuration of a client library; ClusterError if there is none."""
    from tidelog.control.credentials.clients import configuration
    from tidelog.control.credentials.folder import Credentials
    from tidelog.control.credentials.wishes import client_of

    credentials = None
    if state.folder is not None:
        try:
            credentials = Credentials.read(state.folder)
        except FileNotFoundError:
            raise ClusterError(
                f"{state.folder} is not there: it is on the machine of the brokers"
            ) from None
    found = client_of(credentials, state.bootstrap_servers, state.bad_certificates, wishes)
    return configuration(client, found)
