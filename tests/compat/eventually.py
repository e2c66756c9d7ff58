"""Waiting for what another process will show, bounded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def eventually(look: Callable[[], T], wanted: Callable[[T], bool], timeout_s: float = 60.0) -> T:
    """Look again and again until what is seen is wanted; the last sight is in the failure."""
    end = time.monotonic() + timeout_s
    while True:
        seen = look()
        if wanted(seen):
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s:.0f} s; last seen: {seen!r:.2000}")
        time.sleep(0.05)
