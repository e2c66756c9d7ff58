"""The values of link faults: which link, what waits, how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Link", "Links"]


@dataclass(frozen=True)
class Link:
    """A fault of the link between a broker and another one, or all clients.

    `holds` says what waits, as `broker` sees it: all it sends, all it receives, or both; `seconds`
    is how long each request between them travels.
    """

    broker: int
    other: int | Literal["clients"]
    holds: Literal["nothing", "both", "sent", "received"] = "both"
    seconds: float = 0.0
    hits: int = 0
    """How many requests and new connections it has held or slowed since its brokers started."""

    @property
    def ends(self) -> frozenset[int | str]:
        """Both ends."""
        return frozenset((self.broker, self.other))


@dataclass(frozen=True)
class Links:
    """All faults of links."""

    links: tuple[Link, ...] = ()
