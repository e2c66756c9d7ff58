"""Every code block of the README and of `docs/` runs.

- `sh`: by bash, with this checkout's `tidelog` on a free port. A command that ends with `&` is
  waited for as a reader waits for it: until it says that it is ready. `pip` and `make` lines are
  left out; `test_readme.py` checks that the targets are there.
- `python`: as a script, whose `main()` is run if it is a coroutine function. With tests in it, by
  pytest. A first line `# name.py` names its file, for the blocks below it in the same section.

A block that is on several pages runs once. Spark's are in `tests/pipeline/test_spark_snippets.py`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.snippets import ALL, Snippet, of, run_script

SECONDS_MAX = 120  # for the machine
PORTS = 3  # of consecutive brokers

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_languages_are_run() -> None:
    assert {snippet.language for snippet in ALL} == {"sh", "python"}


# -- Python ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients' own imports
@pytest.mark.parametrize("snippet", of("python"))
def test_python(snippet: Snippet, folder: Path) -> None:
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
