"""Cases: listeners of a running broker (KIP-226), changed by IncrementalAlterConfigs.

Ports are the machine's: they are recorded by what they are for. What is added stays: these
cases are the last ones of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance import registry
from compat.conformance.cases_configs import BROKER, DELETE, SET
from compat.conformance.messages import APIS, decode, encode, request_payload
from compat.eventually import eventually
from compat.raw import RawConnection
from tidelog_bench.peers.address import free_port

if TYPE_CHECKING:
    from compat.conformance.session import Session

CASES: list[registry.Case] = []
MAP = "listener.security.protocol.map"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
WITH_MORE = f"{PROTOCOLS},EXTRA:PLAINTEXT,MORE:PLAINTEXT"
REAUTHENTICATION = "listener.name.extra.connections.max.reauth.ms"
WITH_EXTRA = f"{PROTOCOLS},EXTRA:PLAINTEXT"


class Listeners:
    """The listeners of one broker, by the names of their ports."""

    def __init__(self, s: Session, version: int) -> None:
        self._s = s
        self._version = version
        resource = {
            "resource_type": BROKER,
            "resource_name": "1",
            "configuration_keys": ["listeners"],
        }
        found = s.quietly("DescribeConfigs", 4, resources=[resource])
        self.own = found["results"][0]["configs"][0]["value"]
        self.ports = {"one": free_port(), "two": free_port()}

    def alter(self, *changes: tuple[str, str | None]) -> None:
        """Set these, or delete them, and record the answer."""
        rows = [
            {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
            for key, value in changes
        ]
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": rows}
        answer = self._s.quietly("IncrementalAlterConfigs", self._version, resources=[resource])
        result = answer["responses"][0]
        self._s.record(
            "IncrementalAlterConfigs", [result["error_code"], self._named(result["error_message"])]
        )

    def set(self, listeners: str, *more: tuple[str, str | None]) -> None:
        """Set `listeners`: those of the start, as `own`, and others on named ports."""
        for name, port in self.ports.items():
            listeners = listeners.replace(f":{name}", f":{port}")
        self.alter(("listeners", listeners.replace("own", self.own)), *more)

    def await_answer(self, name: str) -> None:
        """Record what a port answers, once it does."""
        found = eventually(lambda: self._brokers(name), lambda brokers: brokers is not None)
        self._s.record("Metadata", {name: found})

    def _brokers(self, name: str) -> Any:
        tables = APIS["Metadata"]
        try:
            with RawConnection(f"127.0.0.1:{self.ports[name]}") as connection:
                body = encode(tables, 1, {"topics": []})
                connection.send_frame(request_payload(tables, 1, 1, None, body))
                frame = connection.read_frame()
        except OSError:
            return None
        return None if frame is None else decode(tables, 1, frame)["brokers"]

    def _named(self, text: str | None) -> str | None:
        for name, address in (*self.ports.items(), ("own", self.own)):
            text = text and text.replace(str(address).replace(",", ", "), f"<{name}>")
        return text


@registry.case("IncrementalAlterConfigs", 1, into=CASES)
def listeners(s: Session, version: int) -> None:
    own = Listeners(s, version)
    own.set("own,EXTRA://127.0.0.1:one")
    own.set("own,EXTRA://127.0.0.1:one", (MAP, WITH_EXTRA))
    own.await_answer("one")
    own.set("own,EXTRA://127.0.0.1:two")  # is taken, and has no effect
    own.await_answer("one")
    own.alter((MAP, f"{PROTOCOLS},EXTRA:SASL_PLAINTEXT"))
    own.alter((MAP, PROTOCOLS))
    own.alter((MAP, f"{PROTOCOLS},EXTRA:NONE"))
    own.set("own")  # what has been added is advertised
    own.set("EXTRA://127.0.0.1:two")
    own.set("own,EXTRA://127.0.0.1:two,MORE://127.0.0.1:two", (MAP, WITH_MORE))
    own.set("own,EXTRA://127.0.0.1:two,MORE://elsewhere:two", (MAP, WITH_MORE))
    own.set("own,EXTRA://127.0.0.1:one,EXTRA://127.0.0.1:two")
    own.set("own,EXTRA://127.0.0.1")
    own.set("")
    own.set("own,EXTRA://127.0.0.1:one", (REAUTHENTICATION, "7000"))
    own.alter(("advertised.listeners", "PLAINTEXT://127.0.0.1:7"))
    for key, value in (
        ("listener.name.extra.max.connections", "7"),
        (REAUTHENTICATION, "7000"),
        ("listener.name.extra.ssl.client.auth", "required"),
        ("listener.name.other.ssl.keystore.location", "/nowhere"),
        ("listener.name.plaintext.connections.max.reauth.ms", "7000"),
    ):
        own.alter((key, value))
    own.await_answer("one")
