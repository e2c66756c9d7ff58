"""The failover bench's parts: the slow disk, and the figures of answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tidelog_bench.bench_failover import Asking, SlowDisk, figures_of

if TYPE_CHECKING:
    from pathlib import Path

FSYNCS = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for _ in range(10):
    os.fsync(file)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="the slow disk is a library made by cc")
def test_each_fsync_on_the_slow_disk_takes_the_given_time(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path)
    disk.take_ms(30)
    with disk.for_children():
        began = time.monotonic()
        subprocess.run([sys.executable, "-S", "-c", FSYNCS, tmp_path / "file"], check=True)
    assert time.monotonic() - began >= 0.3


def test_figures_are_those_of_answers_after_the_kill() -> None:
    def asking(*answers: tuple[float, float]) -> Any:
        made = Asking.__new__(Asking)
        made.error, made.answers = None, list(answers)
        return made

    pings = {2: asking((0.0, 900.0), (1.5, 1000.0), (3.0, 2.0)), 3: asking((2.5, 7.0))}
    producers = [asking((0.0, 5000.0), *((3.0, float(ms)) for ms in range(1, 100)))]
    assert figures_of(pings, producers, began=2.0) == {
        "away ms": {2: 1000, 3: 7},
        "produced": 100,
        "produce p50 ms": 51.0,
        "produce p99 ms": 5000.0,
        "produce worst ms": 5000.0,
    }
