"""`docs/faults.md` names the faults that the code has, and where each strikes."""

from __future__ import annotations

import re
from pathlib import Path

from sim.cluster.faults import FAULTS as CLUSTER_FAULTS
from sim.faults import FAULTS

ROOT = Path(__file__).parent.parent.parent
TABLE, _, PLAYS = (ROOT / "docs/faults.md").read_text().partition("## In plays")
ROW = re.compile(r"^\| `([a-z ]+)` \| .+ \| (yes|) ?\| (yes|) ?\|$", re.MULTILINE)


def test_the_table_has_each_fault_where_it_strikes() -> None:
    rows = ROW.findall(TABLE)
    assert len(rows) == TABLE.count("\n| `")
    assert sorted(name for name, one, _ in rows if one) == sorted(FAULTS)
    assert sorted(name for name, _, cluster in rows if cluster) == sorted(CLUSTER_FAULTS)


def test_the_plays_are_there() -> None:
    tests = re.findall(r"`(tests/[^`]+)` \|$", PLAYS, re.MULTILINE)
    assert len(tests) == PLAYS.count("\n| ") - 1
    assert all((ROOT / path).exists() for path in tests)
