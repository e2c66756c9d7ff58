"""The controller's small words."""

from __future__ import annotations

import pytest

from tidelog.cluster.controller.decisions import repeated


@pytest.mark.parametrize(
    ("names", "expected"),
    [("", ""), ("abc", ""), ("aba", "a"), ("abcbca", "bca"), ("aaa", "a")],
)
def test_repeated(names: str, expected: str) -> None:
    assert list(repeated(names)) == list(expected)
