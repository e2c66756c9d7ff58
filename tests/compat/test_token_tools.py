"""kafka-delegation-tokens and kafka-acls print to clients that log in what they print of Apache
Kafka 4.3.1 (recorded), and a client of Java logs in with a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat import acl_tools
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


@pytest.mark.compat
@pytest.mark.nightly  # eleven commands of a JVM
@pytest.mark.timeout(300)
def test_kafka_acls_of_clients_that_log_in(java: Jvm, tmp_path: Path) -> None:
    broker = TidelogSasl(tmp_path, acl_tools.AUTHORIZER)
    broker.start()
    try:
        lines = acl_tools.play(Terminal(java, broker.addresses, tmp_path))
    finally:
        broker.stop()
    assert lines == acl_tools.RECORDED.read_text().splitlines()
