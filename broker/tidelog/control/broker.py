"""What the calls on one broker act on: the broker itself, and its faults."""

# ruff: noqa: PLC0415 - faults are imported when there is one

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tidelog.control.faults.device_faults import DeviceFaults
    from tidelog.control.faults.link_faults import LinkFaults
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
        self._fault_counts = {} if fault_counts is None else fault_counts

    @cached_property
    def request_faults(self) -> RequestFaults:
        """The faults of its requests."""
        from tidelog.control.faults.requests import RequestFaults

        server = self.server
        return RequestFaults(
            server.config.node_id,
            server.dispatchers,
            lambda: server.metadata.image.topic_names,
            self._fault_counts,
        )

    @cached_property
    def link_faults(self) -> LinkFaults:
        """The faults of its connections to other brokers and to clients."""
        from tidelog.control.faults.link_faults import LinkFaults

        return LinkFaults(self.server)

    @cached_property
    def device_faults(self) -> DeviceFaults:
        """The faults of its disk and its remote store."""
        from tidelog.control.faults.device_faults import DeviceFaults

        return DeviceFaults(self.server)
