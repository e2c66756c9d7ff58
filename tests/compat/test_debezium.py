"""Debezium's connector for PostgreSQL in a worker of Kafka Connect, without a schema registry."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat.eventually import eventually
from compat.moving import records_of
from compat.test_connect import Worker, exactly_once
from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.address import free_port, wait_until_listening
from tidelog_bench.peers.process import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat.brokers import Broker

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(600)]

POM = Path(__file__).parent / "debezium" / "pom.xml"
JSON = "org.apache.kafka.connect.json.JsonConverter"
USER = "shop"
ROUND = 300
Change = tuple[str, int, str | None]
"""What Debezium calls it (r, c, u or d), the row's id, and its item after that."""


class Postgres:
    """A server with logical decoding, and its programs."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.port = free_port()
        self._programs, self._folder = bin_folder, folder
        # It refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        data = str(folder / "data")
        options = ["-U", USER, "--auth=trust", "-E", "UTF8", "--no-sync"]
        self._run("initdb", "-D", data, *options)
        settings = ["fsync=off", "unix_socket_directories=", "wal_level=logical"]
        flags = [word for each in settings for word in ("-c", each)]
        command = [str(bin_folder / "postgres"), "-D", data, "-h", "127.0.0.1", *flags]
        if self._user:
            command = [
                "setpriv",
                "--pdeathsig=KILL",
                f"--reuid={self._user}",
                "--clear-groups",
                *command,
            ]
        self._child = Child([*command, "-p", str(self.port)], folder / "log")
        wait_until_listening(self.port, self._child.check)

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, user=self._user, cwd=self._folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, statement: str) -> list[list[str]]:
        """Run a statement; the rows."""
        at = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"]
        told = self._run("psql", *at, "-X", "-q", "-A", "-t", "-F,", "-c", statement)
        return [line.split(",") for line in told.splitlines()]

    def end(self) -> None:
        self._child.end(signal.SIGINT)


def bin_folder() -> Path:
    """Of the newest PostgreSQL, or skip the test."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    programs = [*found, *([Path(on_path)] if on_path else [])]
    if not programs:
        pytest.skip("PostgreSQL is needed: no initdb")
    return programs[-1].resolve().parent


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    programs = bin_folder()
    with tempfile.TemporaryDirectory(prefix="tidelog-postgres-") as folder:
        made = Postgres(Path(folder), programs)
        yield made
        made.end()


@pytest.fixture
def worker(broker: Broker, fresh: Callable[[str], str], tmp_path: Path) -> Iterator[Worker]:
    try:
        jars = kafka_jars.classpath(POM)
    except kafka_jars.JarsUnavailableError as missing:
        pytest.skip(str(missing))
    made = Worker(tmp_path, exactly_once(broker, fresh), jars)
    yield made
    made.end()


class Orders:
    """A table, and what was done to it."""

    def __init__(self, postgres: Postgres) -> None:
        self.changes: list[Change] = []
        self._postgres = postgres
        self._next = 0
        postgres.ask("CREATE TABLE orders (id int PRIMARY KEY, item text)")

    def insert(self, kind: str = "c") -> None:
        """Many rows, in one transaction; `kind` is r before the connector looks."""
        first, self._next = self._next, self._next + ROUND
        rows = f"SELECT n, 'item ' || n FROM generate_series({first}, {self._next - 1}) n"
        self._postgres.ask(f"INSERT INTO orders {rows}")
        self.changes += [(kind, n, f"item {n}") for n in range(first, self._next)]

    def change(self, number: int) -> None:
        """Alter one row, and delete the next."""
        self._postgres.ask(f"UPDATE orders SET item = 'changed' WHERE id = {number}")
        self._postgres.ask(f"DELETE FROM orders WHERE id = {number + 1}")
        self.changes += [("u", number, "changed"), ("d", number + 1, None)]


def config_of(postgres: Postgres, prefix: str) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.dbname": "postgres",
        "database.hostname": "127.0.0.1",
        "database.password": "not asked for",
        "database.port": str(postgres.port),
        "database.user": USER,
        "exactly.once.support": "required",
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "plugin.name": "pgoutput",
        "table.include.list": "public.orders",
        "tombstones.on.delete": "false",
        "topic.prefix": prefix,
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }


def test_each_change_of_a_table_comes_once_though_the_worker_is_killed(
    worker: Worker, postgres: Postgres, broker: Broker, fresh: Callable[[str], str]
) -> None:
    prefix = fresh("shop")

    def changes() -> list[Change]:
        at = {"bootstrap.servers": broker.bootstrap}
        found = []
        for _, _, value in records_of(at, f"{prefix}.public.orders", 0, "read_committed"):
            change = json.loads(value)
            row = change["after"] or change["before"]
            item = change["after"] and row["item"]
            found.append((change["op"], row["id"], item))
        return found

    orders = Orders(postgres)
    orders.insert("r")
    worker.start()
    config = config_of(postgres, prefix)
    eventually(lambda: worker.ask("connectors/orders/config", config), bool, 120)
    for number in (10, 20):
        eventually(lambda: len(changes()), len(orders.changes).__eq__, 120)
        orders.insert()
        orders.change(number)
        worker.end()
        orders.insert()
        worker.start()
    eventually(lambda: len(changes()), len(orders.changes).__eq__, 120)
    assert changes() == orders.changes
    counted = postgres.ask("SELECT count(*) FROM orders")
    assert counted == [[str(sum(1 if kind in "rc" else -(kind == "d") for kind, *_ in changes()))]]
