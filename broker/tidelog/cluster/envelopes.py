"""Envelopes: a client's request on its way to the controller, with the client's identity (KIP-590).

Kafka: ForwardingManager, EnvelopeUtils, DefaultKafkaPrincipalBuilder.
"""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

from tidelog.security.principal import Principal
from tidelog_protocol.apis import API
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError, error_name
from tidelog_protocol.frames import (
    RequestHeader,
    decode_response_header,
    request_frame,
)
from tidelog_protocol.messages.controller import (
    DefaultPrincipalData,
    EnvelopeRequest,
    EnvelopeResponse,
)

__all__ = ["Enveloped", "address_of", "enveloped", "principal_of", "unsealed"]

SIZE_BYTES = 4  # before a frame
PRINCIPAL_VERSION = 0


class Enveloped(NamedTuple):
    """What is in an envelope."""

    header: RequestHeader
    request: Any
    principal: Principal
    client_host: str


def enveloped(content: Enveloped) -> EnvelopeRequest:
    """Put a client's request into an envelope."""
    header, request, principal, client_host = content
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.is_of_token
    )
    encoded = codec(DefaultPrincipalData, PRINCIPAL_VERSION).encode(data)
    return EnvelopeRequest(
        request_data=b"".join(request_frame(API[header.api_key], header, request))[SIZE_BYTES:],
        request_principal=PRINCIPAL_VERSION.to_bytes(2, "big") + encoded,
        client_host_address=_packed(client_host),
    )


def principal_of(envelope: EnvelopeRequest) -> Principal:
    """Return the client's principal; ProtocolError."""
    encoded = bytes(envelope.request_principal or b"")
    if len(encoded) < 2 or int.from_bytes(encoded[:2], "big") != PRINCIPAL_VERSION:
        raise ProtocolError("the principal in an envelope is unknown")
    data = codec(DefaultPrincipalData, PRINCIPAL_VERSION).decode(encoded, 2)
    return Principal(data.type, data.name, data.token_authenticated)


def address_of(envelope: EnvelopeRequest) -> str:
    """Return the client's address; ProtocolError."""
    try:
        return str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError:
        raise ProtocolError("the address in an envelope is invalid") from None


def unsealed(header: RequestHeader, envelope: EnvelopeResponse) -> Any:
    """Take the answer out of the envelope's answer; ProtocolError if there is none."""
    if envelope.error_code or envelope.response_data is None:
        raise ProtocolError(f"the envelope failed: {error_name(envelope.error_code)}")
    api, frame = API[header.api_key], memoryview(envelope.response_data)
    _, position = decode_response_header(api, header.api_version, frame)
    return api.response_codec(header.api_version).decode(frame, position)


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:  # no address, as in a simulation
        return bytes(4)
