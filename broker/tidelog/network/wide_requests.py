"""Wide requests in parts: other connections are served between the parts.

Only requests whose elements are independent are divided: each asks or changes one thing, and has
its own answer. `WIDE` names their arrays and those of the responses that are joined. A request of
at most as many elements as a part has goes straight to its handler. `dispatch.py` puts this around
handlers; it has the types of a handler, a request's context and a peer.

Handlers whose elements share something, such as one state of the cluster, divide their own work:
they write it as a generator that yields between parts, and return what `in_turns` makes of it.

All other requests of more than `WIDE_BYTES` have turns between the steps that they have anyway:
they are decoded, an authorizer is asked, the handler answers, the answer is completed and encoded.
"""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    Handler = Callable[[Any, Any], Any]

__all__ = [
    "IN_ONE_TURN",
    "PART_MAX",
    "TWICE_MAX",
    "WIDE",
    "WIDE_ANSWERS",
    "WIDE_BYTES",
    "Wide",
    "at_once",
    "in_parts",
    "in_turns",
    "part_answer",
    "with_turns",
]

WIDE_BYTES = 8192
"""Requests of up to so many bytes have few elements, and are handled at once."""

IN_ONE_TURN = frozenset(
    {
        *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH),  # they have turns of their own
        ApiKey.JOIN_GROUP,  # it is parked until the other members have come
        *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
        ApiKey.ENVELOPE,  # the request in it has its turns
    }
)
"""APIs whose requests have no turn between their steps, however long they are."""

PART_MAX = 500
"""Elements in a part of most APIs: at most about 30 ms."""
TWICE_MAX = 100
"""So many groups, transactions or configurations are answered as often as named, as in Kafka."""


class Wide(NamedTuple):
    """An array of a request, and that of its response. `inner` are arrays within their elements,
    divided as well unless `is_whole`; then what has the same `keys` in two parts of an answer is
    one element. `part_max` elements are a part, with those within them. With `is_once` an element
    of more than `TWICE_MAX` that says the same as an earlier one is left out: ten thousand times a
    group of thousands of members would fill the memory."""

    asked: str
    answered: str
    keys: tuple[str, ...] = ()
    inner: Wide | None = None
    part_max: int = PART_MAX
    is_once: bool = False
    is_whole: bool = False


