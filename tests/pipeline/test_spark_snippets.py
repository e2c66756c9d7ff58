"""The README's code for Spark runs, in the session that the tests of Spark share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.snippets import Snippet, of, run_script
from support.spark import MARKS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = MARKS


@pytest.mark.parametrize("snippet", of("python", spark=True))
def test_spark(snippet: Snippet, spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None  # session() finds it
    run_script(snippet, tmp_path)
