"""Style as a test: sizes, owners and words (the rest is ruff's, mypy's and import-linter's)."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["protocol", "storage", "broker", "pipeline", "bench", "scenarios"]
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 800  # a wall; most files stay near 300
FUNCTION_LINES_MAX = 70
SHORT_WORDS = re.compile(r"\b(hw|leo|lso|mgr|hwm)\b")
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


def test_files_stay_small() -> None:
    lines = {relative(path): path.read_text().count("\n") for path in SOURCES + TESTS}
    large = {path: count for path, count in lines.items() if count > LINES_MAX}
    assert large == {}, "give a part of it a file of its own"


def test_functions_stay_small() -> None:
    large = [
        f"{relative(path)}: {node.name}"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert large == []


def test_tasks_are_not_kept_in_sets() -> None:
    """Their order there is that of addresses: a seed of the simulation would not be one run."""
    kept = [
        f"{relative(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bset\[asyncio\.(Task|Future)\b", line)
    ]
    assert kept == [], "use dict[asyncio.Task[...], None]"


def test_names_are_kafkas_nouns_in_full() -> None:
    short = [
        f"{relative(path)}: {word}"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if (word := name_in(node)) and SHORT_WORDS.search(word)
    ]
    assert short == []


def name_in(node: ast.AST) -> str:
    """The name that a node defines or uses."""
    match node:
        case ast.FunctionDef(name=name) | ast.Name(id=name):
            return name
        case ast.Attribute(attr=name) | ast.arg(arg=name):
            return name
    return ""


def test_every_source_says_what_it_owns() -> None:
    assert [relative(path) for path in SOURCES if not ast.get_docstring(tree_of(path))] == []


def test_prose_is_plain() -> None:
    """Comments cite a KIP or a class of Kafka, never a document outside of the repository."""
    unclear = [
        f"{relative(path)}:{n}: {line.strip()}"
        for path in SOURCES
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if UNCLEAR_WORDS.search(line)
    ]
    assert unclear == [], "write these plainly, with a component as the subject"


def test_the_map_of_each_package_is_complete() -> None:
    """The docstring of a package names each of its modules, and none that is gone."""
    wrong = []
    for path in SOURCES:
        if path.name == "__init__.py":
            modules = {each.stem for each in path.parent.glob("*.py")} - {"__init__", "__main__"}
            packages = {each.parent.name for each in path.parent.glob("*/__init__.py")}
            text = ast.get_docstring(tree_of(path)) or ""
            missing = (modules | packages) - set(re.findall(r"\w+", text))
            gone = set(re.findall(r"^ *(\w+)\.py\b", text, re.MULTILINE)) - modules - {"__main__"}
            wrong += [f"{relative(path)}: {name}" for name in sorted(missing | gone)]
    assert wrong == [], "keep the map complete"


def test_every_module_is_imported_or_started_by_something() -> None:
    """A file that no other file names is dead. The map of its package does not count."""
    texts = {path: path.read_text() for path in SOURCES + TESTS}
    for path in SOURCES:
        if path.name == "__init__.py":
            texts[path] = texts[path].replace(
                ast.get_docstring(tree_of(path), clean=False) or "", ""
            )
    texts |= {path: path.read_text() for path in (ROOT / "pyproject.toml", ROOT / "Makefile")}
    files_with = Counter(
        word for path, text in texts.items() for word in {*re.findall(r"\w+", text), path.stem}
    )
    dead = [
        relative(path)
        for path in SOURCES
        if path.name not in {"__init__.py", "__main__.py"} and files_with[path.stem] < 2
    ]
    assert dead == []


FOLDERS = {path.name: path.parent for room in ROOMS for path in (ROOT / room).glob("tidelog*")}
# Imports for types alone, both ends of which are parts of one thing: a log and what works on it, a
# node of the quorum and its requests, a simulated disk and its files.
TYPES_OF_THE_WHOLE = {
    *(
        (f"tidelog_storage.{part}", "tidelog_storage.log")
        for part in ("flush", "loading", "replay", "retention", "sealed", "transaction_proof")
    ),
    ("tidelog_storage.upkeep", "tidelog_storage.manager"),
    *(
        (f"tidelog.cluster.quorum.{part}", "tidelog.cluster.quorum.driver")
        for part in ("fetcher", "requests")
    ),
    *(
        (f"tidelog.simulation.{part}", "tidelog.simulation.disk")
        for part in ("disk_files", "disk_trouble")
    ),
}


def imports_of(name: str, modules: dict[str, Path]) -> set[str]:
    """Modules that a file imports anywhere: also in functions, and for types alone."""
    found = set()
    for node in ast.walk(tree_of(modules[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            each = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in modules else node.module for full in each.values()}
    return {each for each in found if each in modules and each != name}


def test_files_import_each_other_in_no_circle() -> None:
    modules = {
        ".".join(
            path.relative_to(FOLDERS[path.relative_to(ROOT).parts[1]]).with_suffix("").parts
        ).removesuffix(".__init__"): path
        for path in SOURCES
        if path.relative_to(ROOT).parts[1] in FOLDERS
    }
    arrows = {(name, each) for name in modules for each in imports_of(name, modules)}
    assert arrows >= TYPES_OF_THE_WHOLE, "remove what is no more"
    below: dict[str, set[str]] = {name: set() for name in modules}
    for name, each in arrows - TYPES_OF_THE_WHOLE:
        below[name].add(each)
    graphlib.TopologicalSorter(below).prepare()  # CycleError names a circle


PARAMETERS_MAX = 6
# Functions with more, all by keywords: options of users, the fields of a batch's header, and the
# one object that `server.py` gives each part of the coordinator.
OPTIONS = {
    "broker/tidelog/control/faults/blocking.py: on",
    "broker/tidelog/control/faults/handles.py: on",
    "broker/tidelog/coordinators/transactions/transactions.py: __init__",
    "broker/tidelog/embedded/cluster.py: __init__",
    "broker/tidelog/embedded/running.py: run",
    "broker/tidelog/simulation/search.py: options_of",
    "protocol/tidelog_protocol/records.py: build_batch",
}


def test_functions_take_few_parameters() -> None:
    large = set()
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                by_place = [*node.args.posonlyargs, *node.args.args]
                names = {each.arg for each in (*by_place, *node.args.kwonlyargs)} - {"self", "cls"}
                if len(names) > PARAMETERS_MAX:
                    assert len(by_place) <= 2, f"{relative(path)}: {node.name}: by keywords"
                    large.add(f"{relative(path)}: {node.name}")
    assert large == OPTIONS
