"""The calls on links: cut brokers from each other or from clients, slow them down.

A link between two brokers is the connections that each opens to the other; requests of clients wait
before or after their work. What waits goes on when the link heals.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import REFUSED, ControlError
from tidelog.control.faults.hits import wait_for_hits
from tidelog.control.faults.link_values import Link, Links
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "Heal", "heal", "install"]

LATENCY_S_MAX = 60.0


@dataclass(frozen=True)
class Cut:
    """A link to cut, and what waits then, as `broker` sees it."""

    broker: int
    other: int | Literal["clients"]
    holds: Literal["both", "sent", "received"] = "both"


@dataclass(frozen=True)
class Slow:
    """A link between two brokers, and how long each request on it travels."""

    broker: int
    other: int
    seconds: float


@dataclass(frozen=True)
class LinkWait:
    """How many hits of the faults of a link to wait for, and how long."""

    broker: int
    other: int | Literal["clients"]
    hits: int = 1
    seconds: float = 10.0


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
    faults.set(args.links)
    control.request_faults.hold_clients(faults.ways_held, faults.held_client)
    return Nothing()


def _hits(control: BrokerControl, _: Nothing) -> Links:
    """Return this broker's faults of links, with its hits."""
    return Links(control.link_faults.hits())


def _freeze_here(control: BrokerControl, args: Frozen) -> Nothing:
    """Hold the connections and the timers of this broker, or let them go on."""
    control.link_faults.freeze(is_frozen=args.is_frozen)
    return Nothing()


# -- on the cluster --------------------------------------------------------------------------------


async def _cut(control: ClusterControl, args: Cut) -> Links:
    """Cut a broker from another one, or from all clients: one way or both ways."""
    return await _add(control, Link(args.broker, args.other, args.holds))


async def _slow(control: ClusterControl, args: Slow) -> Links:
    """Let each request between two brokers travel for so long."""
    if not 0 < args.seconds <= LATENCY_S_MAX:
        text = f"must be above 0 and at most {LATENCY_S_MAX:g}, not {args.seconds:g}"
        raise ControlError(text, field="seconds")
    return await _add(control, Link(args.broker, args.other, "nothing", args.seconds))


async def _add(control: ClusterControl, link: Link) -> Links:
    _check(control, link.broker, link.other)
    known = control.links.links
    return await _change(control, known if link in known else (*known, link))


def _check(control: ClusterControl, broker: int, other: int | str) -> None:
    control.node(broker)
    if isinstance(other, int):
        try:
            control.node(other)
        except ControlError as error:
            raise ControlError(error.message, field="other", status=error.status) from None
        if other == broker:
            raise ControlError("is the same broker", field="other")


async def _list(control: ClusterControl, _: Nothing) -> Links:
    """Return the links that are cut or slow, with their hits."""
    if not control.links.links:
        return Links()
    hits: Counter[Link] = Counter()
    for part in (await control.ask_all("broker.link_hits", {})).values():
        hits.update({replace(link, hits=0): link.hits for link in part.links})
    return Links(tuple(replace(link, hits=hits[link]) for link in control.links.links))


async def _wait(control: ClusterControl, args: LinkWait) -> Links:
    """Wait until the faults of a link have that many hits together."""
    _check(control, args.broker, args.other)
    what = f"the link between broker {args.broker} and {_named(args.other)}"

    async def look() -> tuple[Links, int, str]:
        every = (await _list(control, Nothing())).links
        own = tuple(link for link in every if link.ends == {args.broker, args.other})
        if not own:
            text = f"{what} has no fault: add one first"
            raise ControlError(text, field="other", status=REFUSED)
        return Links(own), sum(link.hits for link in own), "its faults together"

    return await wait_for_hits(what, look, args.hits, args.seconds)


def _named(other: int | str) -> str:
    return "clients" if isinstance(other, str) else f"broker {other}"


async def heal(control: ClusterControl, args: Heal) -> Links:
    """Heal the link between two ends; all links of one end, or all links without ends."""
    given = {end for end in (args.broker, args.other) if end is not None}
    for link in (args.broker, args.other):
        if isinstance(link, int):
            control.node(link)
    kept = tuple(link for link in control.links.links if not given <= link.ends)
    return await _change(control, kept)


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
    Call("broker.link_hits", "broker", Nothing, Links, _hits),
    Call("broker.freeze", "broker", Frozen, Nothing, _freeze_here),
    Call("network.cut", "cluster", Cut, Links, _cut),
    Call("network.slow", "cluster", Slow, Links, _slow),
    Call("network.list", "cluster", Nothing, Links, _list),
    Call("network.wait", "cluster", LinkWait, Links, _wait),
    Call("network.heal", "cluster", Heal, Links, heal),
)
