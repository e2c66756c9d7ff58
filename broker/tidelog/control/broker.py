"""What the calls on one broker act on: the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tidelog.control.faults.devices import DeviceFaults
    from tidelog.control.faults.links import LinkFaults
    from tidelog.control.faults.requests import RequestFaults
    from tidelog.control.faults.rules import Count
    from tidelog.server import BrokerServer

__all__ = ["BrokerControl"]


class BrokerControl:
    """The control of one running broker, in the broker's own process and loop."""

    SCOPE: ClassVar = "broker"

    def __init__(self, server: BrokerServer, fault_counts: dict[int, Count] | None = None) -> None:
        """Brokers of one process share `fault_counts`."""
        self.server = server
        self.faults: RequestFaults | None = None
        self.links: LinkFaults | None = None
        self.devices: DeviceFaults | None = None
        self.fault_counts = {} if fault_counts is None else fault_counts