_SHARE_STATE = Wide(
    "topics",
    "results",
    ("topic_id",),
    Wide("partitions", "partitions"),
    part_max=100,  # each may be an append
)
_FETCHED = Wide("topics", "topics", ("name", "topic_id"), Wide("partition_indexes", "partitions"))
WIDE: Mapping[ApiKey, tuple[Wide, ...]] = {
    ApiKey.FIND_COORDINATOR: (Wide("coordinator_keys", "coordinators"),),
    ApiKey.DESCRIBE_GROUPS: (Wide("groups", "groups", is_once=True),),
    ApiKey.DELETE_GROUPS: (
        Wide("groups_names", "results", part_max=200, is_once=True),  # each is an append
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Wide("group_ids", "groups", is_once=True),),
    ApiKey.SHARE_GROUP_DESCRIBE: (Wide("group_ids", "groups", is_once=True),),
    ApiKey.STREAMS_GROUP_DESCRIBE: (Wide("group_ids", "groups", is_once=True),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Wide("transactional_ids", "transaction_states", part_max=50, is_once=True),
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        Wide(
            "groups",
            "groups",
            ("group_id", "error_code"),
            Wide("topics", "topics", ("topic_name",), Wide("partitions", "partitions")),
            part_max=100,
            is_once=True,
        ),
    ),
    ApiKey.OFFSET_FETCH: (
        Wide("groups", "groups", ("group_id", "error_code"), _FETCHED, is_once=True),
        _FETCHED._replace(keys=("name",)),  # before version 8
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Wide(
            "transactions",
            "results_by_transaction",
            inner=Wide("topics", "topic_results", inner=Wide("partitions", "results_by_partition")),
            is_whole=True,  # all of a transaction's or none
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        Wide(
            "markers",
            "markers",
            ("producer_id",),
            Wide("topics", "topics", ("name",), Wide("partition_indexes", "partitions")),
            part_max=10,  # each is an append, and the first one to a log waits for the disk
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Wide("topics", "topics", ("topic",), Wide("partitions", "partitions")),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        Wide("topics", "topics", ("name",), Wide("partition_indexes", "partitions")),
    ),
    ApiKey.ELECT_LEADERS: (
        Wide(
            "topic_partitions",
            "replica_election_results",
            ("topic",),
            Wide("partitions", "partition_result"),
            part_max=1000,  # each is a request to the controller
        ),
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (_SHARE_STATE,),
    ApiKey.READ_SHARE_GROUP_STATE: (_SHARE_STATE,),
    ApiKey.WRITE_SHARE_GROUP_STATE: (_SHARE_STATE,),
    ApiKey.DELETE_SHARE_GROUP_STATE: (_SHARE_STATE,),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (_SHARE_STATE,),
}
"""By API, the arrays of which one is divided: the first one that a request has elements in."""
WIDE_ANSWERS = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)
"""APIs whose responses are long, and are encoded in parts as well. Nothing else has or changes what
is in them."""


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
    is_over, result = _went_on(parts)
    if is_over:
        return finish(context, result)
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
    context.took_turns = True
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
        is_over, result = _went_on(parts)
    response = finish(own, result)
    if own.deferred is None:
        return response
    if peer.is_hurried:
        own.deferred.hurry()
    return await peer.response


def at_once(work: Any) -> Any:
    """Return the result of work, a generator if it yields between its parts, without turns."""
    if work.__class__ is not GeneratorType:
        return work
    is_over = False
    while not is_over:
        is_over, result = _went_on(work)
    return result


async def with_turns(work: Any) -> Any:
    """Return the result of work, a generator if it yields between its parts; the loop has a turn
    there."""
    if work.__class__ is not GeneratorType:
        return work
    while True:
        is_over, result = _went_on(work)
        if is_over:
            return result
        await asyncio.sleep(0)


def _went_on(work: Generator[None, None, Any]) -> tuple[bool, Any]:
    """Do the next part of work; return whether it is over, and its result then."""
    try:
        next(work)
    except StopIteration as end:
        return True, end.value
    return False, None


def in_parts(api_key: int, handler: Handler) -> Handler:
    """Return the handler for requests of any width; itself if those of its API have no turns."""
    wide = WIDE.get(api_key)  # type: ignore[call-overload]
    if wide is not None:
        return partial(_handle, handler, wide)
    return handler if api_key in IN_ONE_TURN else partial(_handle_whole, handler)


def _handle_whole(handler: Handler, context: Any, request: Any) -> Any:
    if context.size <= WIDE_BYTES:
        return handler(context, request)
    return _handle_in_steps(handler, context, request)


async def _handle_in_steps(handler: Handler, context: Any, request: Any) -> Any:
    await asyncio.sleep(0)
    response = await part_answer(handler, context, request)
    await asyncio.sleep(0)
    return response


def _handle(handler: Handler, arrays: Sequence[Wide], context: Any, request: Any) -> Any:
    wide = arrays[0]
    for wide in arrays:
        if getattr(request, wide.asked):
            break
    elements: list[Any] = getattr(request, wide.asked) or []
    if wide.is_once and len(elements) > TWICE_MAX:
        elements = _once(elements)
        setattr(request, wide.asked, elements)
    width = 0
    for element in elements:
        width += _size(element, wide)
        if width > wide.part_max:
            return _handle_parts(handler, wide, context, request)
    return _handle_whole(handler, context, request)


def _once(elements: list[Any]) -> list[Any]:
    """Return names once; also groups of which all is asked."""
    if isinstance(elements[0], str):
        return list(dict.fromkeys(elements))
    kept, seen = [], set()
    for element in elements:
        if element.topics is None:
            if element.group_id in seen:
                continue
            seen.add(element.group_id)
        kept.append(element)
    return kept


def _size(element: Any, wide: Wide) -> int:
    """Return the number of elements that an element is, with those within it."""
    inner = wide.inner
    if inner is None:
        return 1
    within = getattr(element, inner.asked) or ()
    if inner.inner is None:
        return 1 + len(within)
    return 1 + sum([_size(each, inner) for each in within])


async def _handle_parts(handler: Handler, wide: Wide, context: Any, request: Any) -> Any:
    """Handle the parts one after the other; return the whole response."""
    context.took_turns = True
    whole = None
    for elements, depth in _parts(getattr(request, wide.asked), wide, wide.part_max):
        part = copy(request)
        setattr(part, wide.asked, elements)
        response = await part_answer(handler, context, part)
        if whole is None:
            whole = response
        else:
            _join(getattr(whole, wide.answered), getattr(response, wide.answered), wide, depth)
        await asyncio.sleep(0)
    return whole


def _parts(elements: Any, wide: Wide, part_max: int) -> Iterator[tuple[list[Any], int]]:
    """Yield the elements by at most about `part_max`, and how deep a part goes on with the one
    before it: 0 if its first element is a new one, 1 if elements of that are new, and so on."""
    part: list[Any] = []
    width = depth = 0
    for element, size, goes_on in _pieces(elements, wide, part_max):
        if part and (goes_on or width + size > part_max):
            yield part, depth
            part, width, depth = [], 0, goes_on
        part.append(element)
        width += size
    if part:
        yield part, depth


def _pieces(elements: Any, wide: Wide, part_max: int) -> Iterator[tuple[Any, int, int]]:
    """Yield each element, or what it is divided into, with the number of elements that it has, and
    how deep it goes on with the piece before it."""
    inner = wide.inner
    for element in elements:
        size = _size(element, wide)
        if inner is None or size <= part_max or wide.is_whole:
            yield element, size, 0
            continue
        within = getattr(element, inner.asked)
        is_first = True
        for few, depth in _parts(within, inner, part_max - 1):
            piece = copy(element)
            setattr(piece, inner.asked, few)
            yield piece, _size(piece, wide), 0 if is_first else depth + 1
            is_first = False


def _join(answers: list[Any], more: list[Any], wide: Wide, depth: int) -> None:
    """Add the answers of the next part, which goes on so deep with the last one."""
    inner = wide.inner
    if depth and inner is not None and answers and more:
        last, first = answers[-1], more[0]
        if all(getattr(last, key) == getattr(first, key) for key in wide.keys):
            within = getattr(last, inner.answered)
            _join(within, getattr(first, inner.answered), inner, depth - 1)
            more = more[1:]
    answers.extend(more)


async def part_answer(handler: Handler, context: Any, part: Any) -> Any:
    """Return a handler's response, however it gives it."""
    peer = _PartPeer(context.peer)
    own = peer.context_of(context)
    response = handler(own, part)
    if response.__class__ is CoroutineType:
        return await response
    return response if own.deferred is None else await peer.response


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
        own = type(context)(
            self, context.api_key, context.api_version, context.correlation_id, context.client_id
        )
        own.size = context.size
        return own

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
