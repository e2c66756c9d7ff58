"""Commands on a cluster of executors, one of which is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.history import broker, consumed, create_tiered, produce, wait_until_remote
from support.spark import MARKS
from tidelog_pipeline.operations import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*MARKS, pytest.mark.nightly]

CLUSTER = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=600m"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(str(tmp_path_factory.mktemp("remote"))) as servers:
        yield servers


def executors(command: subprocess.Popen[bytes]) -> list[int]:
    """The executors' processes, below the command's own."""
    parents, words = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(
                    (folder / "stat").read_text().rpartition(")")[2].split()[1]
                )
                words[int(folder.name)] = (folder / "cmdline").read_bytes()
            except OSError:
                continue
    found = []
    for process, line in words.items():
        above = process
        while above in parents and above != command.pid:
            above = parents[above]
        if above == command.pid and b"CoarseGrainedExecutorBackend" in line:
            found.append(process)
    return found


def run_and_kill(arguments: list[str], is_on_the_way) -> None:
    command = [sys.executable, "-m", "tidelog", "spark", *arguments, *CLUSTER]
    with subprocess.Popen(command) as child:
        while child.poll() is None and not (executors(child) and is_on_the_way()):
            time.sleep(0.1)
        assert child.poll() is None, "it ended before an executor was killed"
        os.kill(executors(child)[0], signal.SIGKILL)
        assert child.wait(300) == 0


def rows(frame) -> list[tuple]:
    return sorted(map(tuple, frame.select("partition", "offset", "value").collect()))


def test_an_export_goes_on_without_an_executor(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    topic = create_tiered(servers, 2)
    produce(servers, topic, range(3000))
    wait_until_remote(servers, topic)
    place = tmp_path / "out"
    records = place / "_tidelog"
    run_and_kill(
        ["export", "-b", servers, topic, str(place), "--chunk", "50KB"],
        lambda: len(list(records.glob("chunk-*"))) > 1,
    )
    expected = spark.read.format("tidelog").options(**Source(servers, topic).given()).load()
    assert rows(spark.read.parquet(str(place))) == rows(expected)


def test_a_replay_goes_on_without_an_executor(servers: str) -> None:
    source = create_tiered(servers, 2)
    target = create_tiered(
        servers, 2, remote_storage_enable="false", internal_segment_bytes="4000000"
    )
    produce(servers, source, range(3000))

    run_and_kill(
        ["replay", "-b", servers, source, target, "--rate", "150"],
        lambda: bool(consumed(servers, target, 2)),
    )
    assert consumed(servers, target, 2) == consumed(servers, source, 2)
