"""A part of the table of damaged files; `make damage` plays the whole of it."""

from __future__ import annotations

import asyncio

import pytest

from damage.cases import all_cases
from damage.directory import build
from damage.play import UNDETECTABLE, Verdict, play

CASES = [case for case in all_cases() if str(case) not in UNDETECTABLE]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    return folder, asyncio.run(build(folder))


@pytest.mark.parametrize("case", CASES[::13], ids=str)
def test_no_damaged_file_loses_anything_in_silence(originals, tmp_path, case):
    folder, truth = originals
    outcome = asyncio.run(play(case, folder, tmp_path / "case", truth))
    if outcome is None:
        pytest.skip("there is nothing to damage")
    assert outcome.verdict is not Verdict.SILENT, (outcome.losses, outcome.said)
    if outcome.verdict is Verdict.REFUSED:
        assert outcome.said[0], "a refused start says why"
