"""The README's code for Spark runs, in the session that the tests of Spark share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.snippets import Snippet, of, run_script

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("spark"),
    # PySpark's own sockets and subprocess are left to the interpreter's end.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.mark.parametrize("snippet", of("python", spark=True))
def test_spark(snippet: Snippet, spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None  # session() finds it
    run_script(snippet, tmp_path)
