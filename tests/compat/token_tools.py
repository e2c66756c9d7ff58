"""kafka-delegation-tokens, and a client of Java that logs in with a token.

python -m compat.token_tools --record      with tests/ on the path: from a live Apache Kafka
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from compat.conformance.sasl.doors import KafkaSasl
from compat.console.normalise import lines_of
from compat.eventually import eventually
from compat.jvm import Jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RECORDED = Path(__file__).with_suffix(".txt")
MODULES = "org.apache.kafka.common.security"
TOKENS = "DelegationTokenCommand"
NAMES = (
    (r"[\w+/]{86}==", "<hmac>"),
    (r"20\d\d-\d\d-\d\dT\d\d:\d\d", "<time>"),
    (r"expiry date : .*", "expiry date : <time>"),
    (r" in [\d,]+ms", " in <n> ms"),
    (r"Request .* needs", "Request <request> needs"),
)


class Terminal:
    """Runs tools, and keeps what they print."""

    def __init__(self, jvm: Jvm, addresses: Mapping[str, str], folder: Path) -> None:
        self._jvm, self._addresses, self._folder = jvm, addresses, folder
        self.lines: list[str] = []

    def client(self, mechanism: str, login: str, name: str | None = None) -> list[str]:
        """The options of a client that logs in; `name` is that of its file."""
        file = self._folder / f"{name or mechanism}.properties"
        module = {"PLAIN": f"{MODULES}.plain.PlainLoginModule"}.get(
            mechanism, f"{MODULES}.scram.ScramLoginModule"
        )
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={module} required {login};\n"
        )
        return ["--command-config", str(file)]

    def run(self, main: str, *args: str, to: str = "SASL") -> str:
        """Run a tool; its output is kept in the alphabet of its lines."""
        at = ["--bootstrap-server", self._addresses[to]]
        result = self._jvm.tool(main, *at, *args)
        shown = [re.sub(r"\S+\.properties", "<file>", re.sub(*NAMES[0], each)) for each in args]
        self.lines += [f"$ {main} {' '.join(shown)}"]
        names = (*NAMES, (re.escape(str(self._folder)), "<folder>"))
        self.lines += lines_of(result.out, names, ordered=False)
        self.lines += [f"! {each}" for each in lines_of(result.err, names)]
        self.lines += [f"(exit {result.exit})"]
        return result.out

    def until(self, count: int, *client: str) -> None:
        """Wait until the broker knows so many tokens: it learns of them a little later."""
        kept = [*self.lines]
        eventually(
            lambda: self.run(TOKENS, "--describe", "--owner-principal", "User:alice", *client),
            lambda text: f"Total number of tokens : {count}" in text,
        )
        self.lines = kept


def play(terminal: Terminal) -> list[str]:
    """Use tokens from their creation to their end."""
    alice = terminal.client("PLAIN", 'username="alice" password="alice-secret"')
    made = terminal.run(
        TOKENS,
        *("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"),
        *alice,
    )
    hmac = re.search(r"[\w+/]{86}==", made)
    assert hmac is not None, made
    before = made[: hmac.start()].split()
    terminal.until(1, *alice)
    token = ["--hmac", hmac[0]]
    terminal.run(TOKENS, "--describe", *alice)
    terminal.run(TOKENS, "--describe", "--owner-principal", "User:bob", *alice)
    terminal.run(TOKENS, "--describe", "--owner-principal", "User:carol", *alice)
    login = f'username="{before[-1]}" password="{hmac[0]}" tokenauth="true"'
    client = terminal.client("SCRAM-SHA-256", login)
    terminal.run("TopicCommand", "--list", *client)
    terminal.run(TOKENS, "--describe", *client)
    terminal.run(TOKENS, "--renew", "--renew-time-period", "-1", *token, *alice)
    terminal.run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", "AAAA", *alice)
    terminal.run(TOKENS, "--expire", "--expiry-time-period", "3600000", *token, *alice)
    terminal.run(TOKENS, "--expire", "--expiry-time-period", "-1", *token, *alice)
    terminal.until(0, *alice)
    terminal.run(TOKENS, "--expire", "--expiry-time-period", "-1", *token, *alice)
    return terminal.lines


def record(
    path: Path, play: Callable[[Terminal], list[str]], more: Mapping[str, str] | None = None
) -> None:
    """Print what the tools print of Apache Kafka with more settings; keep it if that is asked
    for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jvm, broker = Jvm(folder / "jvm.log"), KafkaSasl(folder / "kafka", more)
        broker.start()
        try:
            lines = play(Terminal(jvm, broker.addresses, folder))
        finally:
            broker.stop()
            jvm.kill()
    if "--record" in sys.argv:
        path.write_text("\n".join([*lines, ""]))
    print(*lines, sep="\n")


if __name__ == "__main__":
    record(RECORDED, play)
