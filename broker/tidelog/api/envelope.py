"""Envelope (API 58): a request that a broker forwards for its client (KIP-590).

Behaviour. Served on the controllers' listeners, to principals with CLUSTER_ACTION if there is an
authorizer. The enclosed request is handled as if its client had sent it here: the authorizer and
the quotas see the client's principal, address and client id. What is not forwarded is refused with
INVALID_REQUEST, and so is an address that is none; what cannot be read is UNSUPPORTED_VERSION
(EnvelopeUtils).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelog.cluster.envelopes import address_of, principal_of
from tidelog.cluster.forwarding import FORWARDED
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.controller import EnvelopeResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.network.dispatch import Deferred, Dispatcher, Handler, RequestContext
    from tidelog.security.principal import Principal
    from tidelog_protocol.messages.controller import EnvelopeRequest
    from tidelog_protocol.schema import Buffer

__all__ = ["EnvelopeApi"]

log = logging.getLogger("tidelog.api.envelope")

HEADER_BYTES_MIN = 10  # key, version, correlation id, no client id


class EnvelopeApi:
    """Hands enclosed requests to the dispatcher of the same listener."""

    def __init__(self, dispatcher: Callable[[], Dispatcher]) -> None:
        self._dispatcher = dispatcher

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handler by API key."""
        return {ApiKey.ENVELOPE: self.envelope}

    def envelope(
        self, context: RequestContext, request: EnvelopeRequest
    ) -> EnvelopeResponse | Deferred:
        """Answer an Envelope request."""
        try:
            principal = principal_of(request)
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        try:
            host = address_of(request)
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        frame = memoryview(request.request_data)
        refusal = _refusal(frame)
        if refusal is not None:
            return EnvelopeResponse(error_code=refusal)
        dispatcher = self._dispatcher()
        try:
            client = _Client(context, principal, host, dispatcher)
            enclosed = dispatcher.dispatch(client, frame)
        except ProtocolError as error:
            log.info("refusing %s:%d: %s", context.client_host, context.client_port, error)
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if enclosed.answer is not None:
            client.answer(enclosed.answer)
        return client.deferred


def _refusal(frame: memoryview) -> ErrorCode | None:
    """Return why a request is not handled, as far as its header tells."""
    api = API.get(int.from_bytes(frame[:2], "big"))
    if api is None or len(frame) < HEADER_BYTES_MIN:
        return ErrorCode.UNSUPPORTED_VERSION
    if api.key not in FORWARDED:
        return ErrorCode.INVALID_REQUEST
    if not api.min_version <= int.from_bytes(frame[2:4], "big") <= api.max_version:
        return ErrorCode.UNSUPPORTED_VERSION
    return None


class _Client:
    """The `Peer` of an enclosed request: the client of the broker that forwards it."""

    def __init__(
        self, context: RequestContext, principal: Principal, host: str, dispatcher: Dispatcher
    ) -> None:
        peer = context.peer
        self._dispatcher = dispatcher
        self.deferred = context.defer()
        self.principal = principal
        self.client_host = host
        self.client_port = 0
        self.listener = peer.listener
        self.software = peer.software
        self.is_forwarded = True
        self.at_close = peer.at_close

    def answer(self, frame: Sequence[Buffer]) -> None:
        """Answer the envelope with a response frame; without one, as Kafka does when a handler
        closes the client's connection."""
        if self.deferred.done or self.deferred.cancelled:
            return
        data = b"".join(frame)[4:]
        self.deferred.complete(
            EnvelopeResponse(response_data=data)
            if data
            else EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        )

    def close(self) -> None:
        """The request failed; the broker's connection stays."""
        self.answer(())

    def throttle(self, seconds: float) -> None:
        """The broker throttles its client by the time in the response."""

    def complete(self, context: RequestContext, response: Any) -> None:
        """Take the response of a parked request."""
        self.answer(self._dispatcher.encode(context, response))
