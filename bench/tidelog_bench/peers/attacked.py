"""tidelog as `bench_hostile.py` attacks it: listeners of TLS and SASL, an endpoint for metrics, and
a log of what held its event loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tidelog.control.credentials.folder import Credentials
from tidelog.control.credentials.kinds import kind_of
from tidelog_bench.peers.address import free_ports
from tidelog_bench.peers.tidelog import Tidelog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["WATCHED_MS", "AttackedTidelog", "Doors"]

WATCHED_MS = 50
_SLOW = re.compile(r"stood still for \d+ ms \((\d+) ms of CPU\) in (.*)")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Doors(NamedTuple):
    """Where it listens, `host:port` each."""

    plain: str
    sasl: str
    tls: str
    metrics: str


class AttackedTidelog(Tidelog):
    """One broker; with an authorizer that lets everyone do what no ACL is about."""

    def __init__(self, folder: Path, *, has_acls: bool = False) -> None:
        super().__init__(folder)
        sasl, tls, metrics = (f"127.0.0.1:{port}" for port in free_ports(3))
        self.doors = Doors(self.bootstrap, sasl, tls, metrics)
        self._has_acls = has_acls

    def command(self) -> Sequence[str]:
        """Serve until standard input ends."""
        credentials = Credentials.make(
            str(self.folder / "security"), kind_of("sasl_ssl"), ["127.0.0.1"]
        )
        doors = self.doors
        settings = {
            "listeners": f"PLAINTEXT://{doors.plain},SASL_PLAINTEXT://{doors.sasl},"
            f"SSL://{doors.tls}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_PLAIN} user_a="b";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": credentials.broker_file(),
            "metrics.prometheus.listener": doors.metrics,
            "loop.watchdog.ms": str(WATCHED_MS),
            "log.segment.delete.delay.ms": "1000",
        }
        if self._has_acls:
            settings["authorizer.class.name"] = _AUTHORIZER
            settings["allow.everyone.if.no.acl.found"] = "true"
        given = [f"--set={key}={value}" for key, value in settings.items()]
        own = super().command()
        port = own.index("--port")
        return [*own[:port], *own[port + 2 :], *given]

    def forget_slow(self) -> None:
        """Begin a new log."""
        self.log.write_bytes(b"")

    def slowest(self) -> tuple[int, str]:
        """Return the CPU time in ms of the callback that took most since `forget_slow`, and what it
        was; 0 if none was above the limit."""
        text = self.log.read_text(errors="replace")
        found = [(int(ms), where) for ms, where in _SLOW.findall(text)]
        return max(found, default=(0, ""))
