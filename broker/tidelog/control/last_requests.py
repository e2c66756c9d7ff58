"""The call `logs.requests`: the last requests of clients.

A broker keeps its last 100 requests from the first call on, and stops when none came for half a
minute. Requests of brokers to each other are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.control.calls import Call, Nothing
from tidelog_protocol.apis import API
from tidelog_protocol.errors import error_name

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS", "LastRequests", "RequestState"]


@dataclass(frozen=True)
class RequestState:
    """A request that a broker has answered. `client` is its address; `error` is NONE, or the first
    error in the response."""

    broker: int
    ended_ms: int
    client_id: str | None
    client: str
    api: str
    version: int
    latency_ms: float
    error: str


@dataclass(frozen=True)
class LastRequests:
    """The last requests of clients, oldest first."""

    requests: tuple[RequestState, ...]


async def _last(control: ClusterControl, _: Nothing) -> LastRequests:
    """Return the last requests of clients; the first call begins to keep them."""
    parts = (await control.ask_all("broker.requests", {})).values()
    found = [request for part in parts for request in part.requests]
    return LastRequests(tuple(sorted(found, key=lambda one: one.ended_ms)))


def _last_here(control: BrokerControl, _: Nothing) -> LastRequests:
    """Return the last requests of clients to this broker."""
    server = control.server
    return LastRequests(
        tuple(
            RequestState(
                broker=server.config.node_id,
                ended_ms=one.ended_ms,
                client_id=one.client_id,
                client=one.client,
                api=API[one.api_key].name,
                version=one.api_version,
                latency_ms=one.latency_ms,
                error=error_name(one.error),
            )
            for one in server.requests.kept()
        )
    )


CALLS = (
    Call("broker.requests", "broker", Nothing, LastRequests, _last_here),
    Call("logs.requests", "cluster", Nothing, LastRequests, _last),
)
