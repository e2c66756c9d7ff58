"""The page that compares tidelog with other test brokers names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/compared.md").read_text()
WANTS = [str(number) for number in range(1, 16)]
COLUMNS = 8


def rows(columns: int) -> list[list[str]]:
    """The numbered rows of the table with so many columns."""
    found = [line.strip("|").split("|") for line in PAGE.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in cells] for cells in found if len(cells) == columns]


def test_every_want_has_a_line_with_all_peers_and_a_test() -> None:
    compared, shown = rows(COLUMNS), rows(2)
    assert [cells[0] for cells in compared] == [cells[0] for cells in shown] == WANTS
    assert [cells for cells in compared if not all(cells)] == []
    assert [number for number, tests in shown if "::" not in tests] == []


def test_the_tests_that_it_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) == PAGE.count("::") > len(WANTS)
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text())
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, file
