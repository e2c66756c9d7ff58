"""`tidelog demo` itself, on a fifth of the flights: the tiers, the figures, what is left."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")
pytest.importorskip("prometheus_client", reason="the metrics extra is not installed")

from support.spark import MARKS
from tidelog_pipeline import demo, steps
from tidelog_pipeline.flights import load_flights

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900), *MARKS]  # the first one counts


class Lent:
    """The tests' session: whoever stops it is not its owner."""

    def __init__(self, spark) -> None:
        self._spark = spark
        self.stopped = 0

    def __getattr__(self, name: str):
        return getattr(self._spark, name)

    def stop(self) -> None:
        self.stopped += 1


def test_the_whole_demo(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lent = Lent(spark)
    monkeypatch.setattr(demo, "session", lambda *_args, **_settings: lent)
    monkeypatch.setattr(steps, "load_flights", lambda: load_flights().iloc[::5])
    monkeypatch.setattr(steps, "SEGMENT_BYTES", 1 << 20)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    code = demo.main(["--out", str(tmp_path / "out")])

    said = capsys.readouterr()
    assert code == 0, said.err
    (run,) = (tmp_path / "out").iterdir()
    report = json.loads((run / "report.json").read_text())
    assert len(report["figures"]) == 11
    assert all(figure["equal"] for figure in report["figures"])
    tiers = report["tiers"]
    assert tiers["remote_only_share"] >= 0.8
    assert tiers["whole"]["remote_bytes"] >= tiers["remote_only_bytes"] > 20_000_000
    assert tiers["local_bytes"] > 0
    assert tiers["whole"]["local_bytes"] > 0
    assert len(tiers["reads"]) == 6
    (straight,) = [read for read in tiers["reads"] if "tidelog" in read["name"]]
    assert straight["remote_bytes"] == 0
    assert 0 < straight["local_bytes"] < tiers["remote_only_bytes"] / 4
    assert all(read["remote_bytes"] > 0 for read in tiers["reads"] if read is not straight)
    assert "every row equal: format(kafka)" in said.out
    assert "came from the remote tier and" in said.out
    # Results stay; brokers, their data and the remote tier do not.
    assert {path.name for path in run.iterdir()} == {
        "checkpoints",
        "daily-delays.parquet",
        "delays.png",
        "report.json",
    }
    assert list(temporary.glob("tidelog-*")) == []
    assert lent.stopped == 1
