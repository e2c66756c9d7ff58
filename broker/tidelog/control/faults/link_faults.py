"""The faults of one broker's links: what waits, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidelog.control.faults.gates import OPEN, Gate, GatedNetwork, Passage
from tidelog.control.faults.link_values import Link
from tidelog.network.observer import is_of_broker
from tidelog.timeline import LoopTimeline

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        self._answers: list[Gate] = []
        self._hits: dict[Link, int] = {}
        self._network = GatedNetwork(server.runtime.network, self._passage, self._held)
        server.membership.go_through(self._network, self._network.gate)

    def set(self, links: Sequence[Link]) -> None:
        """Have these faults from now on, and no others; those that stay keep their hits."""
        own = [link for link in links if self._node_id in link.ends]
        self._hits = {link: self._hits.get(link, 0) for link in own}
        self._passages = {}
        for link in own:
            if link.other != "clients":
                self._add(link)
        self._network.change()
        self._hold_answers()

    def hits(self) -> tuple[Link, ...]:
        """Return its faults with the hits that it counted."""
        return tuple(replace(link, hits=hits) for link, hits in self._hits.items())

    @property
    def ways_held(self) -> frozenset[str]:
        """What clients' requests wait for: to be received, before their work, or to be sent an
        answer."""
        held = {link.holds for link in self._hits if link.other == "clients"}
        return frozenset({"sent", "received"} if "both" in held else held)

    def held_client(self, way: str) -> None:
        """Count a client's request that waits."""
        for link in self._hits:
            if link.other == "clients" and link.holds in ("both", way):
                self._hits[link] += 1

    def _hold_answers(self) -> None:
        """Hold the answers of clients' requests that were received before the cut, or let them go.

        Those of later requests wait in `requests.py`.
        """
        if "sent" not in self.ways_held:
            gates, self._answers = self._answers, []
            for gate in gates:
                gate.set(OPEN)
        elif not self._answers:
            for door in self._server.doors:
                for connection in list(door.live):
                    if any(not is_of_broker(context) for context in connection.unanswered()):
                        connection.go_through(self._answer_gate)

    def _answer_gate(self, transport: Any) -> Gate:
        gate = Gate(transport, lambda _: self.held_client("sent"))
        gate.set(Passage(sends=False))
        self._answers.append(gate)
        return gate

    def _held(self, host: str, port: int, count: int) -> None:
        """Count requests to another broker that wait, or wait for their answers."""
        ends = {self._node_id, self._server.membership.node_at(host, port)}
        for link in self._hits:
            if link.ends == ends and not self._is_frozen:
                self._hits[link] += count

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
