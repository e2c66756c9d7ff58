"""Regular expressions from clients: RE2's syntax, as in Kafka (RE2/J), in time linear in the text.

Python's own `re` has another syntax (look-ahead, back references) and may need exponential time for
some patterns, which would block the loop. The first request with a pattern imports this module and
google-re2 (the extra `re2`: it has no wheels for musl).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import re2

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["matcher"]


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test of whole texts; ValueError for an invalid pattern."""
    options = re2.Options()
    options.log_errors = False  # RE2 writes to standard error itself
    options.never_capture = True  # thousands of groups would need gigabytes
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(str(error)) from None
    return lambda text: compiled.fullmatch(text) is not None
