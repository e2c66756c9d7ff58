"""Cases of the cluster: with all three brokers there, and with the third one gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compat.conformance import registry

if TYPE_CHECKING:
    from compat.conformance.cluster.session import ClusterSession

Registering = Callable[[Callable[..., None]], Callable[..., None]]

WHOLE: list[registry.Case] = []
DOWN: list[registry.Case] = []
PREPARED: dict[str, Callable[[ClusterSession], None]] = {}


def case(api: str, *versions: int, first: int = 0, last: int = 99) -> Registering:
    """A case for a whole cluster, in these versions, or from `first` to `last`."""
    return _into(WHOLE, api, versions, first, last)


def down(
    api: str,
    *versions: int,
    first: int = 0,
    last: int = 99,
    prepare: Callable[[ClusterSession], None] | None = None,
) -> Registering:
    """A case for the cluster without its third broker, run in the order they are written.

    `prepare` is called while it is still there.
    """
    add = _into(DOWN, api, versions, first, last)

    def register(run: Callable[..., None]) -> Callable[..., None]:
        if prepare is not None:
            PREPARED[run.__name__] = prepare
        return add(run)

    return register


def _into(
    cases: list[registry.Case], api: str, versions: tuple[int, ...], first: int, last: int
) -> Registering:
    def register(run: Callable[..., None]) -> Callable[..., None]:
        for low, high in [(one, one) for one in versions] or [(first, last)]:
            registry.case(api, low, high, into=cases)(run)
        return run

    return register
