"""Envelopes: a client's request on its way to the controller, with the client's identity (KIP-590).

Only requests that the controller decides by the client's principal go in one. Kafka:
ForwardingManager, EnvelopeUtils, DefaultKafkaPrincipalBuilder.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.security.principal import Principal
from tidelog_protocol.apis import API
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.frames import (
    RequestHeader,
    decode_client_id,
    decode_response_header,
    request_frame,
    response_frame,
)
from tidelog_protocol.messages.controller import (
    DefaultPrincipalData,
    EnvelopeRequest,
    EnvelopeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from tidelog_protocol.schema import Message

__all__ = ["Enveloped", "enveloped", "opened", "sealed", "unsealed"]

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


def opened(envelope: EnvelopeRequest, expected: Container[int]) -> Enveloped:
    """Take a request out of its envelope; ProtocolError. `expected` has the APIs that may be in
    one."""
    frame = memoryview(envelope.request_data)
    if len(frame) < 8:
        raise ProtocolError("an envelope has no request")
    key = int.from_bytes(frame[:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if key not in expected or not API[key].min_version <= version <= API[key].max_version:
        raise ProtocolError(f"api key {key} version {version} does not go in an envelope")
    api = API[key]
    client_id, position = decode_client_id(frame, flexible=version >= api.flexible_from)
    header = RequestHeader(key, version, int.from_bytes(frame[4:8], "big", signed=True), client_id)
    request = api.request_codec(version).decode_whole(frame, position)
    principal = bytes(envelope.request_principal or b"")
    if int.from_bytes(principal[:2], "big") != PRINCIPAL_VERSION:
        raise ProtocolError("the principal in an envelope is unknown")
    data = codec(DefaultPrincipalData, PRINCIPAL_VERSION).decode(principal, 2)
    try:
        host = str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError:
        raise ProtocolError("the address in an envelope is invalid") from None
    return Enveloped(
        header, request, Principal(data.type, data.name, data.token_authenticated), host
    )


def sealed(header: RequestHeader, response: Message) -> EnvelopeResponse:
    """Put an answer into the envelope's answer."""
    frame = b"".join(response_frame(API[header.api_key], header, response))
    return EnvelopeResponse(response_data=frame[SIZE_BYTES:])


def unsealed(header: RequestHeader, envelope: EnvelopeResponse) -> Any:
    """Take the answer out of the envelope's answer; ProtocolError if there is none."""
    if envelope.error_code or envelope.response_data is None:
        raise ProtocolError(f"the envelope failed: {ErrorCode(envelope.error_code).name}")
    api, frame = API[header.api_key], memoryview(envelope.response_data)
    _, position = decode_response_header(api, header.api_version, frame)
    return api.response_codec(header.api_version).decode(frame, position)


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:  # no address, as in a simulation
        return bytes(4)
