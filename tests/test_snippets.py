"""Every code block of the README and of `docs/` runs.

- `sh`: by bash, with this checkout's `tidelog` on a free port. A command that ends with `&` is
  waited for as a reader waits for it: until it says that it is ready. `pip` and `make` lines are
  left out; `test_readme.py` checks that the targets are there.
- `python`: as a script, whose `main()` is run if it is a coroutine function. With tests in it, by
  pytest. A first line `# name.py` names its file, for the blocks below it in the same section.

A block that is on several pages runs once.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_CODE = ("", "text", "{toctree}", "{eval-rst}", "{include}")
FILE_NAME = re.compile(r"# (\w+\.py)\n")
SECONDS_MAX = 120  # for the machine
PORTS = 3  # of consecutive brokers

pytestmark = pytest.mark.timeout(400)


class Snippet(NamedTuple):
    """A block, and the named files that stand above it in its section."""

    place: str
    language: str
    text: str
    files: tuple[tuple[str, str], ...]

    @property
    def is_test(self) -> bool:
        return "\ndef test_" in self.text


def snippets() -> Iterator[Snippet]:
    seen: set[str] = set()
    for page in PAGES:
        for section in re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE):
            files: list[tuple[str, str]] = []
            for number, (language, text) in enumerate(BLOCK.findall(section)):
                named = FILE_NAME.match(text)
                if language == "python" and named and not named[1].startswith("test_"):
                    files.append((named[1], text))
                elif language not in NOT_CODE and text not in seen:
                    seen.add(text)
                    title = section.splitlines()[0].strip("# ")
                    place = f"{page.stem}: {title}: {number}"
                    yield Snippet(place, language, text, tuple(files))


ALL = list(snippets())


def of(language: str, *, tests: bool = False, spark: bool = False) -> list[object]:
    return [
        pytest.param(snippet, id=snippet.place)
        for snippet in ALL
        if snippet.language == language
        and snippet.is_test == tests
        and ("tidelog_pipeline" in snippet.text) == spark
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_languages_are_run() -> None:
    assert {snippet.language for snippet in ALL} == {"sh", "python"}


# -- Python ----------------------------------------------------------------------------------------


def run_script(snippet: Snippet, folder: Path) -> None:
    for name, text in snippet.files:
        (folder / name).write_text(text)
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(snippet.text, snippet.place, "exec"), namespace)
    main = namespace.get("main")
    if inspect.iscoroutinefunction(main):
        asyncio.run(main())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients' own imports
@pytest.mark.parametrize("snippet", of("python"))
def test_python(snippet: Snippet, folder: Path) -> None:
    run_script(snippet, folder)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("snippet", of("python", spark=True))
def test_spark(snippet: Snippet, folder: Path) -> None:
    run_script(snippet, folder)


@pytest.mark.parametrize("snippet", of("python", tests=True))
def test_pytest(snippet: Snippet, folder: Path) -> None:
    for name, text in (*snippet.files, ("test_snippet.py", snippet.text)):
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "-p", "tidelog.pytest_plugin", "."],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the others take a second
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout


# -- shell -----------------------------------------------------------------------------------------

SHIM = """\
#!/bin/sh
command=$1; shift
case $command in
serve) exec {tidelog} serve --port {port} "$@" > {folder}/said ;;
verify) exec {tidelog} verify $(echo "$1" | sed s/:9092/:{port}/) ;;
topics|groups|produce|consume|configs|tiers)
    exec {tidelog} $command "$@" --bootstrap-server 127.0.0.1:{port} ;;
*) exec {tidelog} $command "$@" ;;
esac
"""
BEGINNING = """\
set -eu
pip() { :; }
make() { :; }
ready() { until grep -q "^tidelog ready" said 2>/dev/null; do kill -0 $!; sleep 0.05; done; }
trap 'jobs -p | xargs -r kill; wait' EXIT
"""
IN_BACKGROUND = re.compile(r"^(tidelog serve .*&) *(#.*)?$", re.MULTILINE)


def free_ports() -> int:
    """The first of some free ports in a row."""
    for _ in range(100):
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
        if port + PORTS < 65536 and all(is_free(port + n) for n in range(PORTS)):
            return port
    raise AssertionError("no free ports in a row")


def is_free(port: int) -> bool:
    with socket.socket() as each:
        try:
            each.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.mark.parametrize("snippet", of("sh"))
def test_shell(snippet: Snippet, folder: Path) -> None:
    tidelog = Path(sys.executable).with_name("tidelog")
    programs = folder / "programs"
    programs.mkdir()
    shim = programs / "tidelog"
    shim.write_text(SHIM.format(tidelog=tidelog, port=free_ports(), folder=folder))
    shim.chmod(0o755)
    script = BEGINNING + IN_BACKGROUND.sub(r"\1\nready", snippet.text)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=environment,
    )
    assert ended.returncode == 0, textwrap.indent(ended.stdout + ended.stderr, "  ")
