"""SASL as a client: choose the mechanism on a new connection, then log in.

Brokers do so at each other, and blocking clients of the tools at brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.security.refused import RefusedError
from tidelog_protocol.errors import ErrorCode, error_name
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.security.login import Login
    from tidelog_protocol.schema import Message

    Ask = Callable[[Message, int], Awaitable[Any]]
    """Sends a request of a version on the connection; returns the response."""

__all__ = ["authenticate"]

_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 2


async def authenticate(ask: Ask, mechanism: str, login: Login | None) -> int:
    """Authenticate a new connection; return the milliseconds until its session ends, 0: never.
    RefusedError.

    Without a login it waits for an answer: with TLS 1.3 a server refuses a client's certificate
    after the handshake.
    """
    if login is None:
        await ask(ApiVersionsRequest(), 0)
        return 0
    chosen = await ask(SaslHandshakeRequest(mechanism=mechanism), _HANDSHAKE_VERSION)
    if chosen.error_code:
        raise RefusedError(
            f"{mechanism} is not enabled there, {', '.join(chosen.mechanisms)} is"
            if chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            else error_name(chosen.error_code)
        )
    lifetime_ms = 0

    async def talk(token: bytes) -> bytes:
        nonlocal lifetime_ms
        answer = await ask(SaslAuthenticateRequest(auth_bytes=token), _AUTHENTICATE_VERSION)
        if answer.error_code:
            raise RefusedError(answer.error_message or error_name(answer.error_code))
        lifetime_ms = answer.session_lifetime_ms
        return bytes(answer.auth_bytes)

    await login(talk)
    return lifetime_ms
