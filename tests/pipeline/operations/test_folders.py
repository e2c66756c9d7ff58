"""What is known of a folder without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tidelog_pipeline.operations.folders import is_surely_missing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_hadoop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_path_of_this_machine(form: str, tmp_path: Path) -> None:
    assert not is_surely_missing(form.format(tmp_path / "there"), "local[*]", {})
    assert is_surely_missing(form.format(tmp_path / "a:b"), "local[*]", {})


def test_a_path_of_the_working_folder() -> None:
    assert not is_surely_missing("./there", "local[2]", {})
    assert is_surely_missing("there/not:there", "local[2]", {})


def test_what_may_be_elsewhere_is_asked_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_surely_missing("s3a://lake/no", "local[2]", {})
    assert not is_surely_missing("hdfs:/no", "local[2]", {})
    assert not is_surely_missing("/no", "yarn", {})
    assert not is_surely_missing("/no", "local[2]", {"spark.master": "yarn"})
    assert not is_surely_missing("/no", "local[2]", {"spark.hadoop.fs.defaultFS": "hdfs://h"})
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert not is_surely_missing("/no", "local[2]", {})
