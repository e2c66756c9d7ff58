"""Handlers of requests that the active controller decides as a whole.

The response is the controller's, or has its refusal: the error code, and the text if there is a
field for it. A node that is not the active controller, or loses that role before the change is
committed, answers NOT_CONTROLLER: the change may have happened or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.decisions import RefusedError
from tidelog_protocol.apis import API
from tidelog_protocol.error_answers import error_answer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.schema import StructType
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.network.dispatch import Handler, RequestContext

    Refusal = Callable[[RequestContext, Any, RefusedError | StorageError], Any]

__all__ = ["decided", "refuse_without_time", "refused_everywhere"]


def refuse_without_time(timeout_ms: int) -> None:
    """Raise RefusedError with REQUEST_TIMED_OUT if the client leaves no time. Kafka's controller
    drops such a request unread (KafkaEventQueue)."""
    if timeout_ms <= 0:
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, None)


def refused_whole(
    context: RequestContext, _request: Any, error: RefusedError | StorageError
) -> Any:
    """Return the answer of a request that fails whole."""
    answer: Any = API[context.api_key].response(error_code=error.code)
    if "error_message" in answer.__slots__:
        answer.error_message = error.message
    return answer


def refused_everywhere(
    context: RequestContext, request: Any, error: RefusedError | StorageError
) -> Any:
    """Return the answer of a request that fails whole, with the error beside each partition."""
    answer = error_answer(API[context.api_key], request, error.code)
    answer.error_code = error.code
    _tell(answer, error.message)
    return answer


def _tell(answer: Any, message: str | None) -> None:
    if "error_message" in answer.__slots__:
        answer.error_message = message
    for field in answer.FIELDS:
        if field.kind == "array" and isinstance(field.element, StructType):
            for each in getattr(answer, field.name):
                _tell(each, message)


def decided(
    decide: Callable[[RequestContext, Any], Awaitable[Any]], refused: Refusal = refused_whole
) -> Handler:
    """Return the handler that answers with what `decide` returns, or with its refusal."""

    async def handle(context: RequestContext, request: Any) -> Any:
        try:
            return await decide(context, request)
        except (RefusedError, StorageError) as error:
            return refused(context, request, error)

    return handle
