"""The examples of each client and language, run as their READMEs say, in folders of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compat.jvm import FAST_START, QUIET
from support.examples import EXAMPLES, UNAVAILABLE, java_jars, needs_of
from tidelog_bench.peers.kafka_jars import java

CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python")
BUILT_ON_THEM = ("faststream", "faust", "quix-streams", "schema-registry")  # `make nightly`
PYTHON = (*CLIENTS, *BUILT_ON_THEM)
OTHERS = ("go-franz", "java-junit5", "node-kafkajs")
RUN_ELSEWHERE = {"order-service", "order-service-simulation", "typed"}
SECONDS_MAX = 240  # for a hang

pytestmark = [pytest.mark.compat, pytest.mark.timeout(SECONDS_MAX + 60)]


def needs(name: str) -> Path | None:
    """What an example needs, or skip its test with the reason."""
    try:
        return needs_of(name)
    except UNAVAILABLE as missing:
        pytest.skip(f"examples/{name}: {missing}")


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run the tests of an example with this checkout's `tidelog` on PATH; return what they say."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def count_tests(name: str, pattern: str) -> int:
    """How many tests an example's files have."""
    files = [path for path in (EXAMPLES / name).rglob("*") if path.is_file()]
    found = [re.findall(pattern, path.read_text(), re.MULTILINE) for path in files]
    return sum(map(len, found))


@pytest.mark.parametrize(
    "name",
    [*CLIENTS, *(pytest.param(name, marks=pytest.mark.nightly) for name in BUILT_ON_THEM)],
)
def test_python(name: str, tmp_path: Path) -> None:
    packages = needs(name)
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    plugins = ["-p", "no:cacheprovider", "-p", "tidelog.pytest_plugin", "-p", "anyio"]
    said = run(
        [sys.executable, "-m", "pytest", "-q", *plugins],
        folder,
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",  # the others take a second
        PYTHONPATH=str(packages or ""),
    )
    assert f"\n{count_tests(name, r'^(?:async )?def test_')} passed" in said


def test_node(tmp_path: Path) -> None:
    name = "node-kafkajs"
    modules = needs(name)
    assert modules is not None
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("node_modules"))
    (folder / "node_modules").symlink_to(modules)
    said = run(["node", "--test", "--test-reporter=tap"], folder)
    assert f"\n# pass {count_tests(name, r'^test[(]')}\n" in said


def test_go() -> None:
    name = "go-franz"
    program = needs(name)
    said = run([str(program), "-test.v"], EXAMPLES / name)
    assert said.count("--- PASS") == count_tests(name, r"^func Test\w+\(t ")


@pytest.mark.slow
def test_java() -> None:
    name = "java-junit5"
    classes = needs(name)
    jars = java_jars(EXAMPLES / name)
    launch = [java(), *FAST_START, *QUIET, "-cp", f"{classes}:{jars}"]
    console = ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]
    said = run([*launch, *console, f"--scan-classpath={classes}"], EXAMPLES / name)
    assert re.search(rf" {count_tests(name, '^ +@Test$')} tests successful", said)


def test_all_examples_are_run_and_described() -> None:
    """Each has a short README, and a line on the page."""
    names = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert names - RUN_ELSEWHERE == {*PYTHON, *OTHERS}
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    for name in (*PYTHON, *OTHERS):
        assert (EXAMPLES / name / "README.md").read_text().count("\n") <= 15
        assert f"\n| `examples/{name}` | " in page
