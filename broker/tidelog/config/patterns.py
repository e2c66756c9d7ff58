"""Regular expressions from clients: RE2's syntax, as in Kafka (RE2/J), in time linear in the text.

Python's own `re` has another syntax (look-ahead, back references) and may need exponential time for
some patterns, which would block the loop. The first request with a pattern imports this module and
google-re2 (the extra `re2`: it has no wheels for musl).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import re2

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["matcher"]

_IN_JAVA = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
"""What RE2/J says, by what RE2 says before a colon and the place; the others say the same."""


# Quoted text, classes and other escapes are passed over.
_TOKENS = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|(?P<byte>\\C)|\\."
    r"|\(\?P?<(?P<name>\w+)>",
    re.DOTALL,
)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test of whole texts; ValueError for an invalid pattern."""
    options = re2.Options()
    options.log_errors = False  # RE2 writes to standard error itself
    options.never_capture = True  # thousands of groups would need gigabytes
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(_reason(error)) from None
    _check_as_java(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _check_as_java(pattern: str) -> None:
    """Refuse what RE2 takes and RE2/J does not: a byte, and two groups of one name."""
    names = set()
    for token in _TOKENS.finditer(pattern):
        if token["byte"]:
            raise ValueError("invalid escape sequence")
        if token["name"] in names:
            raise ValueError("duplicate capture group name")
        if token["name"]:
            names.add(token["name"])


def _reason(error: Exception) -> str:
    """Return the reason in RE2/J's words, which Kafka answers."""
    (text,) = error.args
    shown = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    what, _, place = shown.partition(": ")
    if place.startswith("(?<"):
        return "invalid named capture"
    return _IN_JAVA.get(what, what)
