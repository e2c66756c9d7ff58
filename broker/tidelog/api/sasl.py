"""SaslHandshake (17) and SaslAuthenticate (36) where nothing waits for them.

Behaviour. Until a client of a SASL listener is authenticated, `network/authentication.py` takes its
requests. What comes here is of another listener, or comes too late: ILLEGAL_SASL_STATE
(KafkaApis.handleSaslHandshakeRequest, handleSaslAuthenticateRequest).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

__all__ = ["SaslApi"]


class SaslApi:
    """Refuses what comes outside of an authentication."""

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.SASL_HANDSHAKE: self.handshake,
            ApiKey.SASL_AUTHENTICATE: self.authenticate,
        }

    def handshake(
        self, context: RequestContext, request: SaslHandshakeRequest
    ) -> SaslHandshakeResponse:
        """Answer a SaslHandshake request."""
        del context, request
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def authenticate(
        self, context: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse:
        """Answer a SaslAuthenticate request."""
        del context, request
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
