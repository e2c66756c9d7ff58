"""The faults of one broker's links: what waits, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.control.faults.gates import OPEN, Gate, GatedNetwork, Passage
from tidelog.timeline import LoopTimeline

if TYPE_CHECKING:
    from tidelog.control.faults.link_values import Link, Links
    from tidelog.server import BrokerServer

__all__ = ["LinkFaults"]

SHUT = Passage(sends=False, receives=False)


class LinkFaults:
    """The faults of one broker's links."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._node_id = server.config.node_id
        self._passages: dict[int, Passage] = {}
        self._is_frozen = False
        self._inbound: list[Gate] = []
        self._network = GatedNetwork(server.runtime.network, self._passage)
        server.membership.go_through(self._network, self._network.gate)
        self.hold_clients: tuple[bool, bool] = (False, False)
        """Whether the requests of clients wait before their work, and after it."""

    def set(self, links: Links) -> None:
        """Have these faults from now on, and no others."""
        self._passages = {}
        holds_before = holds_after = False
        for link in links.links:
            if link.other == "clients":
                if link.broker == self._node_id:
                    holds_before |= link.holds in ("both", "received")
                    holds_after |= link.holds in ("both", "sent")
            elif self._node_id in link.ends:
                self._add(link)
        self.hold_clients = (holds_before, holds_after)
        self._network.change()

    def _add(self, link: Link) -> None:
        is_first = link.broker == self._node_id
        other = link.other if is_first else link.broker
        assert isinstance(other, int)
        sent, received = ("sent", "received") if is_first else ("received", "sent")
        known = self._passages.get(other, OPEN)
        self._passages[other] = Passage(
            sends=known.sends and link.holds not in ("both", sent),
            receives=known.receives and link.holds not in ("both", received),
            delay_s=max(known.delay_s, link.seconds),
        )

    def _passage(self, host: str, port: int) -> Passage:
        """Return what may pass to and from an address of another broker."""
        if self._is_frozen:
            return SHUT
        node_id = self._server.membership.node_at(host, port)
        return self._passages.get(node_id, OPEN)

    def freeze(self, *, is_frozen: bool) -> None:
        """Hold all connections, those to come as well, and its timers; or let them go on."""
        self._is_frozen = is_frozen
        self._network.change()
        runtime, doors = self._server.runtime, self._server.doors
        lines = [
            each for each in (runtime.work, runtime.sessions) if isinstance(each, LoopTimeline)
        ]
        self._server.membership.stand_still(is_frozen=is_frozen)
        if is_frozen:
            for line in lines:
                line.hold()
            for door in doors:
                door.gate = self._gated
                for connection in list(door.live):
                    connection.go_through(self._gated)
            return
        for door in doors:
            door.gate = None
        gates, self._inbound = self._inbound, []
        for gate in gates:
            gate.set(OPEN)
        for line in lines:
            line.go_on()

    def _gated(self, transport: Any) -> Gate:
        gate = Gate(transport)
        gate.set(SHUT)
        self._inbound.append(gate)
        return gate
