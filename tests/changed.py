"""Run the tests nearest to what differs from `main`: `python tests/changed.py [options of pytest]`.

A changed test runs. Of a changed module those tests run that import it; if no test does, those
that import a module that imports it, and so on. Clients, Spark and whatever is slow stay out.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ["protocol", "storage", "broker", "pipeline", "bench", "scenarios"]
ALWAYS = ["tests/test_tidy.py", "tests/test_reliability.py"]
MARKERS = "not compat and not reference and not spark and not slow and not nightly"


def changed_files() -> set[Path]:
    """What was committed since the branch left `main`, what is not committed, and new files."""
    bases = ("main", "origin/main")
    base = next(filter(None, (_git("merge-base", "HEAD", name) for name in bases)), ["HEAD"])
    files = _git("diff", "--name-only", base[0])
    files += _git("ls-files", "--others", "--exclude-standard")
    return {ROOT / file for file in files if file.endswith(".py")}


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def module_of(path: Path) -> str:
    """The name under which a file is imported: `tests` and each room are on the path."""
    words = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imports_of(path: Path) -> set[str]:
    """Names of all that a file imports, of modules and of what may be a module in a package."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def nearest_tests(changed: set[Path], imports: dict[Path, set[str]]) -> set[Path]:
    """The tests among the changed files, and for each other file the tests nearest to it."""
    tests = {path for path in changed if is_test(path)}
    for path in changed - tests:
        reached, last, found = {path}, {path}, set[Path]()
        while last and not found:
            names = {module_of(one) for one in last}
            last = {other for other, used in imports.items() if used & names} - reached
            reached |= last
            found = {other for other in last if is_test(other)}
        tests |= found
    return {path for path in tests if path.exists()}


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def main(options: list[str]) -> int:
    """Returns pytest's exit code."""
    files = [path for room in (*SOURCES, "tests") for path in (ROOT / room).rglob("*.py")]
    imports = {path: imports_of(path) for path in files}
    tests = {str(path.relative_to(ROOT)) for path in nearest_tests(changed_files(), imports)}
    chosen = sorted(tests | set(ALWAYS))
    print(*chosen, sep="\n", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", MARKERS, *options, *chosen]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
