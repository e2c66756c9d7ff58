"""The wheel, made from the sdist and installed into an empty environment, is a broker."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).with_name("uv")
SECONDS_MAX = 240  # for the machine
READY = "tidelog ready bootstrap.servers="

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("distribution")]


IN_PYTHON = """
import tidelog
with tidelog.run() as cluster:
    cluster.create_topic("greetings")
"""
WITH_PYTEST = """
def test_it(tidelog_cluster, tidelog_bootstrap, tidelog_topic):
    assert tidelog_cluster.bootstrap_servers == tidelog_bootstrap
"""


def end(
    *words: object, text: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        cwd=cwd,
    )


def run(*words: object, text: str = "", cwd: Path | None = None) -> str:
    ended = end(*words, text=text, cwd=cwd)
    assert ended.returncode == 0, f"{ended.args}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--out-dir", folder, ROOT)  # the sdist, and the wheel from it
    (found,) = folder.glob("*.whl")
    return found


def test_an_empty_environment_has_a_broker(wheel: Path, tmp_path: Path) -> None:
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(UV, "pip", "install", "--quiet", "--python", python, wheel, "pytest<9.2")
    run(python, "-c", IN_PYTHON, cwd=tmp_path)
    (tmp_path / "test_plugin.py").write_text(WITH_PYTEST)
    assert "1 passed" in run(python, "-m", "pytest", "-q", cwd=tmp_path)
    tidelog = tmp_path / "venv/bin/tidelog"
    command = [tidelog, "serve", "--port", "0", "--until-stdin-ends"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            said = server.stdout.readline()
            assert said.startswith(READY)
            address = said.removeprefix(READY).strip()
            write = (tidelog, "produce", "-b", address, "greetings")
            refused = end(*write, text="hello\n", cwd=tmp_path)
            assert refused.returncode == 1
            assert refused.stderr == (
                "tidelog produce: aiokafka is not installed; run: pip install 'tidelog[cli]'\n"
            )
            run(UV, "pip", "install", "--quiet", "--python", python, f"{wheel}[cli]")
            run(*write, text="hello\n", cwd=tmp_path)
            arguments = ("-b", address, "greetings", "--from-beginning", "-n", "1")
            assert run(tidelog, "consume", *arguments, cwd=tmp_path) == "hello\n"
        finally:
            server.stdin.close()
    assert server.returncode == 0


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        return message_from_bytes(archive.read(name))


def test_the_metadata_is_complete(metadata: Message) -> None:
    for field in (
        "Name",
        "Version",
        "Summary",
        "License-Expression",
        "Requires-Python",
        "Keywords",
    ):
        assert metadata[field], field
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# tidelog" in str(metadata.get_payload())
    oldest = metadata["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in metadata.get_all("Classifier", [])
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(needed) <= 3  # what every user's environment gets


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.partition("/")[0] for name in names}
    page = Path("tidelog/control/page")
    assert {str(page / file.name) for file in (ROOT / "broker" / page).iterdir()} <= names
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    rooms = {Path(package).name for package in build["targets"]["wheel"]["packages"]}
    assert {top for top in tops if not top.endswith(".dist-info")} == rooms
