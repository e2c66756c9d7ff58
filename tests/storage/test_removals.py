"""Files and folders of deleted logs go, whatever is in the way."""

from __future__ import annotations

import errno

import pytest

from tidelog_storage.removals import Removals


def test_what_lacks_a_descriptor_is_removed_later() -> None:
    removed: list[str] = []
    lacking = 1

    def remove(path: str) -> None:
        nonlocal lacking
        if path == "b" and lacking:
            lacking -= 1
            raise OSError(errno.EMFILE, "none is left")
        removed.append(path)

    removals = Removals(remove)
    removals.add(10, ["a", "b", "c"])
    removals.add(20, ["d"])
    assert removals.prepare(9) is None
    first = removals.prepare(10)
    assert first is not None
    with pytest.raises(OSError, match="none is left"):
        first()
    assert (removed, len(removals)) == (["a"], 3)
    second = removals.prepare(10)
    assert second is not None
    second()
    assert (removed, len(removals)) == (["a", "b", "c"], 1)


def test_nothing_is_removed_before_what_comes_first_is_done() -> None:
    removed: list[str] = []
    written: list[str] = []

    def write() -> None:
        written.append("checkpoint")
        if len(written) == 1:
            raise OSError(errno.EMFILE, "none is left")

    removals = Removals(removed.append)
    removals.add(10, ["a"])
    first = removals.prepare(10, write)
    assert first is not None
    with pytest.raises(OSError, match="none is left"):
        first()
    assert not removed
    second = removals.prepare(10, write)
    assert second is not None
    second()
    assert (removed, len(written), len(removals)) == (["a"], 2, 0)
