"""The call `cluster.security`: how clients authenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.calls import Call, Nothing
from tidelog.control.credentials.state import SecurityState

if TYPE_CHECKING:
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS"]


def _security(control: ClusterControl, _: Nothing) -> SecurityState:
    """Describe how clients authenticate."""
    return control.cluster.security


CALLS = (Call("cluster.security", "cluster", Nothing, SecurityState, _security),)
