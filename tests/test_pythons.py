"""Which cases a sample takes; what a run on further Pythons says of those it could not run on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import pythons


class Case:
    """What the sample knows of a test; pytest hashes its own like this."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.keywords: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.nodeid)

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_sample_has_the_first_cases_that_the_filters_leave(pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).parent / "conftest.py"))
    assert conftest is not None
    left_out: list[Case] = []
    config = SimpleNamespace(
        getoption=lambda name: name == "--sample",
        hook=SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items)),
    )
    nightly, first, second = (Case(f"test_a.py::test_x[{n}]") for n in range(3))
    others = [Case(f"test_a.py::test_{n}") for n in range(3)]
    elsewhere = Case("test_b.py::test_x")
    items = [nightly, first, second, *others, elsewhere]
    sampling = conftest.pytest_collection_modifyitems(config, items)
    next(sampling)
    items[:] = [elsewhere, *others, second, first]  # `-m "not nightly"`, and the tests are mixed
    first.nodeid += "@group"  # xdist
    with pytest.raises(StopIteration):
        next(sampling)
    assert items == [elsewhere, others[0], first]
    assert left_out == [others[1], others[2], second]


def test_what_was_not_checked_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"3.12": "/usr/bin/python3.12", "3.13": "/usr/bin/python3.13"}
    monkeypatch.setattr(pythons, "find", found.get)
    monkeypatch.setattr(pythons, "run", lambda version, *_: int(version == "3.13"))
    assert pythons.main(["3.12"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "passed on Python 3.12"
    assert pythons.main(["3.12", "3.14", "3.15"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "passed on Python 3.12; NOT CHECKED: Python 3.14, 3.15 (not on this machine)"
    )
    assert pythons.main(["3.12", "3.13", "3.14"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "passed on Python 3.12; FAILED on Python 3.13; NOT CHECKED: Python 3.14"
        " (not on this machine)"
    )
