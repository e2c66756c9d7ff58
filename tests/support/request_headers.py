"""Reading the header of a request frame; the broker reads it in place (`network/dispatch.py`)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog_protocol.apis import API
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.frames import RequestHeader, decode_client_id

if TYPE_CHECKING:
    from tidelog_protocol.schema import Buffer


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read a request's header; the body starts at the position given beside it.

    The fixed fields are the same in every header version, so the header of an API or version that
    is not served can be read too; the caller decides whether to answer. ProtocolError if the header
    is truncated.
    """
    try:
        api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
    except struct.error as error:
        raise ProtocolError("request header: truncated") from error
    api = API.get(api_key)
    flexible = api is not None and api_version >= api.flexible_from
    client_id, position = decode_client_id(frame, flexible=flexible)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position
