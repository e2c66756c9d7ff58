"""The broker of an actor: its fetchers wait at a gate, and steps advance its wall clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.embedded.nodes import LocalNode
from tidelog.runtime import SystemClock, system_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.server import BrokerServer
    from tidelog.tiered.reads.reader import SegmentAt
    from tidelog_scenarios.fetch_gate import FetchGate

__all__ = ["Actor"]


class Actor(LocalNode):
    """A broker in the running event loop."""

    def __init__(
        self,
        properties: Mapping[str, str],
        gate: FetchGate,
        segment_at: SegmentAt | None = None,
        **rest: Any,
    ) -> None:
        """Build a node; `segment_at` replaces the rule of its remote reads. `rest` as for
        `Node`."""
        super().__init__(properties, runtime=None, new_fetcher=gate.new_fetcher, **rest)
        self._segment_at = segment_at
        self._clock = SystemClock()  # kept across restarts

    async def _begin(self) -> BrokerServer:
        self._runtime = system_runtime(durable=self._durable)._replace(clock=self._clock)
        server = await super()._begin()
        if self._segment_at is not None and server.tier is not None:
            server.tier.reads.segment_at = self._segment_at
        return server
