"""Kafka's requests, performed by the handlers of one broker without a connection.

Faults on requests do not apply: they wrap what connections use.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from tidelog.control.errors import INVALID, MISSING, REFUSED, ControlError
from tidelog.network.dispatch import Deferred, RequestContext
from tidelog.security.principal import ANONYMOUS
from tidelog_protocol.apis import API
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.server import BrokerServer
    from tidelog_protocol.schema import Message

__all__ = ["check", "perform_request"]

_UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)


class _Caller:
    """Stands for the connection of a request, and keeps its response."""

    client_host = "control"
    client_port = 0
    listener = ""
    principal = ANONYMOUS
    software = ("tidelog", "")
    is_forwarded = False

    def __init__(self) -> None:
        self.response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Fail: the handler has an internal error, which it logged."""
        if not self.response.done():
            text = "the broker could not answer; its log has the reason"
            self.response.set_exception(ControlError(text, status=REFUSED))

    def at_close(self, callback: Callable[[], None]) -> None:
        """There is no connection behind the request."""

    def throttle(self, seconds: float) -> None:
        """There is no connection behind the request."""

    def complete(self, context: RequestContext, response: Any) -> None:
        """Take the response of a parked request."""
        del context
        if not self.response.done():
            self.response.set_result(response)


async def perform_request(server: BrokerServer, request: Message) -> Any:
    """Return the response to a request in its newest version."""
    assert request.API_KEY is not None, "only requests can be performed"
    api = API[request.API_KEY]
    caller = _Caller()
    context = RequestContext(caller, api.key, api.max_version, client_id="tidelog-control")
    response = server.handlers[api.key](context, request)
    if isinstance(response, Deferred):
        return await caller.response
    return await response if inspect.isawaitable(response) else response


def check(error_code: int, message: str | None, fields: Mapping[ErrorCode, str]) -> None:
    """Raise the ControlError of an error in a response. `fields` has the argument at fault of some
    errors."""
    if error_code != ErrorCode.NONE:
        code = ErrorCode(error_code)
        field = fields.get(code)
        status = REFUSED if field is None else INVALID
        if code in _UNKNOWN:
            status = MISSING
        raise ControlError(f"{code.name}: {message or 'refused'}", field=field, status=status)
