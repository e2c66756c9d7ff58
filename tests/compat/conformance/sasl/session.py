"""One case: its connections to the listeners, and the answers. The name of a connection begins with
that of its listener: `SASL`, `SASL:other`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat.conformance.normalise import Normaliser
from compat.conformance.sasl.clients import NONCE, Scram
from compat.conformance.sasl.doors import USERS
from compat.conformance.session import CLOSED, Session
from compat.raw import RawConnection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat.conformance.registry import Run

SASL = "SASL"
ANSWER_TIMEOUT_S = 20.0
SALT = b"a salt of nineteen!"


class SaslSession(Session):
    """What a case is given."""

    def __init__(self, run: Run, addresses: Mapping[str, str], nonce: str = "") -> None:
        super().__init__(run, addresses["PLAINTEXT"], nonce)
        self._addresses = addresses
        self._normaliser = Normaliser(",".join(addresses.values()))

    def is_open(self, name: str) -> bool:
        return name in self._connections

    def connection(self, name: str = "main") -> RawConnection:
        """A connection by name, opened on first use."""
        if name not in self._connections:
            listener = "PLAINTEXT" if name == "main" else name.partition(":")[0]
            address = self._addresses[listener]
            self._connections[name] = RawConnection(address, ANSWER_TIMEOUT_S)
        return self._connections[name]

    def handshake(self, mechanism: str, version: int = 1, *, to: str = SASL) -> dict[str, Any]:
        """Name a mechanism; recorded. Names come in the order of a hash map."""
        sent = self.send("SaslHandshake", version, connection=to, mechanism=mechanism)
        answer = self.receive("SaslHandshake", version, sent, record=False)
        if "mechanisms" in answer:
            answer["mechanisms"].sort()
        self.record("SaslHandshake", answer)
        return answer

    def token(
        self, token: bytes, version: int = 2, *, to: str = SASL, record: bool = True
    ) -> dict[str, Any]:
        """Send a token; recorded, as text."""
        sent = self.send("SaslAuthenticate", version, connection=to, auth_bytes=token)
        answer = self.receive("SaslAuthenticate", version, sent, record=False)
        if "auth_bytes" in answer:
            answer["auth_bytes"] = answer["auth_bytes"].decode("utf-8", "backslashreplace")
        if record:
            self.record("SaslAuthenticate", self._steady(answer))
        return answer

    def _steady(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Without what differs from run to run: sessions in whole minutes."""
        lifetime_ms = answer.get("session_lifetime_ms", 0)
        return {**answer, **({"session_lifetime_ms": "some"} if lifetime_ms % 60_000 else {})}

    def bare(self, token: bytes, *, to: str = SASL) -> None:
        """Send a bare token, as after SaslHandshake v0; recorded."""
        self.connection(to).send_frame(token)
        frame = self.connection(to).read_frame()
        self.record("token", CLOSED if frame is None else frame.decode())

    def login(self, name: str = "alice", *, to: str = SASL) -> None:
        """Authenticate by PLAIN, unrecorded."""
        fields = {"mechanism": "PLAIN", "connection": to}
        sent = self.send("SaslHandshake", 1, **fields)
        self.receive("SaslHandshake", 1, sent, record=False)
        answer = self.token(f"\0{name}\0{USERS[name]}".encode(), to=to, record=False)
        assert answer["error_code"] == 0, answer

    def served(self, *, to: str = SASL) -> None:
        """Record whether the connection answers requests."""
        self.tell("Metadata", 9, to=to, topics=[])

    def tell(self, api: str, version: int, *, to: str = SASL, **fields: Any) -> None:
        """Record the error of an answer, or that the connection was closed."""
        try:
            sent = self.send(api, version, connection=to, **fields)
            answer = self.receive(api, version, sent, record=False)
        except OSError:
            answer = dict(CLOSED)
        self.record(api, answer if answer == CLOSED else {"error": answer.get("error_code", 0)})

    def ended(self, *, to: str = SASL) -> None:
        """Record whether the broker has closed the connection, and close it."""
        self.served(to=to)
        self.disconnect(to)

    def disconnect(self, name: str = "main") -> None:
        """Close a connection, if it is open."""
        if name in self._connections:
            super().disconnect(name)

    def scram(
        self, client: Scram, mechanism: str, *, to: str = SASL, authzid: str = "", **changes: str
    ) -> None:
        """A whole conversation of SCRAM; what is random is checked, not recorded."""
        self.handshake(mechanism, to=to)
        wanted = f"a={authzid}" if authzid else ""
        answer = self.token(f"n,{wanted},{client.bare}".encode(), to=to, record=False)
        first = answer.get("auth_bytes", "")
        if answer.get("error_code") != 0:
            self.record("SaslAuthenticate", answer)
            return
        parts = dict(part.split("=", 1) for part in first.split(","))
        shown = [part.partition("=")[0] for part in first.split(",")]
        self.record("first", [shown, parts["r"].startswith(NONCE), parts["i"]])
        answer = self.token(client.final(first, **changes), to=to, record=False)
        if answer.get("error_code") == 0:
            answer["auth_bytes"] = client.proves(answer["auth_bytes"])
        self.record("SaslAuthenticate", self._steady(answer))

    def user(self, name: str, password: str, *mechanisms: int) -> None:
        """Make a user of SCRAM, by mechanisms, and wait until the broker knows it."""
        import hashlib

        for number in mechanisms:
            hashed = {1: "sha256", 2: "sha512"}[number]
            salted = hashlib.pbkdf2_hmac(hashed, password.encode(), SALT, 4096)
            one = {"name": name, "mechanism": number, "iterations": 4096}
            one |= {"salt": SALT, "salted_password": salted}
            self.quietly("AlterUserScramCredentials", 0, deletions=[], upsertions=[one])
        end = time.monotonic() + 30
        while time.monotonic() < end:
            found = self.quietly("DescribeUserScramCredentials", 0, users=[{"name": name}])
            if len(found["results"][0]["credential_infos"]) == len(mechanisms):
                return
            time.sleep(0.02)
        raise TimeoutError(f"no user {name}")
