"""Tables of SASL (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from tidelog_protocol.schema import Message, array, bytes_, int16, int64, string

__all__ = [
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
]


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    """Choose a mechanism; from v1 on its tokens are in requests."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """The mechanisms that the listener has."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    """A client's token."""

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    """The server's token; from v1 on how long the session lasts."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+")
