"""Wide requests in parts: other connections are served between the parts.

Only requests whose elements are independent are divided: each asks or changes one thing, and has
its own answer. `WIDE` names their arrays and those of the responses that are joined. A request of
at most `PART_MAX` elements goes straight to its handler. `dispatch.py` puts this around
handlers; it has the types of a handler, a request's context and a peer.

Handlers whose elements share something, such as one state of the cluster, divide their own work:
they write it as a generator that yields between parts, and return what `in_turns` makes of it.
"""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    Handler = Callable[[Any, Any], Any]

__all__ = ["PART_MAX", "WIDE", "WIDE_ANSWERS", "Wide", "in_parts", "in_turns"]

PART_MAX = 500
"""Elements in a part: about 50 ms of the API that takes longest."""


class Wide(NamedTuple):
    """The arrays of a request and its response. `inner` are arrays within their elements, divided
    as well; `keys` then say whether an answer goes on with the one before it."""

    asked: str
    answered: str
    inner: tuple[str, str] | None = None
    keys: tuple[str, ...] = ()


_SHARE_STATE = Wide("topics", "results", ("partitions", "partitions"), ("topic_id",))
WIDE = {
    ApiKey.FIND_COORDINATOR: Wide("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: Wide("groups", "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Wide("group_ids", "groups"),
    ApiKey.SHARE_GROUP_DESCRIBE: Wide("group_ids", "groups"),
    ApiKey.STREAMS_GROUP_DESCRIBE: Wide("group_ids", "groups"),
    ApiKey.DESCRIBE_TRANSACTIONS: Wide("transactional_ids", "transaction_states"),
    ApiKey.OFFSET_FETCH: Wide("groups", "groups"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Wide("transactions", "results_by_transaction"),
    ApiKey.WRITE_TXN_MARKERS: Wide("markers", "markers", ("topics", "topics"), ("producer_id",)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Wide(
        "topics", "topics", ("partitions", "partitions"), ("topic",)
    ),
    ApiKey.DESCRIBE_PRODUCERS: Wide(
        "topics", "topics", ("partition_indexes", "partitions"), ("name",)
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _SHARE_STATE,
}

WIDE_ANSWERS = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS})
"""APIs whose responses list all settings of each element: these are encoded in parts as well.
Nothing else has or changes what is in them."""


def in_turns(
    parts: Generator[None, None, Any],
    context: Any,
    finish: Callable[[Any, Any], Any] = lambda context, result: result,
) -> Any:
    """Run work that yields between its parts, and let `finish(context, result)` answer, at once or
    by a deferred.

    Work of one part is answered at once. Else the loop has a turn between parts, and a coroutine
    returns the response; the request is parked meanwhile: it ends with the connection.
    """
    try:
        next(parts)
    except StopIteration as end:
        return finish(context, end.value)
    peer = _PartPeer(context.peer)
    own = peer.context_of(context)

    def hurry() -> None:
        peer.is_hurried = True
        if own.deferred is not None:
            own.deferred.hurry()

    def cancel() -> None:
        peer.response.cancel()
        if own.deferred is not None:
            own.deferred.cancel()

    context.defer(hurry, cancel)
    return _remaining(parts, peer, own, finish)


async def _remaining(
    parts: Generator[None, None, Any],
    peer: _PartPeer,
    own: Any,
    finish: Callable[[Any, Any], Any],
) -> Any:
    is_over = False
    while not is_over:
        await asyncio.sleep(0)
        if peer.response.cancelled():
            raise asyncio.CancelledError
        try:
            next(parts)
        except StopIteration as end:
            is_over, result = True, end.value
    response = finish(own, result)
    if own.deferred is None:
        return response
    if peer.is_hurried:
        own.deferred.hurry()
    return await peer.response


def in_parts(api_key: int, handler: Handler) -> Handler:
    """Return the handler for requests of any width; itself if those of its API stay whole."""
    wide = WIDE.get(api_key)  # type: ignore[call-overload]
    return handler if wide is None else partial(_handle, handler, wide)


def _handle(handler: Handler, wide: Wide, context: Any, request: Any) -> Any:
    if _width(request, wide) <= PART_MAX:
        return handler(context, request)
    return _handle_parts(handler, wide, context, request)


def _width(request: Any, wide: Wide) -> int:
    elements = getattr(request, wide.asked)
    if wide.inner is None or len(elements) > PART_MAX:
        return len(elements)
    return sum(1 + len(getattr(element, wide.inner[0])) for element in elements)


async def _handle_parts(handler: Handler, wide: Wide, context: Any, request: Any) -> Any:
    """Handle the parts one after the other; return the whole response."""
    whole = None
    for elements in _parts(getattr(request, wide.asked), wide):
        part = copy(request)
        setattr(part, wide.asked, elements)
        response = await _answer(handler, context, part)
        if whole is None:
            whole = response
        else:
            _join(getattr(whole, wide.answered), getattr(response, wide.answered), wide)
        await asyncio.sleep(0)
    return whole


def _parts(elements: list[Any], wide: Wide) -> Iterator[list[Any]]:
    """Yield the elements by at most about `PART_MAX`. An element of more is divided; what goes on
    with it is the first of its part."""
    part: list[Any] = []
    width = 0
    for element, size in _pieces(elements, wide):
        if part and width + size > PART_MAX:
            yield part
            part, width = [], 0
        part.append(element)
        width += size
    yield part


def _pieces(elements: list[Any], wide: Wide) -> Iterator[tuple[Any, int]]:
    """Yield each element, or what it is divided into, with the number of elements that it has."""
    for element in elements:
        within = getattr(element, wide.inner[0]) if wide.inner else ()
        if len(within) < PART_MAX:
            yield element, 1 + len(within)
            continue
        assert wide.inner is not None
        for start in range(0, len(within), PART_MAX):
            piece = copy(element)
            setattr(piece, wide.inner[0], within[start : start + PART_MAX])
            yield piece, PART_MAX


def _join(answers: list[Any], more: list[Any], wide: Wide) -> None:
    """Add the answers of the next part."""
    if wide.inner and answers and more:
        last, first = answers[-1], more[0]
        if all(getattr(last, key) == getattr(first, key) for key in wide.keys):
            getattr(last, wide.inner[1]).extend(getattr(first, wide.inner[1]))
            more = more[1:]
    answers.extend(more)


async def _answer(handler: Handler, context: Any, part: Any) -> Any:
    """Return a handler's response, however it gives it."""
    peer = _PartPeer(context.peer)
    own = peer.context_of(context)
    response = handler(own, part)
    if own.deferred is not None:
        return await peer.response
    return await response if response.__class__ is CoroutineType else response


class _PartPeer:
    """The connection as the handler of a part sees it: it takes the response of that part."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer
        self.response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_hurried = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)

    def context_of(self, context: Any) -> Any:
        """Return the context of a part of this request."""
        return type(context)(
            self, context.api_key, context.api_version, context.correlation_id, context.client_id
        )

    def close(self) -> None:
        """Close the connection; the part has no response."""
        self.response.cancel()
        self._peer.close()

    def at_close(self, callback: Callable[[], None]) -> None:
        """Call back once the connection is closed."""
        self._peer.at_close(callback)

    def complete(self, context: Any, response: Any) -> None:
        """Take the response."""
        del context
        if not self.response.done():
            self.response.set_result(response)
