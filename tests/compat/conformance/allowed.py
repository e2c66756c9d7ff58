"""Differences between tidelog and the reference that are meant, each with its reason.

`run` and `path` are shell patterns ("*" crosses dots); `only` narrows further by the two values.
The README's table of limits is the reader's version of this list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Allowed(NamedTuple):
    """One line of the table."""

    run: str
    path: str
    reason: str
    only: Callable[[Any, Any], bool] | None = None


def not_served(_reference: Any, tidelog: Any) -> bool:
    """The API is left out of tidelog's answer."""
    return tidelog == "<missing>"


ALLOWED = (
    Allowed(
        "ApiVersions-served-*",
        "*.ranges.*",
        "an API that tidelog does not serve is not listed, which is how clients are told",
        not_served,
    ),
)
