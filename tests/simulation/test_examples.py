"""The example and the page's tables."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.simulation import KINDS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.nightly  # the suite of a reader, for a quarter of a minute
@pytest.mark.slow
def test_the_order_service_holds_and_its_bug_is_found(tmp_path: Path) -> None:
    """In a folder of its own, as a reader has it."""
    folder = tmp_path / "example"
    shutil.copytree(ROOT / "examples" / "order-service-simulation", folder)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "--tidelog-seeds=2"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search("2 seeds hold", ended.stdout)
    assert re.search(r"fails at seed \d+ .*: never shipped: \['order-", ended.stdout)
    assert "differed" not in ended.stdout


def test_the_page_has_all_kinds_of_faults() -> None:
    page = (ROOT / "docs" / "simulation.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(name, str(kind.per_minute), kind.text) for name, kind in KINDS.items()]
