"""How fast connections are taken: `max.connection.creation.rate` of a broker and of listeners.

Kafka: ConnectionQuotas.recordConnectionAndGetThrottleTimeMs. An acceptor of Kafka sleeps before it
takes the next connection; here a connection is taken at once, and read after that time. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.quotas.windows import RateWindows

__all__ = ["ConnectionRates"]

UNLIMITED = 2147483647  # Kafka's default


class ConnectionRates:
    """The rates of a broker and of its listeners."""

    def __init__(self, new_rate: Callable[[], RateWindows], wait_ms_max: int) -> None:
        """`wait_ms_max` is how long an acceptor sleeps at most, the length of a window."""
        self._new_rate = new_rate
        self._wait_ms_max = wait_ms_max
        self._limits: dict[str, int] = {}  # by listener; "" is the broker
        self._rates: dict[str, RateWindows] = {}
        self._free_ms: dict[str, float] = {}  # when the listener's acceptor is awake again
        self._spared: str | None = None

    @property
    def is_limited(self) -> bool:
        """Whether any limit is set."""
        return bool(self._limits)

    def change(self, broker: int, listeners: Mapping[str, int], spared: str | None) -> None:
        """Let these limits hold from now on. `spared` is the listener of other brokers, which the
        broker's own limit leaves alone; None if clients use it, too."""
        limits = {"": broker, **listeners}
        self._limits = {name: limit for name, limit in limits.items() if limit < UNLIMITED}
        self._spared = spared

    def delay_s(self, listener: str, now_ms: float) -> float:
        """Count a new connection; return after how many seconds it may be read."""
        began_ms = max(now_ms, self._free_ms.get(listener, now_ms))
        names = (listener,) if listener == self._spared else ("", listener)
        wait_ms = max(self._wait_ms(name, began_ms) for name in names)
        self._free_ms[listener] = began_ms + wait_ms
        return (began_ms + wait_ms - now_ms) / 1000

    def _wait_ms(self, name: str, now_ms: float) -> int:
        limit = self._limits.get(name)
        if limit is None:
            return 0
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = self._new_rate()
        rate.record(1, now_ms)
        if limit == 0:
            return self._wait_ms_max
        return min(rate.throttle_ms(limit, now_ms), self._wait_ms_max)
