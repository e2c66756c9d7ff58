"""Every code block of the README and of `docs/` runs.

- `sh`: by bash, with this checkout's `tidelog` on a free port. A command that ends with `&` is
  waited for as a reader waits for it: until it says that it is ready. `pip` and `make` lines are
  left out; `test_readme.py` checks that the targets are there.
- `properties`: read as the settings of a broker.
- `python`: as a script in its own process, and `main()` is run if it is a coroutine function.
  With tests in it, by pytest. A first line `# name.py` names its file, for the blocks below it in
  the same section.

A block that is on several pages runs once. Spark's are in `tests/pipeline/test_spark_snippets.py`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from support.snippets import ALL, ROOT, Snippet, of
from tidelog.config.broker import BrokerConfig
from tidelog.config.properties import parse_properties

SECONDS_MAX = 120  # for the machine

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_languages_are_run() -> None:
    assert {snippet.language for snippet in ALL} == {"sh", "properties", "python"}


@pytest.mark.parametrize("snippet", of("properties"))
def test_properties(snippet: Snippet) -> None:
    given = {"node.id": "1", **parse_properties(snippet.text.encode())}
    assert BrokerConfig.from_properties(given).given == given


# -- Python ----------------------------------------------------------------------------------------

RUN_MAIN = """
import asyncio, inspect
if inspect.iscoroutinefunction(globals().get("main")):
    asyncio.run(main())
"""


@pytest.mark.parametrize("snippet", of("python"))
def test_python(snippet: Snippet, folder: Path) -> None:
    """In a process of its own: sockets that a client leaves open go with it."""
    for name, text in (*snippet.files, ("snippet.py", snippet.text + RUN_MAIN)):
        (folder / name).write_text(text)
    ended = subprocess.run(
        [sys.executable, "snippet.py"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


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
#!/bin/bash
command=$1; shift
at=$(sed -n 's/^tidelog ready bootstrap.servers=\\([^, ]*\\).*/\\1/p' {folder}/said)
case $command in
serve) exec {tidelog} serve --port 0 "${{@/127.0.0.1:9990/127.0.0.1:0}}" > {folder}/said ;;
verify) exec {tidelog} verify $(echo "$1" | sed "s/^localhost:9092$/$at/") ;;
topics|groups|produce|consume|configs|tiers|records|leaders|partitions|transactions)
    exec {tidelog} $command "$@" --bootstrap-server "$at" ;;
*) exec {tidelog} $command "$@" ;;
esac
"""
BEGINNING = """\
set -eu
cp() { mkdir copy && tar xJf "$KILLED" -C copy --strip-components 1; }  # for a directory of Kafka
pip() { :; }
make() { :; }
curl() {
    door=$(sed -n 's/.* control=//p' said)
    command curl --silent --show-error --fail-with-body "${@/#http:??127.0.0.1:9990/$door}"
}
ready() { until grep -q "^tidelog ready" said; do kill -0 $!; sleep 0.05; done; }
trap 'jobs -p | xargs -r kill; wait' EXIT
"""
IN_BACKGROUND = re.compile(r"^(tidelog serve .*&) *(#.*)?$", re.MULTILINE)


@pytest.mark.parametrize("snippet", of("sh"))
def test_shell(snippet: Snippet, folder: Path) -> None:
    tidelog = Path(sys.executable).with_name("tidelog")
    programs = folder / "programs"
    programs.mkdir()
    (folder / "said").touch()
    shim = programs / "tidelog"
    shim.write_text(SHIM.format(tidelog=tidelog, folder=folder))
    shim.chmod(0o755)
    script = BEGINNING + IN_BACKGROUND.sub(r"\1\nready", snippet.text)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KILLED": str(ROOT / "tests/compat/directories/killed.tar.xz"),
    }
    shell = subprocess.Popen(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    with shell:
        try:
            said, _ = shell.communicate(timeout=SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):  # brokers of a script that did not end
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, textwrap.indent(said, "  ")
