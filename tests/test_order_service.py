"""The demo suite runs as its README says, by two workers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from test_compared import ROOT, example_tests

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "order-service"
SOURCES = ("*.py", "pytest.ini")


@pytest.mark.slow
@pytest.mark.compat
def test_all_tests_pass_with_two_workers(tmp_path: Path) -> None:
    """In a folder of its own, as a reader has it."""
    for pattern in SOURCES:
        for file in EXAMPLE.glob(pattern):
            shutil.copy(file, tmp_path)
    assert "pytest -n 2 " in (EXAMPLE / "README.md").read_text()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = re.search(r"= (\d+) passed", ended.stdout)
    assert found
    assert int(found[1]) == len(example_tests()) >= 30
