"""What `security=...` may be: the protocol of clients' listeners."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.control.errors import ClusterError

__all__ = ["MECHANISMS", "Kind", "kind_of"]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms of secured clusters."""


class Kind(NamedTuple):
    """One kind of security."""

    name: str
    protocol: str
    has_client_certificates: bool = False

    @property
    def is_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self.protocol.startswith("SASL")


_KINDS = {
    kind.name: kind
    for kind in (
        Kind("ssl", "SSL"),
        Kind("mtls", "SSL", has_client_certificates=True),
        Kind("sasl_plaintext", "SASL_PLAINTEXT"),
        Kind("sasl_ssl", "SASL_SSL"),
    )
}


def kind_of(name: str) -> Kind:
    """Return a kind by its name; ClusterError if there is none."""
    try:
        return _KINDS[name.lower()]
    except (KeyError, AttributeError):
        raise ClusterError(f"security {name!r} is none of {', '.join(_KINDS)}") from None
