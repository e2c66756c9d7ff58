"""A part of the table of damaged files; `make damage` plays the whole of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from damage.cases import all_cases, cases_of_three
from damage.directory import build
from damage.play import UNDETECTABLE, Verdict, play
from damage.three import Three
from damage.verdicts import differences, recorded
from support.clusters import run

if TYPE_CHECKING:
    from pathlib import Path

    from damage.cases import Case
    from damage.directory import Truth

CASES = [case for case in all_cases() if str(case) not in UNDETECTABLE]
OF_THREE = [
    "whole disk, delete, clean",
    "middle .log, delete, kill",
    "last .log, swap, clean",
    "last .log, cut, together",
    "metadata .log, flip, clean",
    "folder of a partition, delete, together",
]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    return folder, asyncio.run(build(folder))


@pytest.mark.parametrize("case", CASES[::17], ids=str)
def test_no_damaged_file_loses_anything_in_silence(
    originals: tuple[Path, Truth], tmp_path: Path, case: Case
) -> None:
    folder, truth = originals
    outcome = asyncio.run(play(case, folder, tmp_path / "case", truth))
    if outcome is None:
        pytest.skip("there is nothing to damage")
    assert not outcome.verdict.is_fault, (outcome.losses, outcome.said)
    if case.damage != "flip":  # the bits around it are not the same in each run
        assert differences({str(case): outcome.verdict.value}) == [], outcome
    if outcome.verdict is Verdict.REFUSED:
        assert outcome.said[0], "a refused start says why"


def test_the_table_has_a_verdict_for_each_of_300_cases_and_no_fault() -> None:
    table = recorded()
    assert len(table) >= 300
    assert table.keys() <= {str(case) for case in all_cases()}
    faults = {Verdict.SILENT.value, Verdict.TRACEBACK.value}
    assert {case for case, verdict in table.items() if faults & set(verdict.split(" or "))} <= (
        UNDETECTABLE
    )


def test_three_brokers_lose_nothing_with_the_files_of_one(tmp_path: Path) -> None:
    cases = {str(case): case for case in cases_of_three()}

    async def test():
        async with Three(tmp_path) as three:
            for name in OF_THREE:
                outcome = await three.play(cases[name])
                assert outcome is not None, f"{name}: there is nothing to damage"
                assert not outcome.losses, (name, outcome.losses, outcome.said)

    run(test)
