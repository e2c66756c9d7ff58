"""Fixtures of the compatibility tests: the broker under test and the clients that talk to it.

`TIDELOG_COMPAT_BROKER` chooses the broker: `tidelog` (default), `kafka` (the reference) or `both`:
the very same tests must pass against either.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat.brokers import Broker, Tidelog
from compat.go_client import build_go_program
from compat.jvm import Jvm, require_jars
from compat.line_process import LineProcess
from compat.reference import ApacheKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from _pytest.mark import ParameterSet

TESTS = Path(__file__).parents[1]
CLIENTS = ("aiokafka", "librdkafka", "kafka-python", "java", "go")
OF_A_CLUSTER_IN_CI = ("librdkafka", "java")  # the others against three brokers: `make nightly`
PYTHON_CLIENTS = {
    "aiokafka": "compat.clients.aiokafka_client",
    "librdkafka": "compat.clients.librdkafka",
    "kafka-python": "compat.clients.kafka_python",
}


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs all tests of the shared JVM: its start and its first calls are dear."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        is_java = "java" in item.fixturenames or (
            hasattr(item, "callspec") and item.callspec.params.get("client") == "java"
        )
        if is_java and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("java"))


def of_a_cluster(*names: str) -> list[ParameterSet]:
    """Clients as parameters of a test with three brokers."""
    return [
        pytest.param(name, marks=[] if name in OF_A_CLUSTER_IN_CI else pytest.mark.nightly)
        for name in names
    ]


def broker_kinds() -> list[str]:
    """The brokers this run tests."""
    chosen = os.environ.get("TIDELOG_COMPAT_BROKER", "tidelog")
    return ["tidelog", "kafka"] if chosen == "both" else [chosen]


class Client:
    """A client program bound to one broker; every op of clients/protocol.py by name."""

    def __init__(self, name: str, process: LineProcess, bootstrap: str) -> None:
        self.name = name
        self.process = process
        self.bootstrap = bootstrap

    def call(self, op: str, **fields: object) -> dict:
        return self.process.call(op, bootstrap=self.bootstrap, **fields)


class ClientPool:
    """Starts client programs on demand: one of each kind for all tests, others for one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, LineProcess] = {}
        self._started: list[LineProcess] = []
        self._numbers = itertools.count()

    def start(self, name: str) -> LineProcess:
        """A program for the test that runs now; it ends with the test."""
        process = self._new(name)
        self._started.append(process)
        return process

    def get(self, name: str) -> LineProcess:
        """The program that all tests share."""
        process = self._kept.get(name)
        if process is None or not process.running():
            process = self._kept[name] = self._new(name)
        return process

    def _new(self, name: str) -> LineProcess:
        log = self._folder / f"{name}-{next(self._numbers)}.log"
        if name == "java":
            require_jars()
            return Jvm(log)
        if name == "go":
            return LineProcess([str(build_go_program("client"))], log)
        command = [sys.executable, "-W", "ignore", "-m", PYTHON_CLIENTS[name]]
        return LineProcess(command, log, {"PYTHONPATH": str(TESTS)})

    def end_test(self, *, failed: bool) -> None:
        """End the programs of this test, and after a failure the shared ones too.

        A failed test leaves members and producers open. They would go on in the tests that follow,
        and a member of the Java client spins while it finds no coordinator.
        """
        ended, self._started = self._started, []
        if failed:
            ended += self._kept.values()
            self._kept = {}
        for process in ended:
            process.kill()


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test failed, for the fixtures that end after it."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(scope="session")
def all_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPool]:
    pool = ClientPool(tmp_path_factory.mktemp("clients"))
    yield pool
    pool.end_test(failed=True)


@pytest.fixture
def client_pool(request: pytest.FixtureRequest, all_programs: ClientPool) -> Iterator[ClientPool]:
    yield all_programs
    all_programs.end_test(failed=request.node.stash.get(_FAILED, False))


class BrokerPool:
    """One running broker of each kind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, Broker] = {}

    def get(self, kind: str) -> Broker:
        if kind not in self._running:
            if kind == "kafka":
                require_jars()
            made = {"tidelog": Tidelog, "kafka": ApacheKafka}[kind](self._folder / kind)
            made.start()
            self._running[kind] = made
        return self._running[kind]

    def close(self) -> None:
        for broker in self._running.values():
            broker.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="session")
def broker_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPool]:
    pool = BrokerPool(tmp_path_factory.mktemp("brokers"))
    yield pool
    pool.close()


@pytest.fixture(params=broker_kinds())
def broker(request: pytest.FixtureRequest, broker_pool: BrokerPool) -> Broker:
    """The broker under test, started once per run."""
    return broker_pool.get(request.param)


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, client_pool: ClientPool, broker: Broker) -> Client:
    """Each client in turn."""
    return Client(request.param, client_pool.get(request.param), broker.bootstrap)


@pytest.fixture
def doomed_client(client: Client, client_pool: ClientPool) -> Client:
    """A second program of the same client, to be killed by the test."""
    return Client(client.name, client_pool.start(client.name), client.bootstrap)


@pytest.fixture
def java(client_pool: ClientPool) -> Jvm:
    """A JVM for Kafka's console tools."""
    process = client_pool.get("java")
    assert isinstance(process, Jvm)
    return process


_numbers = itertools.count()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names nobody used before, for topics and groups."""
    return lambda kind: f"{kind}-{os.getpid()}-{next(_numbers)}"
