"""One control call: its name, arguments, result and function.

A group of calls is a module with a tuple `CALLS`, which `table.py` collects. Arguments and results
are values as `values.py` has them: their annotations are resolved when the program runs, so their
types are imported, not only under TYPE_CHECKING. The docstring of the function describes the call
to users.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Call", "Nothing"]


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No arguments, or no result."""


class Call(NamedTuple):
    """One call: `perform(control, arguments)` does it and returns or awaits the result.

    `control` is the `BrokerControl` or the `ClusterControl`, by the scope. Users make the calls of
    the cluster; those make the calls of its brokers.
    """

    name: str
    scope: Literal["broker", "cluster"]
    arguments: type[Any]
    result: Any
    perform: Callable[[Any, Any], Any]

    @property
    def doc(self) -> str:
        """What it does, for users."""
        return self.perform.__doc__ or ""
