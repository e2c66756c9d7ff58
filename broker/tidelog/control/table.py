"""The table of all control calls, and how one is performed.

HTTP's routes, `openapi.json` and the pipes between processes are derived from it. A new group of
calls is one module with a tuple `CALLS`, and one line here.
"""

from __future__ import annotations

import difflib
import inspect
import logging
from typing import TYPE_CHECKING, Any

from tidelog.control import (
    actions,
    brokers,
    clock,
    coordinators,
    last_requests,
    logs,
    losing,
    making,
    partitions,
    reading,
    reset,
    security,
    topics,
)
from tidelog.control.errors import MISSING, ControlError
from tidelog.control.faults import devices, links, shared_counts
from tidelog.control.faults import group as faults
from tidelog.control.values import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.control.broker import BrokerControl
    from tidelog.control.calls import Call
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS", "find", "perform"]

log = logging.getLogger("tidelog.control")

_GROUPS = (
    actions,
    brokers,
    clock,
    coordinators,
    devices,
    faults,
    last_requests,
    links,
    logs,
    losing,
    making,
    partitions,
    reading,
    reset,
    security,
    shared_counts,
    topics,
)
CALLS: dict[str, Call] = {call.name: call for group in _GROUPS for call in group.CALLS}


def find(name: str, scope: str) -> Call:
    """Return a call by its name; ControlError if this scope has none."""
    call = CALLS.get(name)
    if call is not None and call.scope == scope:
        return call
    names = [other.name for other in CALLS.values() if other.scope == scope]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ControlError(f"there is no call {name!r}{hint}", field="call", status=MISSING)


async def perform(
    control: BrokerControl | ClusterControl, name: str, given: Mapping[str, Any]
) -> Any:
    """Perform a call with arguments in their JSON form, and return its result as a value."""
    call = find(name, control.SCOPE)
    arguments = from_json(call.arguments, dict(given))
    log.debug("%s %s", name, given)
    result = call.perform(control, arguments)
    return await result if inspect.isawaitable(result) else result
