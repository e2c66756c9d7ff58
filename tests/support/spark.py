"""What all tests that use Spark are marked with: they share one session."""

from __future__ import annotations

import pytest

MARKS = [
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
