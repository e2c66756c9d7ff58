"""The metrics that clients pushed (KIP-714), for the endpoint: bounded, and forgotten in time.

A client's series go once it has pushed nothing for a while, and those of the client that pushed
least recently once there are too many. They outlive its connection, so that the last values of a
short-lived client can still be read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tidelog.metrics.meters import Family, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.metrics.meters import Labels
    from tidelog.metrics.otlp import Point

__all__ = ["ClientSeries"]

SERIES_MAX = 10000
SERIES_OF_CLIENT_MAX = 1000

_Key = tuple[str, bool, "Labels"]


class _Client:
    """What one client instance pushed."""

    __slots__ = ("expires_s", "values")

    def __init__(self) -> None:
        self.values: dict[_Key, float] = {}
        self.expires_s = 0.0


class ClientSeries:
    """The latest values of all clients; those that pushed least recently come first."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._clients: dict[bytes, _Client] = {}
        self._size = 0

    def take(
        self, instance_id: bytes, labels: Labels, points: Sequence[Point], keep_s: float
    ) -> int:
        """Take a push; return how many points were dropped because of a limit."""
        client = self._clients.pop(instance_id, None) or _Client()
        client.expires_s = self._now_s() + keep_s
        before, dropped = len(client.values), 0
        for point in points:
            # The client's own labels win: those of a point must not show another client.
            merged = tuple(sorted({**dict(point.labels), **dict(labels)}.items()))
            key = (point.name, point.is_counter, merged)
            if key not in client.values and len(client.values) >= SERIES_OF_CLIENT_MAX:
                dropped += 1
            else:
                dropped += not _set(client.values, key, point)
        self._clients[instance_id] = client
        self._size += len(client.values) - before
        while self._size > SERIES_MAX:
            self._forget(next(iter(self._clients)))
        return dropped

    def families(self) -> list[Family]:
        """Return all series by name. A name that is pushed as a counter and as a gauge is served as
        a counter."""
        now_s = self._now_s()
        for instance_id in [one for one, it in self._clients.items() if it.expires_s <= now_s]:
            self._forget(instance_id)
        found: dict[str, Family] = {}
        for client in self._clients.values():
            for (name, is_counter, labels), value in client.values.items():
                family = found.get(name)
                if family is None or (is_counter and not family.is_counter):
                    family = found[name] = Family(name, is_counter, [])
                if family.is_counter == is_counter:
                    family.samples.append(Sample(labels, value))
        return [found[name] for name in sorted(found)]

    def _forget(self, instance_id: bytes) -> None:
        self._size -= len(self._clients.pop(instance_id).values)


def _set(values: dict[_Key, float], key: _Key, point: Point) -> bool:
    """Set or add a value; False for one that no counter can have."""
    if point.is_counter and not (math.isfinite(point.value) and point.value >= 0):
        return False
    values[key] = values.get(key, 0.0) + point.value if point.adds else point.value
    return True
