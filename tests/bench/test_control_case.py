"""The case of the control door, small, on two real brokers."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from tidelog_bench.cases import METRICS
from tidelog_bench.control_case import CONTROL_NAME, ControlledTidelog, IdleDoor
from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError, go_program
from tidelog_bench.peers.tidelog import Tidelog
from tidelog_bench.results import ORDER

if TYPE_CHECKING:
    from pathlib import Path


def test_an_open_door_beside_a_closed_one(tmp_path: Path) -> None:
    try:
        go_program("tier")
    except GoBuildError:
        raise
    except GoUnavailableError as missing:
        pytest.skip(str(missing))
    closed, opened = Tidelog(tmp_path / "closed"), ControlledTidelog(tmp_path / "open")
    another = Tidelog(tmp_path / "another")
    try:
        for peer in (closed, another, opened):
            peer.start()
        with urllib.request.urlopen(f"http://{opened.door}/openapi.json") as answer:
            assert answer.status == 200
        assert "--control" not in closed.command()
        figures = IdleDoor(closed, another, rate=200, seconds=1, turns=1).run(opened, 1.0)
    finally:
        for peer in (closed, another, opened):
            peer.remove()
    assert figures["open by closed"] == figures["p99 open"] / figures["p99 closed"] > 0
    assert figures["closed by closed"] > 0
    assert METRICS.keys() >= figures.keys()
    assert CONTROL_NAME in ORDER
