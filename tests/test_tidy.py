"""Style as a test: sizes, owners and words (the rest is ruff's, mypy's and import-linter's)."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["protocol", "storage", "broker", "pipeline", "bench", "scenarios"]
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 800  # a wall; most files stay near 300
FUNCTION_LINES_MAX = 70
SHORT_WORDS = re.compile(r"\b(hw|leo|lso|mgr|hwm)\b")
# Rooms whose prose is not checked yet. Take a room off this list once it passes.
UNCHECKED_PROSE = (
    "broker/tidelog/cluster/controller",
    "broker/tidelog/tiered",
    "scenarios/tidelog_scenarios",
    "storage/tidelog_storage/recovery.py",
)
# Components are things: "it", never "who". Each word stands for a sentence to write again.
UNCLEAR_WORDS = re.compile(
    r"\b([Ww]ho|[Ww]hom|[Ww]hoever|[Nn]obody|[Ss]omebody|[Ee]verybody|told|hears|anew"
    r"|is of no use|a process of its own"
    r"|(?:replication|tiered-storage|wire|performance)\.md)\b"
)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The file, parsed; CPython 3.11 may fail when another thread parses too (gh-106905)."""
    text = path.read_text()
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=relative)
def test_files_stay_small(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= LINES_MAX, f"{lines} lines: give a part of it a file of its own"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_functions_stay_small_and_words_whole(path: Path) -> None:
    tree = tree_of(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"
        names = {
            ast.FunctionDef: lambda n: n.name,
            ast.Name: lambda n: n.id,
            ast.Attribute: lambda n: n.attr,
            ast.arg: lambda n: n.arg,
        }.get(type(node))
        if names is not None:
            word = names(node)
            assert not SHORT_WORDS.search(word), f"{word}: Kafka's nouns in full"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_source_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "no module docstring"


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if not relative(path).startswith(UNCHECKED_PROSE)],
    ids=relative,
)
def test_prose_is_plain(path: Path) -> None:
    """Comments cite a KIP or a class of Kafka, never a document outside of the repository."""
    lines = path.read_text().splitlines()
    unclear = [
        f"{n}: {line.strip()}" for n, line in enumerate(lines, 1) if UNCLEAR_WORDS.search(line)
    ]
    assert unclear == [], "write these plainly, with a component as the subject"


def test_every_module_is_imported_or_started_by_something() -> None:
    """A file nobody imports is dead."""
    text = {path: path.read_text() for path in SOURCES + TESTS}
    starts = (ROOT / "pyproject.toml").read_text() + (ROOT / "Makefile").read_text()
    dead = []
    for path in SOURCES:
        if path.name in {"__init__.py", "__main__.py"}:
            continue
        name = re.compile(rf"\b{path.stem}\b")
        used = any(name.search(body) for other, body in text.items() if other != path)
        if not used and not name.search(starts):
            dead.append(relative(path))
    assert dead == []
