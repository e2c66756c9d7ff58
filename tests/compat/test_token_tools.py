"""kafka-delegation-tokens prints what it prints of Apache Kafka 4.3.1 (recorded), and a client of
Java logs in with a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.conformance.sasl.doors import TidelogSasl
from compat.token_tools import RECORDED, Terminal, play

if TYPE_CHECKING:
    from pathlib import Path

    from compat.jvm import Jvm


@pytest.mark.compat
@pytest.mark.nightly  # eleven commands of a JVM
@pytest.mark.timeout(300)
def test_kafka_delegation_tokens(java: Jvm, tmp_path: Path) -> None:
    broker = TidelogSasl(tmp_path)
    broker.start()
    try:
        lines = play(Terminal(java, broker.addresses, tmp_path))
    finally:
        broker.stop()
    assert lines == RECORDED.read_text().splitlines()
