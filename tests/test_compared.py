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
    named = re.findall(r"`((?:tests|examples)/[\w/-]+\.py)::(\w+)`", PAGE)
    assert len(named) == PAGE.count("::") > len(WANTS)
    for file, name in named:
        assert name in functions(ROOT / file), file


def test_every_test_of_the_demo_suite_shows_a_want() -> None:
    assert [name for name in example_tests() if f"::{name}`" not in PAGE] == []


def functions(file: Path) -> list[str]:
    tree = ast.parse(file.read_text())
    return [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]


def example_tests() -> list[str]:
    """The tests of the demo suite."""
    files = sorted((ROOT / "examples" / "order-service").glob("test_*.py"))
    return [name for file in files for name in functions(file) if name.startswith("test_")]
