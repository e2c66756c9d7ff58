"""What `session()` says where Spark is too old, or does not start. No JVM."""

from __future__ import annotations

import importlib.util
import sys

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from tidelog_pipeline.spark import (
    SparkMissingError,
    SparkStartError,
    _one_line,
    check_master,
    check_version,
    session,
)


def test_a_spark_without_streaming_data_sources_is_one_line() -> None:
    for version in ("4.0.0", "4.2.1", "5.0.0.dev1"):
        check_version(version)
    with pytest.raises(SparkMissingError, match=r"needs Spark 4\.0.* PySpark 3\.5\.6 is installed"):
        check_version("3.5.6")


def test_the_source_itself_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    spec = importlib.util.find_spec("tidelog_pipeline.source")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"needs PySpark 4\.0 or newer"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[2, 3]", "local-cluster[2,1,1024]", "spark://a:7077,b:7077"),
        *("yarn", "k8s://https://10.0.0.1:443"),
    ],
)
def test_masters_of_spark_are_known(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("master", ["", "local[0]", "local[two]", "spark://head", "flink://a:1"])
def test_no_other_master_comes_to_spark(master: str) -> None:
    with pytest.raises(SparkStartError, match="is no master of Spark"):
        session(master=master)
    with pytest.raises(SparkStartError, match="is no master of Spark"):
        session(settings={"spark.master": master})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            "Java gateway process exited",
        ),
        (
            Py4JError("x should be int\n\nJVM stacktrace:\na.b"),
            "x should be int",
        ),
        (
            Py4JError("An error occurred while calling None.\n: a.b.C: no such master\n\tat a.b"),
            "master 'x': a.b.C: no such master",
        ),
    ],
)
def test_a_spark_that_does_not_start_is_one_line(error: Exception, text: str) -> None:
    with pytest.raises(SparkStartError) as caught, _one_line("x"):
        raise error
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
