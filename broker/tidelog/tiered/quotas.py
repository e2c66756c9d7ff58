"""Quotas in bytes per second to and from the remote tier (KIP-956).

Like Kafka's RLMQuotaManager over a SimpleRate: bytes of the last windows divided by the time since
the oldest of them began, at least one window. Pure; callers above the limit wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig

__all__ = ["RateQuota"]

_THROTTLED_S = 30.0  # how long a wait shows in the metrics, as in Kafka
_THROTTLED_MAX = 10_000


class RateQuota:
    """Measures how much of a limit is used. Invariant: windows rise, and none began `windows_max`
    windows or more before the newest record."""

    def __init__(self, bytes_per_second: int, *, windows_max: int = 11, window_s: int = 1) -> None:
        self.bytes_per_second = bytes_per_second
        self._windows_max = windows_max
        self._window_s = window_s
        self._windows: deque[list[float]] = deque()  # [when it began, bytes]
        self._throttled: deque[tuple[float, float]] = deque()  # (when, for how many ms)

    @classmethod
    def of_copies(cls, config: BrokerConfig) -> Self:
        """Return the quota of copies to the tier."""
        return cls(
            config.remote_log_manager_copy_max_bytes_per_second,
            windows_max=config.remote_log_manager_copy_quota_window_num,
            window_s=config.remote_log_manager_copy_quota_window_size_seconds,
        )

    @classmethod
    def of_fetches(cls, config: BrokerConfig) -> Self:
        """Return the quota of reads from the tier."""
        return cls(
            config.remote_log_manager_fetch_max_bytes_per_second,
            windows_max=config.remote_log_manager_fetch_quota_window_num,
            window_s=config.remote_log_manager_fetch_quota_window_size_seconds,
        )

    def record(self, size: int, now_s: float) -> None:
        """Count bytes that are sent now. `now_s` is on a monotonic clock."""
        self._forget(now_s)
        if not self._windows or now_s - self._windows[-1][0] >= self._window_s:
            self._windows.append([now_s, 0])
        self._windows[-1][1] += size

    def rate(self, now_s: float) -> float:
        """Return the rate in bytes per second."""
        self._forget(now_s)
        return sum(size for _, size in self._windows) / self._elapsed_s(now_s)

    def throttle_s(self, now_s: float) -> float:
        """Return how long to wait until the rate is within the limit; 0 if it is."""
        excess = self.rate(now_s) - self.bytes_per_second
        if excess <= 0:
            return 0.0
        return excess / self.bytes_per_second * self._elapsed_s(now_s)

    def is_exceeded(self, now_s: float) -> bool:
        """Return whether a caller has to wait now; counts the wait for `throttle_times_ms`."""
        wait_s = self.throttle_s(now_s)
        if wait_s <= 0:
            return False
        self._throttled.append((now_s, 1000 * wait_s))
        if len(self._throttled) > _THROTTLED_MAX:
            self._throttled.popleft()
        return True

    def throttle_times_ms(self, now_s: float) -> tuple[float, float]:
        """Return average and maximum of the recent waits; 0 if there were none."""
        throttled = self._throttled
        while throttled and throttled[0][0] < now_s - _THROTTLED_S:
            throttled.popleft()
        times = [wait_ms for _, wait_ms in throttled]
        return (sum(times) / len(times), max(times)) if times else (0.0, 0.0)

    def _elapsed_s(self, now_s: float) -> float:
        begun_s = self._windows[0][0] if self._windows else now_s
        return max(now_s - begun_s, self._window_s)

    def _forget(self, now_s: float) -> None:
        """Drop the windows that are too old."""
        oldest_s = now_s - self._windows_max * self._window_s
        while self._windows and self._windows[0][0] <= oldest_s:
            self._windows.popleft()
