"""The broker of an actor: its fetchers wait at a gate, and steps advance its wall clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.embedded.nodes import LocalNode
from tidelog.runtime import SystemClock, system_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.server import BrokerServer
    from tidelog_scenarios.fetch_gate import FetchGate

__all__ = ["Actor"]


class Actor(LocalNode):
    """A broker in the running event loop."""

    def __init__(self, properties: Mapping[str, str], gate: FetchGate, **rest: Any) -> None:
        """Build a node; `rest` as for `Node`."""
        super().__init__(properties, runtime=None, new_fetcher=gate.new_fetcher, **rest)
        self._clock = SystemClock()  # kept across restarts

    async def _begin(self) -> BrokerServer:
        self._runtime = system_runtime(durable=self._durable)._replace(clock=self._clock)
        return await super()._begin()
