"""The broker of an actor: its followers wait at a turnstile, and steps move its wall clock on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidelog.embedded.nodes import LocalNode
from tidelog.runtime import SystemClock, system_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.server import BrokerServer
    from tidelog_scenarios.turnstile import Turnstile

__all__ = ["Actor", "MovedClock"]


class MovedClock(SystemClock):
    """The machine's clocks, the wall's so many milliseconds ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return super().wall_ms() + self.ahead_ms


class Actor(LocalNode):
    """In the running event loop."""

    def __init__(self, properties: Mapping[str, str], turnstile: Turnstile, **rest: Any) -> None:
        """`rest` as for `Node`."""
        super().__init__(properties, runtime=None, new_fetcher=turnstile.new_fetcher, **rest)
        self._clock = MovedClock()  # of all its lives

    async def _begin(self) -> BrokerServer:
        self._runtime = replace(system_runtime(durable=self._durable), clock=self._clock)
        return await super()._begin()
