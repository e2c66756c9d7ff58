"""The calls on links: cut brokers from each other or from clients, slow them down.

A link between two brokers is the connections that each opens to the other; requests of clients wait
before or after their work. What waits goes on when the link heals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import ControlError
from tidelog.control.faults.link_values import Link, Links
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "Heal", "heal", "install"]

LATENCY_S_MAX = 60.0


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


def _set(control: BrokerControl, args: Links) -> Nothing:
    """Have these faults of links from now on, and no others."""
    faults = control.link_faults
    faults.set(args)
    control.request_faults.hold_clients(*faults.hold_clients)
    return Nothing()


def _freeze_here(control: BrokerControl, args: Frozen) -> Nothing:
    """Hold the connections and the timers of this broker, or let them go on."""
    control.link_faults.freeze(is_frozen=args.is_frozen)
    return Nothing()


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


async def _list(control: ClusterControl, _: Nothing) -> Links:
    """Return the links that are cut or slow."""
    return control.links


async def heal(control: ClusterControl, args: Heal) -> Links:
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
    Call("network.list", "cluster", Nothing, Links, _list),
    Call("network.heal", "cluster", Heal, Links, heal),
)
