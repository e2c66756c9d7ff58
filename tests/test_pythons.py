"""What a run on further Pythons says of those it could not run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pythons

if TYPE_CHECKING:
    import pytest


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
