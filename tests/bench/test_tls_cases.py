"""The cases of TLS, small, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog_bench.cases import Requests, RoundTrip, Throughput
from tidelog_bench.loads.librdkafka import Librdkafka
from tidelog_bench.loads.load import SMALL
from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError, go_program
from tidelog_bench.peers.secured import SecuredTidelog
from tidelog_bench.results import ORDER
from tidelog_bench.tls_cases import TLS_NAMES

if TYPE_CHECKING:
    from pathlib import Path


def test_loads_speak_tls(tmp_path: Path) -> None:
    try:
        go_program("load")
    except GoBuildError:
        raise
    except GoUnavailableError as missing:
        pytest.skip(str(missing))
    broker = SecuredTidelog(tmp_path / "tidelog")
    try:
        broker.start()
        moved = Throughput(Librdkafka(), 1024, SMALL, 100).run(broker, 0.1)
        assert moved["produce"] > 0 < moved["consume"]
        assert RoundTrip(500, 2000).run(broker, 0.1)["p50"] > 0
        assert Requests("fetch", 1, 10_000).run(broker, 0.1)["rate"] > 0
    finally:
        broker.remove()


def test_names_are_in_the_order_of_tables() -> None:
    assert ORDER.keys() >= set(TLS_NAMES)
