"""What the calls on one broker act on: the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tidelog.server import BrokerServer

__all__ = ["BrokerControl"]


class BrokerControl:
    """The control of one running broker, in the broker's own process and loop."""

    SCOPE: ClassVar = "broker"

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
