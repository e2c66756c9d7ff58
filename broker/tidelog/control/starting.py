"""Sets up a broker that has just started or thawed as the others are: faults and log levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control import logs
from tidelog.control.faults import devices, group, links

if TYPE_CHECKING:
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["set_up"]


async def set_up(control: ClusterControl, node: ControlledNode) -> None:
    """Give it all that the cluster has been given."""
    for part in (group, links, devices, logs):
        await part.install(control, node)
