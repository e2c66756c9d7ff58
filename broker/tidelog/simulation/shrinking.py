"""The shortest plan of faults that still fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

V = TypeVar("V")


def shrink(
    failed: V,
    plan_of: Callable[[V], tuple[Any, ...]],
    again: Callable[[tuple[Any, ...]], V | None],
    runs_max: int = 60,
) -> V:
    """Leave out faults, half of them at first and single ones in the end.

    `again` runs a shorter plan; it returns the run if that fails in the same way, else None. The
    result is the shortest failing run that was found.
    """
    best = failed
    runs = 0
    size = max(1, len(plan_of(best)) // 2)
    while size:
        start = len(plan_of(best))
        while start > 0 and runs < runs_max:
            start = max(0, start - size)
            plan = plan_of(best)
            shorter = again(plan[:start] + plan[start + size :])
            runs += 1
            best = best if shorter is None else shorter
        size //= 2
    return best
