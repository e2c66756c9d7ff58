"""An operation that tells its result to a callback, as something to be awaited."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

__all__ = ["called_back"]

T = TypeVar("T")


async def called_back(begin: Callable[[Callable[[T], None]], object]) -> T:
    """What the operation tells the callback that `begin` gives it, before `begin` returns or later.

    Who awaits may be cancelled, and the operation goes on: then nobody hears of the result.
    """
    told: Future[T] = get_running_loop().create_future()

    def tell(result: T) -> None:
        if not told.done():
            told.set_result(result)

    begin(tell)
    return await told
