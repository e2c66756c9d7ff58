"""Cases: what clients push (KIP-714). Subscriptions are those of one case: they match the first
bytes of its instances' ids. Answers within an interval are throttled, so most instances ask once.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from compat.conformance import registry
from compat.conformance.cases_configs import SET
from compat.conformance.session import NONE
from support.otlp import counter, gauge, metrics_data
from tidelog_protocol.compression import Codec, compress

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat.conformance.session import Session

CASES: list[registry.Case] = []
GET, PUSH = "GetTelemetrySubscriptions", "PushTelemetry"
CLIENT_METRICS = 16
THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID = 89, 117
BYTES_MAX = 4096  # telemetry.max.bytes of both brokers
ZERO = bytes(16)
DATA = metrics_data(gauge("a.b", 2.5, topic="t"), counter("c", 3.0))
SHORT_MS, LONG_MS = 100, 3_600_000


def case(api: str) -> Callable[..., Callable[..., None]]:
    return registry.case(api, into=CASES)


class Clients:
    """The client instances of one case."""

    def __init__(self, s: Session) -> None:
        self._s = s
        self._count = 0
        self._head = hashlib.sha256(s.name.encode()).digest()[:12]

    def id(self) -> bytes:
        """An id that no instance has yet."""
        self._count += 1
        return self._head + self._count.to_bytes(4, "big")

    def subscribe(self, name: str, *matches: str, **settings: str) -> int:
        """Set a subscription of this case's instances; the answer's error."""
        head = base64.urlsafe_b64encode(self._head).decode()
        settings["match"] = ",".join([f"client_instance_id={head}.*", *matches])
        configs = [
            {"name": key.replace("_", "."), "config_operation": SET, "value": value}
            for key, value in settings.items()
        ]
        resource = {"resource_type": CLIENT_METRICS, "resource_name": f"{self._s.name}.{name}"}
        resources = [{**resource, "configs": configs}]
        answer = self._s.quietly("IncrementalAlterConfigs", 1, resources=resources)
        return int(answer["responses"][0]["error_code"])

    def await_wanted(self, *metrics: str) -> None:
        """Wait until new instances are to push these; what the last one hears is recorded."""
        while True:
            answer = self._s.quietly(GET, 0, client_instance_id=self.id())
            if sorted(answer["requested_metrics"]) == sorted(metrics):
                break
        answer["requested_metrics"].sort()  # they are a set
        self._s.record(GET, answer)

    def get(self, instance_id: bytes) -> dict[str, Any]:
        """Ask for the subscriptions of an instance."""
        answer = self._s.quietly(GET, 0, client_instance_id=instance_id)
        answer["requested_metrics"].sort()
        self._s.record(GET, answer)
        return answer

    def push(self, known: dict[str, Any], metrics: bytes = DATA, **fields: Any) -> None:
        """Push; by an instance as it was told."""
        own = {key: known[key] for key in ("client_instance_id", "subscription_id")}
        self._s.ask(PUSH, 0, **{**own, "metrics": metrics, **fields})

    def push_once(self, metrics: bytes = DATA, **fields: Any) -> None:
        """Push as a new instance."""
        known = self._s.quietly(GET, 0, client_instance_id=self.id())
        self.push(known, metrics, **fields)


@case(GET)
def nothing_wanted(s: Session, version: int) -> None:
    clients = Clients(s)
    given = clients.get(ZERO)
    clients.get(given["client_instance_id"])  # too early
    clients.push(given, b"")
    clients.push(given, b"")  # too early
    clients.push(given, b"", terminating=True)
    clients.push(given, b"", terminating=True)  # it has ended
    clients.get(given["client_instance_id"])


@case(GET)
def reserved_ids(s: Session, version: int) -> None:
    clients = Clients(s)
    known = clients.get(clients.id())
    for reserved in (ZERO, bytes(15) + b"\x01"):
        clients.push({**known, "client_instance_id": reserved})
    clients.push({**known, "client_instance_id": clients.id()})  # it never asked


@case(GET)
def several_subscriptions(s: Session, version: int) -> None:
    clients = Clients(s)
    assert clients.subscribe("one", metrics="a.,b.", interval_ms=str(LONG_MS)) == NONE
    clients.await_wanted("a.", "b.")
    assert clients.subscribe("two", metrics="b.,c.", interval_ms="60000") == NONE
    clients.await_wanted("a.", "b.", "c.")
    assert clients.subscribe("all", metrics="*", interval_ms="70000") == NONE
    clients.await_wanted("*")
    assert clients.subscribe("all", metrics="") == NONE
    clients.await_wanted("a.", "b.", "c.")


@case(GET)
def matched_clients(s: Session, version: int) -> None:
    software = {"client_software_name": "some-client", "client_software_version": "1.2"}
    s.quietly("ApiVersions", 3, **software)
    clients = Clients(s)
    for name, pattern in (
        ("client_id", "conf.*"),
        ("client_software_name", "some-.*"),
        ("client_software_version", "1[.]2"),
        ("client_source_address", "127[.]0[.]0[.]1"),
        ("client_source_port", "[0-9]+"),
    ):
        assert clients.subscribe(name, f"{name}={pattern}", metrics=f"{name}.") == NONE
        assert clients.subscribe(f"{name}.not", f"{name}=x{pattern}", metrics="no.") == NONE
    names = ("id", "software_name", "software_version", "source_address", "source_port")
    clients.await_wanted(*(f"client_{name}." for name in names))


@case(PUSH)
def pushes(s: Session, version: int) -> None:
    clients = Clients(s)
    assert clients.subscribe("one", metrics="*", interval_ms=str(LONG_MS)) == NONE
    clients.await_wanted("*")
    for codec in Codec:
        clients.push_once(compress(codec, DATA), compression_type=codec)
    for codec in (-1, 5, 127):
        clients.push_once(compression_type=codec)
    clients.push_once(b"")
    clients.push_once(b"no metrics")
    clients.push_once(b"no gzip", compression_type=Codec.GZIP)
    clients.push_once(bytes(BYTES_MAX + 1))
    clients.push_once(subscription_id=7)
    clients.push_once(subscription_id=7, metrics=bytes(BYTES_MAX + 1), compression_type=9)


@case(PUSH)
def after_an_error(s: Session, version: int) -> None:
    """Some errors let a client ask at once for its subscriptions."""
    clients = Clients(s)
    assert clients.subscribe("one", metrics="*", interval_ms=str(LONG_MS)) == NONE
    clients.await_wanted("*")
    for wrong in (
        {"subscription_id": 7},
        {"compression_type": 9},
        {"metrics": bytes(BYTES_MAX + 1)},
        {"metrics": b"no metrics"},
    ):
        known = clients.get(clients.id())
        clients.push(known, **wrong)
        told = clients.get(known["client_instance_id"])
        clients.push(told if told["subscription_id"] else known)
        clients.push(known)  # too early


@case(PUSH)
def changed_subscriptions(s: Session, version: int) -> None:
    clients = Clients(s)
    assert clients.subscribe("one", metrics="a.", interval_ms=str(SHORT_MS)) == NONE
    clients.await_wanted("a.")
    known = clients.get(clients.id())
    clients.push(known)
    assert clients.subscribe("one", metrics="b.", interval_ms=str(LONG_MS)) == NONE
    clients.await_wanted("b.")
    clients.push(known)
    known = clients.get(known["client_instance_id"])
    clients.push(known)
    clients.push(known, terminating=True)
    clients.push(known, terminating=True)
