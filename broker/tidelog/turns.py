"""Work in parts, each in a turn of the event loop: others are served between the parts.

For work that nothing waits for. Requests have `network/wide_requests.py`; tasks sleep for no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.seams import TimerHandle, Timers

__all__ = ["Turns"]

_OVER = object()


class Turns:
    """One piece of work, a generator that yields between its parts."""

    __slots__ = ("_handle", "_on_end", "_parts", "_timers")

    def __init__(
        self, timers: Timers, parts: Iterator[None], on_end: Callable[[], None] | None = None
    ) -> None:
        """`on_end` is called after the last part, also if a part fails; not if it is cancelled."""
        self._timers = timers
        self._parts = parts
        self._on_end = on_end
        self._handle: TimerHandle | None = None

    def begin(self) -> None:
        """Do the first part now. It may be all."""
        self._handle = None
        is_over = True
        try:
            is_over = next(self._parts, _OVER) is _OVER
        finally:
            if not is_over:
                self._handle = self._timers.call_at(self._timers.time(), self.begin)
            elif self._on_end is not None:
                self._on_end()

    def cancel(self) -> None:
        """Do no more of it."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
