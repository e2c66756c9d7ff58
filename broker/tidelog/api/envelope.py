"""Envelope (API 58): a request that another node forwards with its client's identity (KIP-590).

Behaviour. On the controllers' listener alone, for nodes that may do CLUSTER_ACTION: they have
checked what the client may do. The inner request is answered as if the client had sent it here. If
its answer is NOT_CONTROLLER, that is the envelope's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.envelopes import opened, sealed
from tidelog.cluster.forwarding import ENVELOPED, answered_here, says_not_controller
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.controller import EnvelopeResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.controller import EnvelopeRequest

__all__ = ["EnvelopeApi"]


class EnvelopeApi:
    """Opens envelopes; `served` are the controller's handlers."""

    def __init__(self, served: Mapping[ApiKey, Handler]) -> None:
        self._served = served

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.ENVELOPE: self.envelope}

    async def envelope(self, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
        """Answer an Envelope request."""
        del context
        try:
            inner = opened(request, ENVELOPED)
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        response = await answered_here(
            self._served, inner.request, inner.header, inner.principal, inner.client_host
        )
        if says_not_controller(response):
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return sealed(inner.header, response)
