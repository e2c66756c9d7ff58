"""tidelog and Apache Kafka with one listener, of TLS: the same certificate, made for both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.control.credentials.folder import Credentials
from tidelog.control.credentials.kinds import kind_of
from tidelog_bench.peers.apache_kafka import ApacheKafka
from tidelog_bench.peers.tidelog import Tidelog

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SECURED_PEERS", "SecuredKafka", "SecuredTidelog"]

_KIND = "ssl"


class SecuredTidelog(Tidelog):
    """`tidelog serve --security ssl`."""

    def prepare(self) -> None:
        """Make the certificate."""
        super().prepare()
        self.authority = Path(_credentials(self.folder).trusted)

    def command(self) -> Sequence[str]:
        """Serve until standard input ends."""
        return [*super().command(), "--security", _KIND, "--security-dir", _place(self.folder)]


class SecuredKafka(ApacheKafka):
    """One Apache Kafka node."""

    protocol = "SSL"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._plain = self._settings

    def prepare(self) -> None:
        """Make the certificate, and name it in the properties."""
        self.folder.mkdir(parents=True, exist_ok=True)
        credentials = _credentials(self.folder)
        self.authority = Path(credentials.trusted)
        self._settings = {
            **self._plain,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": credentials.broker_file(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": credentials.trusted,
        }
        super().prepare()


SECURED_PEERS = {"tidelog": SecuredTidelog, "kafka": SecuredKafka}


def _place(folder: Path) -> str:
    """Return the folder of a peer's credentials."""
    return str(folder / "security")


def _credentials(folder: Path) -> Credentials:
    return Credentials.make(_place(folder), kind_of(_KIND), ["127.0.0.1"])
