"""A limit of time for what is tried again and again, with pauses that grow."""

from __future__ import annotations

from time import sleep

from tidelog.runtime import SystemClock

__all__ = ["Retries"]

SECONDS_MAX = 30.0
PAUSE_S = 0.01
PAUSE_S_MAX = 0.2


class Retries:
    """Counts real time from when it is made."""

    def __init__(self, seconds: float = SECONDS_MAX) -> None:
        self._clock = SystemClock()
        self._end_s = self._clock.monotonic() + seconds
        self._pause_s = PAUSE_S

    def again(self) -> bool:
        """Pause, and return True; False, at once, after the limit."""
        left_s = self._end_s - self._clock.monotonic()
        if left_s <= 0:
            return False
        sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return True
