"""`tidelog spark export --format`: tables of Delta and Iceberg, with their real jars."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.history import broker, consumed, create_tiered, produce, wait_until_remote
from support.spark import MARKS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [*MARKS, pytest.mark.nightly]

COMMAND = [sys.executable, "-m", "tidelog", "spark"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(str(tmp_path_factory.mktemp("remote"))) as servers:
        yield servers


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments, "--master", "local[2]"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    ("table_format", "layout"), [("delta", []), ("iceberg", ["--by-date"]), ("iceberg", [])]
)
def test_a_table_is_killed_and_goes_on_and_comes_back_as_a_topic(
    servers: str, tmp_path: Path, table_format: str, layout: list[str]
) -> None:
    topic = create_tiered(servers, 2)
    produce(servers, topic, range(600))
    wait_until_remote(servers, topic)
    place = tmp_path / "a table"
    given = ["export", "-b", servers, topic, str(place), "--format", table_format, *layout]
    given += ["--chunk", "90KB"]
    records = place / "_tidelog"
    with subprocess.Popen([*COMMAND, *given, "--master", "local[2]"]) as child:
        while child.poll() is None and len(list(records.glob("chunk-*.json"))) < 1:
            time.sleep(0.01)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
    done = run(*given)
    assert (done.returncode, done.stdout) == (
        0,
        done.stdout.partition(" ")[0] + f" records written; file:{place} has 600\n",
    ), done.stderr
    produce(servers, topic, range(600, 700))
    done = run(*given)
    assert done.stdout == f"100 records written; file:{place} has 700\n", done.stderr
    done = run(*given[:-2], "--format", "parquet")
    assert done.returncode == 1
    assert f"is an export with format {table_format}, not parquet" in done.stderr
    again = create_tiered(
        servers, 2, remote_storage_enable="false", internal_segment_bytes="4000000"
    )
    done = run("replay", "-b", servers, str(place), again, "--format", table_format)
    assert done.stdout == f"700 records written to {again}\n", done.stderr
    assert consumed(servers, again, 2) == consumed(servers, topic, 2)


def test_jars_that_can_not_be_had_are_one_line(servers: str, tmp_path: Path) -> None:
    topic = create_tiered(servers)
    produce(servers, topic, range(20))
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        "<ivysettings><settings defaultResolver='none'/><resolvers><filesystem name='none'>"
        f"<artifact pattern='{tmp_path}/none/[artifact].jar'/></filesystem></resolvers>"
        "</ivysettings>"
    )
    given = ["export", "-b", servers, topic, str(tmp_path / "out"), "--format", "delta"]
    given += ["--conf", f"spark.jars.ivySettings={settings}"]
    done = run(*given, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("tidelog spark export: Delta could not be downloaded: io.delta:")
    assert not (tmp_path / "out").exists()
