"""The calls on links: cut brokers from each other or from clients, slow them down.

A link between two brokers is the connections that each opens to the other; requests of clients wait
before or after their work. What waits goes on when the link heals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import ControlError
from tidelog.control.faults.gates import OPEN, Gate, GatedNetwork, Passage
from tidelog.control.faults.group import request_faults_of
from tidelog.control.faults.link_values import Link, Links
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode
    from tidelog.server import BrokerServer

__all__ = ["CALLS", "LinkFaults", "install"]

LATENCY_S_MAX = 60.0
SHUT = Passage(sends=False, receives=False)


@dataclass(frozen=True)
class Heal:
    """The link to heal; without ends, all links."""

    broker: int | None = None
    other: int | Literal["clients"] | None = None


@dataclass(frozen=True)
class Frozen:
    """Whether a broker sends and receives nothing."""

    is_frozen: bool


# -- on one broker ---------------------------------------------------------------------------------


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
        """Hold all connections, those to come as well, or let them go on."""
        self._is_frozen = is_frozen
        self._network.change()
        doors = self._server.doors
        if is_frozen:
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

    def _gated(self, transport: Any) -> Gate:
        gate = Gate(transport)
        gate.set(SHUT)
        self._inbound.append(gate)
        return gate


def _set(control: BrokerControl, args: Links) -> Nothing:
    """Have these faults of links from now on, and no others."""
    faults = _faults_of(control)
    faults.set(args)
    request_faults_of(control).hold_clients(*faults.hold_clients)
    return Nothing()


def _freeze_here(control: BrokerControl, args: Frozen) -> Nothing:
    """Hold all connections of this broker, or let them go on."""
    _faults_of(control).freeze(is_frozen=args.is_frozen)
    return Nothing()


def _faults_of(control: BrokerControl) -> LinkFaults:
    if control.links is None:
        control.links = LinkFaults(control.server)
    return control.links


# -- on the cluster --------------------------------------------------------------------------------


async def _cut(control: ClusterControl, args: Link) -> Links:
    """Cut a broker from another one, or from all clients: one way or both ways."""
    _check(control, args)
    if args.holds == "nothing" and not args.seconds:
        raise ControlError("must say what waits, or seconds how long", field="holds")
    if not 0 <= args.seconds <= LATENCY_S_MAX:
        text = f"must be between 0 and {LATENCY_S_MAX:g}, not {args.seconds:g}"
        raise ControlError(text, field="seconds")
    if args.seconds and args.other == "clients":
        text = "is for links of brokers: delay the answers to clients by faults.add"
        raise ControlError(text, field="seconds")
    return await _change(control, (*control.links.links, args))


async def _heal(control: ClusterControl, args: Heal) -> Links:
    """Heal the link between two ends; all links of one end, or all links without ends."""
    given = {end for end in (args.broker, args.other) if end is not None}
    for link in (args.broker, args.other):
        if isinstance(link, int):
            control.node(link)
    kept = tuple(link for link in control.links.links if not given <= link.ends)
    return await _change(control, kept)


def _check(control: ClusterControl, link: Link) -> None:
    control.node(link.broker)
    if isinstance(link.other, int):
        try:
            control.node(link.other)
        except ControlError as error:
            raise ControlError(error.message, field="other", status=error.status) from None
        if link.other == link.broker:
            raise ControlError("is the same broker", field="other")


async def _change(control: ClusterControl, links: Sequence[Link]) -> Links:
    control.links = Links(tuple(links))
    await control.ask_all("broker.set_links", to_json(control.links))
    return control.links


async def install(control: ClusterControl, node: ControlledNode) -> None:
    """Set up a broker that has just started or thawed."""
    if control.links != Links():
        await node.ask("broker.set_links", to_json(control.links))


CALLS = (
    Call("broker.set_links", "broker", Links, Nothing, _set),
    Call("broker.freeze", "broker", Frozen, Nothing, _freeze_here),
    Call("network.cut", "cluster", Link, Links, _cut),
    Call("network.heal", "cluster", Heal, Links, _heal),
)
