"""How fast something happens: a rate over the last windows of time, or tokens. Pure.

Kafka: Rate over SampledStat, as its quotas use it.
"""

from __future__ import annotations

from collections import deque

__all__ = ["RateWindows", "TokenBucket"]


class RateWindows:
    """A rate per second. Invariant: windows rise by their begin."""

    __slots__ = ("_count", "_is_simple", "_length_ms", "_windows")

    def __init__(self, count: int, length_s: int, *, is_simple: bool = False) -> None:
        """The rate is that of the last `count` windows, of which the last one is not over.

        `is_simple`: only the time since the oldest of them counts, at least a window (Kafka:
        SimpleRate).
        """
        self._is_simple = is_simple
        self._count = count
        self._length_ms = 1000 * length_s
        self._windows: deque[list[float]] = deque(maxlen=count + 1)  # begin, last event, value

    def record(self, value: float, now_ms: float) -> None:
        """Count a value now. A negative one takes back what was counted."""
        self._forget(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._length_ms:
            windows.append([now_ms, now_ms, 0.0])
        windows[-1][1] = now_ms
        windows[-1][2] += value

    def rate(self, now_ms: float) -> float:
        """Return the rate per second."""
        self._forget(now_ms)
        return sum(value for _, _, value in self._windows) * 1000 / self._elapsed_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Return how long nothing must happen until the rate is within a limit; 0 if it is."""
        excess = self.rate(now_ms) - limit
        if excess <= 0:
            return 0
        return round(excess / limit * self._elapsed_ms(now_ms))

    def _forget(self, now_ms: float) -> None:
        kept_ms = self._count * self._length_ms
        while self._windows and now_ms - self._windows[0][1] >= kept_ms:
            self._windows.popleft()

    def _elapsed_ms(self, now_ms: float) -> float:
        """Return the time that counts: all windows but the last are taken as whole, so that a first
        event is no high rate."""
        elapsed = now_ms - self._windows[0][0] if self._windows else 0.0
        if self._is_simple:
            return max(elapsed, self._length_ms)
        missing = self._count - 1 - int(elapsed / self._length_ms)
        return max(elapsed + max(missing, 0) * self._length_ms, 1.0)


class TokenBucket:
    """Tokens that come back at a steady rate, up to a number (Kafka: TokenBucket of KIP-599).

    More may be taken than there are; then nothing more is allowed until the debt is paid.
    """

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, count: int, length_s: int) -> None:
        """It holds what comes back in `count` windows. It is full at first."""
        self._seconds = count * length_s
        self._tokens = float("inf")
        self._updated_ms = 0.0

    def tokens(self, limit: float, now_ms: float) -> float:
        """Return the number of tokens, which come back at `limit` per second."""
        returned = limit * (now_ms - self._updated_ms) / 1000
        self._tokens = min(limit * self._seconds, self._tokens + returned)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: float) -> None:
        """Take tokens, also those that are not there."""
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Return how long the debt takes; 0 if there is none."""
        return max(round(-1000 * self.tokens(limit, now_ms) / limit), 0)
