"""Puts the guards of an authorizer before the handlers of a dispatcher.

A guard looks at a request before its handler (Kafka: the checks in KafkaApis and ControllerApis).
It returns None if the handler may answer all of it; an `Answer` to send in the handler's place; or
a function that completes the handler's response, for a request of which the guard has taken a part
away. Both may be generator functions, which yield between parts of thousands of names. Super users
pass unseen. On the controller's listener so do brokers, principals with CLUSTER_ACTION, with what
they ask for themselves: they have checked it. What they forward for clients comes in Envelopes, and
its caller is the client.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidelog.network.dispatch import Deferred
from tidelog.network.wide_requests import (
    IN_ONE_TURN,
    WIDE_BYTES,
    at_once,
    part_answer,
    with_turns,
)
from tidelog.security.acls import Operation, ResourceType
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.error_answers import add_answers, error_answer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.naming import is_topics, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.security.authorizer import Authorizer, Caller
    from tidelog_protocol.apis import Api

    Merge = Callable[[Any], Any]
    Verdict: TypeAlias = "Answer | Merge | None"
    Verdicts: TypeAlias = "Generator[None, None, Verdict]"
    Guard: TypeAlias = "Callable[[Call], Verdict | Verdicts]"

__all__ = ["ASKED_AT_ONCE", "Answer", "Call", "Guards", "divided"]

T = TypeVar("T")

ASKED_AT_ONCE = 250
"""Names in a part: the authorizer may be asked for each operation on each."""

_DROPPED_WITHOUT_TIME = frozenset({ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS})
"""Kafka's controller times out whole, with what is denied."""
_ABSENT = ("base_offset", "committed_offset", "low_watermark")


class Answer:
    """A response in the place of the handler's. A long one is made when it is asked for: the loop
    has had a turn since the guard looked."""

    __slots__ = ("_make", "_response")

    def __init__(self, response: Any = None, *, make: Callable[[], Any] | None = None) -> None:
        self._response = response
        self._make = make

    @property
    def response(self) -> Any:
        """The response."""
        if self._make is not None:
            self._response, self._make = self._make(), None
        return self._response


