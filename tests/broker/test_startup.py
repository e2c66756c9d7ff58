"""Start-up is a feature: what may not be imported, and by whom."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = {
    "aiokafka",
    "argparse",
    "boto3",
    "bz2",
    "concurrent.futures.thread",
    "cramjam",
    "dataclasses",
    "datetime",
    "email",
    "hashlib",
    "hmac",
    "http",
    "importlib.metadata",
    "importlib.resources",
    "ipaddress",
    "json",
    "kio",
    "logging.config",
    "lzma",
    "multiprocessing",
    "pandas",
    "pathlib",
    "pydoc",
    "pyspark",
    "pytest",
    "random",
    "secrets",
    "shlex",
    "shutil",
    "tempfile",
    "unittest",
    "urllib.parse",
    "uuid",
    "zipfile",
}


def imported_by(statement: str) -> dict[str, int]:
    """Modules that a fresh interpreter imports for a statement, with their own microseconds."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    result = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            "-c",
            f"import sys; base = set(sys.modules)\n{statement}",
        ],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    modules = {}
    for line in result.stderr.splitlines():
        times, bar, name = line.rpartition("|")
        own = times.removeprefix("import time:").split("|")[0].strip()
        if bar and own.isdigit():
            modules[name.strip()] = int(own)
    return modules


BARE = frozenset(imported_by("pass"))


def check(statement: str, allowed: set[str]) -> None:
    modules = imported_by(statement)
    offenders = sorted((HEAVY & modules.keys()) - BARE - allowed)
    slowest = sorted(modules.items(), key=lambda item: -item[1])[:15]
    table = "\n".join(f"{own:>8} us  {name}" for name, own in slowest)
    assert not offenders, f"{statement}: {', '.join(offenders)}; the slowest:\n{table}"


def test_the_door_imports_nothing() -> None:
    modules = imported_by("import tidelog")
    assert {name for name in modules if name.startswith("tidelog")} == {"tidelog"}
    assert modules.keys() - BARE <= {"tidelog", "__future__"}


@pytest.mark.parametrize(
    "name",
    [
        "tidelog.__main__",
        "tidelog.embedded.cluster",
        "tidelog.embedded.running",
        "tidelog.config.broker",
    ],
)
def test_doors_do_without_asyncio(name: str) -> None:
    modules = imported_by(f"import {name}")
    assert "asyncio" not in modules
    check(f"import {name}", set())


def test_the_two_entry_points_do_not_import_each_other() -> None:
    names = {"cluster": "running", "running": "cluster"}
    for name, other in names.items():
        modules = imported_by(f"import tidelog.embedded.{name}")
        assert f"tidelog.embedded.{name}" in modules
        assert f"tidelog.embedded.{other}" not in modules


def test_serve_imports_nothing_heavy() -> None:
    check(
        "import tidelog.cli.serve, tidelog.cli.serve_cluster, tidelog.server\n"
        "from tidelog.runtime import system_runtime; system_runtime()",
        {"argparse"},
    )


def test_message_tables_of_rare_apis_wait() -> None:
    """Each family of tables costs a millisecond or more."""
    modules = imported_by("import tidelog_protocol.apis, tidelog_protocol.frames")
    tables = {name for name in modules if name.startswith("tidelog_protocol.messages.")}
    assert tables == set()


ROOMS_OF_USE = (
    "tidelog.api.configs",
    "tidelog.api.log_dirs",
    "tidelog.api.offsets",
    "tidelog.authorization",
    "tidelog.control.wire",
    "tidelog.coordinators.groups.classic",
    "tidelog.coordinators.groups.consumer",
    "tidelog.coordinators.groups.share",
    "tidelog.coordinators.groups.streams",
    "tidelog.handshakes",
    "tidelog.quotas.limits",
    "tidelog.security.acls",
    "tidelog.security.scram",
    "tidelog.security.tls",
    "tidelog.shares",
    "tidelog_protocol.messages.admin",
    "tidelog_protocol.messages.configs",
)


@pytest.mark.parametrize("brokers", [1, 3])
def test_plain_brokers_start_without_what_is_not_used(brokers: int) -> None:
    """Started, asked and stopped, they have imported nothing of it."""
    statement = f"""
import asyncio, sys, tidelog

async def life():
    async with tidelog.Cluster(temporary=True, brokers={brokers}):
        pass

asyncio.run(life())
"""
    modules = imported_by(statement)
    assert [name for name in modules if name.startswith(ROOMS_OF_USE)] == []
    assert not (modules.keys() & {"bz2", "dataclasses", "hashlib", "hmac", "uuid"})
    tiered = [name for name in modules if "remote" in name and name.startswith("tidelog")]
    assert tiered == []
    assert "aiofiles" not in modules
