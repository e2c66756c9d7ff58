"""Cases of the tiered profile, in the order in which they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat.conformance import registry

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: list[registry.Case] = []
TOOLS: list[registry.Case] = []


def case(
    api: str, *versions: int, first: int = 0, last: int = 99
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A case in these versions, or from `first` to `last`."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        for low, high in [(one, one) for one in versions] or [(first, last)]:
            registry.case(api, low, high, into=CASES)(run)
        return run

    return register


def tool(api: str, version: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A case that needs a JVM: a console tool uses this API."""
    return registry.case(api, version, version, into=TOOLS)
