"""The case of the control door, small, on two real brokers."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from tidelog_bench.cases import METRICS
from tidelog_bench.control_case import CONTROL_NAME, ControlledTidelog, IdleDoor, _difference
from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError, go_program
from tidelog_bench.peers.tidelog import Tidelog
from tidelog_bench.results import ORDER

if TYPE_CHECKING:
    from pathlib import Path


def test_a_difference_has_bounds_that_chance_leaves_it() -> None:
    ones, others = [float(11 + n % 5) for n in range(25)], [10.0] * 25
    found = _difference("d", ones, others)
    assert found == {"d": 3.0, "d, at least": 2.0, "d, at most": 4.0}
    one = {"d": 1.0, "d, at least": 1.0, "d, at most": 1.0}
    assert _difference("d", [11.0], [10.0]) == one


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
    for what in ("p99", "CPU"):
        difference = figures[f"{what} open less closed"]
        assert difference == figures[f"{what} open"] - figures[f"{what} closed"]
        assert figures[f"{what} closed"] > 0
    assert METRICS.keys() >= figures.keys()
    assert CONTROL_NAME in ORDER