class Call:
    """One request as a guard sees it. A guard that takes a part away replaces `request`."""

    __slots__ = ("api", "caller", "context", "image", "request")

    def __init__(
        self, api: Api, caller: Caller, context: RequestContext, request: Any, image: ClusterImage
    ) -> None:
        self.api = api
        self.caller = caller
        self.context = context
        self.request = request
        self.image = image

    @property
    def version(self) -> int:
        """The version of the request."""
        return self.context.api_version

    def topic(self, operation: int, name: str, *, logs: bool = True) -> bool:
        """Return whether the caller may do this to a topic."""
        return self.caller.allows(operation, ResourceType.TOPIC, name, logs=logs)

    def group(self, operation: int, group_id: str, *, logs: bool = True) -> bool:
        """Return whether the caller may do this to a group."""
        return self.caller.allows(operation, ResourceType.GROUP, group_id, logs=logs)

    def transaction(self, operation: int, transactional_id: str) -> bool:
        """Return whether the caller may do this to a transactional id."""
        return self.caller.allows(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def name_of(self, topic: Any) -> str:
        """Return the name of a topic that has one, or an id; empty for an unknown id."""
        return topic_of(topic, self.image.topic_names)

    def denied(self, operation: int, topics: Iterable[Any]) -> Generator[None, None, set[str]]:
        """Return the names of the topics to which the caller may not do this; yield between
        parts."""
        allows = self.caller.allows
        denied = set()
        for number, topic in enumerate(topics, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            name = self.name_of(topic)
            if name and not allows(operation, ResourceType.TOPIC, name):
                denied.add(name)
        return denied

    def allowed(
        self, operation: int, topics: Iterable[Any], *, asks_always: bool = False
    ) -> Verdicts:
        """Take away the topics to which the caller may not do this: `denied` and `without`."""
        denied = yield from self.denied(operation, topics)
        return (yield from self.without(denied, asks_always=asks_always))

    def refuse(self, code: ErrorCode, message: str | None = None) -> Answer:
        """Return the answer with an error for all that the request names."""
        return Answer(make=partial(self._errors, self.request, code, message))

    def without(self, denied: Collection[str], *, asks_always: bool = False) -> Verdicts:
        """Take these topics away from the request, and put them into the response with
        TOPIC_AUTHORIZATION_FAILED; yield between parts. The handler is not asked if nothing is
        left, unless `asks_always`."""
        if not denied:
            return None
        name = next(field.name for field in self.request.FIELDS if is_topics(field))
        left, gone = yield from divided(
            getattr(self.request, name), lambda topic: self.name_of(topic) not in denied
        )
        if left and self.api.key in _DROPPED_WITHOUT_TIME and self.request.timeout_ms <= 0:
            return None
        refused = _copied(self.request, {name: gone})
        self.narrow(**{name: left})
        errors = partial(self._errors, refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not left and not asks_always:
            return Answer(make=errors)

        def merge(response: Any) -> Generator[None, None, Any]:
            if not getattr(response, "error_code", 0):
                more = errors()
                yield
                add_answers(response, more)
            return response

        return merge

    def narrow(self, **values: Any) -> None:
        """Replace the request by a copy with these values: the caller's part of it."""
        self.request = _copied(self.request, values)

    def _errors(self, request: Any, code: ErrorCode, message: str | None = None) -> Any:
        response = error_answer(self.api, request, code)
        if message is not None and hasattr(response, "error_message"):
            response.error_message = message
        _clear(response)
        return response


def _copied(struct: Any, values: Mapping[str, Any]) -> Any:
    own = {field.name: getattr(struct, field.name) for field in struct.FIELDS}
    return type(struct)(**{**own, **values})


def _clear(struct: Any) -> None:
    """Set the numbers that stand beside an error to -1, as Kafka does."""
    for name, is_absent in _cleared(struct.__class__):
        if is_absent:
            setattr(struct, name, -1)
        else:
            for each in getattr(struct, name) or ():
                _clear(each)


@cache
def _cleared(table: Any) -> tuple[tuple[str, bool], ...]:
    """Return the fields of such numbers, and the arrays in which there are some."""
    found = []
    for field in table.FIELDS:
        if field.name in _ABSENT:
            found.append((field.name, True))
        elif field.kind == "array" and isinstance(field.element, type) and _cleared(field.element):
            found.append((field.name, False))
    return tuple(found)


def divided(
    asked: Iterable[T], allows: Callable[[T], bool]
) -> Generator[None, None, tuple[list[T], list[T]]]:
    """Return what is allowed of what is asked for, and the rest; yield between parts."""
    allowed: list[T] = []
    denied: list[T] = []
    for number, each in enumerate(asked, 1):
        if number % ASKED_AT_ONCE == 0:
            yield
        (allowed if allows(each) else denied).append(each)
    return allowed, denied


class Guards:
    """The guards of one listener's dispatcher."""

    def __init__(
        self,
        authorizer: Authorizer,
        image: Callable[[], ClusterImage],
        guards: Mapping[ApiKey, Guard | None],
        *,
        trusts_brokers: bool = False,
    ) -> None:
        """`guards` has an entry for each API, None for those that are free. `trusts_brokers`: the
        listener is the controller's."""
        self._authorizer = authorizer
        self._image = image
        self._guards = guards
        self._trusts_brokers = trusts_brokers

    def wrap(self, key: ApiKey, handler: Handler) -> Handler:
        """Return the handler behind its guard; itself if the API is free."""
        guard = self._guards[key]
        if guard is None:
            return handler
        api, image = API[key], self._image
        caller_of, trusts_brokers = self._authorizer.caller, self._trusts_brokers

        def serve(context: RequestContext, request: Any) -> Any:
            peer = context.peer
            caller = caller_of(peer.principal, peer.client_host)
            if caller.is_super or (
                trusts_brokers and caller.allows_cluster(Operation.CLUSTER_ACTION, logs=False)
            ):
                return handler(context, request)
            call = Call(api, caller, context, request, image())
            if context.size > WIDE_BYTES and key not in IN_ONE_TURN:
                return _serve_in_turns(call, guard, handler)
            verdict = at_once(guard(call))
            if verdict is None:
                return handler(context, request)
            if isinstance(verdict, Answer):
                return _sent(context, request, verdict.response)
            return _completed(api, context, call.request, handler, verdict)

        return serve


def _sent(context: RequestContext, request: Any, response: Any) -> Any:
    """Return the response. A producer that waits for none learns of an error by the end of its
    connection."""
    if getattr(request, "acks", -1) == 0:
        context.close()
        return None
    return response


async def _serve_in_turns(call: Call, guard: Guard, handler: Handler) -> Any:
    """Serve a wide request: the loop has turns between the guard, the handler and what the guard
    adds to its response."""
    verdict = await with_turns(guard(call))
    await asyncio.sleep(0)
    if isinstance(verdict, Answer):
        return verdict.response
    response = await part_answer(handler, call.context, call.request)
    if verdict is None or response is None:
        return response
    await asyncio.sleep(0)
    return await with_turns(verdict(response))


def _completed(
    api: Api, context: RequestContext, request: Any, handler: Handler, merge: Callable[[Any], Any]
) -> Any:
    """Ask the handler, and complete its response, now or when it comes."""

    def complete(response: Any) -> Any:
        if response.__class__ is list:  # a body that is encoded already
            codec = api.response_codec(context.api_version)
            response = codec.decode(memoryview(b"".join(response)), 0)
        return merge(response)

    context.merge = complete
    response = handler(context, request)
    if response.__class__ is Deferred or response.__class__ is CoroutineType:
        return response  # completed when it is encoded
    return _sent(context, request, None if response is None else at_once(complete(response)))
