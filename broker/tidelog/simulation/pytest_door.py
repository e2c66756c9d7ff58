"""`@pytest.mark.tidelog_simulation`: an `async def` test as the application of a simulation.

The test runs again in a pytest of its own with PYTHONHASHSEED=0, unless this process has that
already; there `search` runs it at each seed.
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.simulation.search import (
    HASH_SEED,
    SimulationFailedError,
    options_of,
    search,
)
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.simulation.application import Simulation
    from tidelog.simulation.search import Options

MARKER = "tidelog_simulation"
FIXTURE = "tidelog_simulation"
REPORT_VARIABLE = "TIDELOG_SIMULATION_REPORT"
OUTPUT_LINES_MAX = 60


def call(item: pytest.Function, marker: pytest.Mark) -> None:
    """Run a marked test; fail it with the report of the first seed that fails."""
    options = _options(item, marker)
    if FIXTURE not in item.fixturenames:
        pytest.fail(f"{item.name}: a simulated test takes the argument {FIXTURE}", pytrace=False)
    if not inspect.iscoroutinefunction(inspect.unwrap(_function(item))):
        pytest.fail(f"{item.name}: a simulated test is an async def", pytrace=False)
    if sys.flags.hash_randomization:
        _run_again(item)
        return
    try:
        print(search(_app(item), options, functools.partial(_replay, item)))
    except SimulationFailedError as error:
        report = os.environ.get(REPORT_VARIABLE)
        if report:
            Path(report).write_text(str(error), encoding="utf-8")
        pytest.fail(str(error), pytrace=False)


def _options(item: pytest.Function, marker: pytest.Mark) -> Options:
    given: dict[str, Any] = dict(marker.kwargs)
    seeds, seed, faults = (
        item.config.getoption(name) for name in ("tidelog_seeds", "tidelog_seed", "tidelog_faults")
    )
    if seeds is not None:
        given["seeds"] = seeds
    if seed is not None:
        given["seeds"] = [seed]
    if faults is not None:
        given["only_faults"] = [int(place) for place in faults.split(",") if place != "none"]
    try:
        if marker.args:
            raise TypeError("its arguments have names: seeds=50, brokers=3")
        return options_of(**given)
    except (TypeError, ValueError, TidelogError) as error:
        text = str(error).removeprefix("options_of() ")
    pytest.fail(f"{item.name}: @pytest.mark.{MARKER}: {text}", pytrace=False)


def _function(item: pytest.Function) -> Callable[..., Coroutine[Any, Any, object]]:
    """Return the test's own function; pytest-asyncio puts a blocking one in its place."""
    owner = item.instance if item.instance is not None else item.module
    function: Callable[..., Coroutine[Any, Any, object]] = getattr(owner, item.originalname)
    return function


def _app(item: pytest.Function) -> Callable[[Simulation], Coroutine[Any, Any, object]]:
    test = _function(item)
    names = item._fixtureinfo.argnames
    arguments = {name: item.funcargs[name] for name in names if name != FIXTURE}
    return lambda simulation: test(**arguments, **{FIXTURE: simulation})


def _replay(item: pytest.Function, seed: int, faults: tuple[int, ...]) -> str:
    places = ",".join(map(str, faults)) or "none"
    return f"pytest {shlex.quote(item.nodeid)} --tidelog-seed={seed} --tidelog-faults={places}"


def _run_again(item: pytest.Function) -> None:
    """Run this test alone in a new pytest with the hash seed that replays have."""
    with tempfile.TemporaryDirectory(prefix="tidelog-simulation-") as folder:
        report = Path(folder) / "report"
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_XDIST_", "PYTEST_CURRENT_TEST", "COV_CORE_"))
        }
        environment |= {"PYTHONHASHSEED": HASH_SEED, REPORT_VARIABLE: str(report)}
        done = subprocess.run(  # noqa: S603 - this Python, this test
            _command(item),
            cwd=item.config.invocation_params.dir,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = report.read_text(encoding="utf-8") if report.exists() else ""
    if done.returncode == pytest.ExitCode.OK:
        print(done.stdout)
        return
    if not text:
        tail = "\n".join(done.stdout.splitlines()[-OUTPUT_LINES_MAX:])
        text = f"the run with PYTHONHASHSEED={HASH_SEED} ended with {done.returncode}:\n{tail}"
    pytest.fail(text, pytrace=False)


def _command(item: pytest.Function) -> list[str]:
    config = item.config
    _, *names = item.nodeid.split("::")
    command = [sys.executable, "-m", "pytest", "::".join((str(item.path), *names))]
    command += ["--rootdir", str(config.rootpath), "-rP", "-m", "", "-p", "no:cacheprovider"]
    if config.inipath is not None:
        command += ["-c", str(config.inipath)]
    command += ["--import-mode", str(config.getoption("importmode"))]
    for plugin in config.getoption("plugins") or ():
        command += ["-p", plugin]
    if config.pluginmanager.hasplugin("xdist"):
        command.append("-n0")
    for name in ("seeds", "seed", "faults"):
        value = config.getoption(f"tidelog_{name}")
        if value is not None:
            command.append(f"--tidelog-{name}={value}")
    return command
