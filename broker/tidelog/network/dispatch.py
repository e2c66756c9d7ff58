"""From a request frame to its handler, and the contract between handlers and connections.

It owns the table of served APIs, the check of API key and version, decoding and encoding, and the
tasks of `async def` handlers. Only `connection.py` calls it; it does not know sockets.

A handler is `def handler(context, request)` and ends in one of four ways:

1. it returns the response message: answered in the same wake-up, the fast path. Hot APIs may return
   the encoded body instead, without errors: a list of buffers (`plain_answers`);
2. it returns a `Deferred` of `context.defer(...)` and completes it later, once;
   `context.answer_with(work, respond)` does so with the result of a coordinator's work;
3. it returns None: no answer at all (Produce with acks=0);
4. it is `async def` (or returns a coroutine): dispatch runs it as a task and answers what it
   returns. Later requests of that connection wait until then, as in Kafka: a Metadata request
   pipelined behind a CreateTopics sees the topic.

`memoryview`s in a request (records) point into the receive buffer and are valid only until the
handler returns; a handler that parks a request copies what it keeps.

An exception that leaves a handler is a bug or a broken invariant: it is logged and closes that
connection. Expected errors are error codes in the response, set by the handler.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.awaiting import resume
from tidelog.network.late_handlers import LateHandler
from tidelog.network.request_limits import elements_max
from tidelog.network.wide_requests import (
    WIDE_ANSWERS,
    WIDE_BYTES,
    at_once,
    in_parts,
    with_turns,
)
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.frames import (
    decode_client_id,
    framed,
    response_head,
)
from tidelog_protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from tidelog.security.principal import Principal
    from tidelog_protocol.apis import Api
    from tidelog_protocol.schema import Buffer

__all__ = ["Deferred", "Dispatcher", "Handler", "Observer", "Peer", "RequestContext", "Throttle"]

log = logging.getLogger("tidelog.network.dispatch")

R = TypeVar("R")
T = TypeVar("T")

_HEAD = struct.Struct(
    ">hhi"
)  # api key, api version, correlation id: the same in every header version
_COROUTINE_CODE = 0x80  # inspect.CO_COROUTINE


class Peer(Protocol):
    """A request's view of its connection."""

    client_host: str
    client_port: int
    listener: str
    principal: Principal
    software: tuple[str, str]
    is_forwarded: bool
    """Whether a broker sends the request for its client, which came by one of its listeners."""

    def close(self) -> None:
        """Close the connection; requests without an answer are cancelled."""
        ...

    def at_close(self, callback: Callable[[], None]) -> None:
        """Call back once the connection is closed; never if there is none behind the request."""
        ...

    def throttle(self, seconds: float) -> None:
        """Read no further request for this long; responses go out (KIP-219)."""
        ...

    def complete(self, context: RequestContext, response: Any) -> None:
        """Answer a parked request. Never raises, because the caller is not responsible for this
        connection."""
        ...


class RequestContext:
    """One request in progress, and its slot in the order of the connection's responses.

    Invariant: `answer` is None until the response is encoded, and never changes after that; the
    empty tuple stands for "answered with nothing" (acks=0).
    """

    __slots__ = (
        "answer",
        "api_key",
        "api_version",
        "began_s",
        "body",
        "client_id",
        "correlation_id",
        "deferred",
        "is_follower",
        "merge",
        "parked",
        "peer",
        "size",
        "took_s",
        "took_turns",
    )

    took_s: float  # of the handler, only while clients may be throttled

    def __init__(
        self,
        peer: Peer,
        api_key: int,
        api_version: int,
        correlation_id: int = 0,
        client_id: str | None = None,
    ) -> None:
        self.peer = peer
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.answer: Sequence[Buffer] | None = None
        self.body: list[Buffer] | None = None  # of the response, if it was encoded in turns
        self.deferred: Deferred | None = None
        self.size = 0  # of the frame
        self.parked = 0  # size of the request, once its handler has returned without a response
        self.began_s: float | None = None  # when its handler began, while requests are observed
        self.took_turns = False  # its response may be long, however short the request is
        # What a guard adds to a late response: returns it, or a generator that does, in turns.
        self.merge: Callable[[Any], Any] | None = None
        self.is_follower = False  # a follower's Fetch, while requests are observed

    @property
    def client_host(self) -> str:
        """Address of the client, as group members show it."""
        return self.peer.client_host

    @property
    def client_port(self) -> int:
        """Port of the client."""
        return self.peer.client_port

    @property
    def listener(self) -> str:
        """Name of the connection's listener, empty for the broker's own requests."""
        return self.peer.listener

    @property
    def principal(self) -> Principal:
        """What the client is authenticated as."""
        return self.peer.principal

    @property
    def software(self) -> tuple[str, str]:
        """Client software (name, version) from ApiVersions v3+, else ("unknown", "unknown")."""
        return self.peer.software

    def close(self) -> None:
        """Close the connection after this wake-up, without an answer to this request."""
        self.peer.close()

    def defer(
        self,
        on_hurry: Callable[[], None] | None = None,
        on_cancel: Callable[[], None] | None = None,
    ) -> Deferred:
        """Park this request; the handler returns the result, whether completed already or not.

        `on_hurry()` is called, once, when another request arrives behind this one, or right after
        the handler if one waits already: a parked Fetch then completes with what it has.
        `on_cancel()` is called if the connection closes before completion: drop timers and watches,
        do not complete.
        """
        assert self.deferred is None, "a request is parked once"
        self.deferred = Deferred(self, on_hurry, on_cancel)
        return self.deferred

    def answer_with(self, work: Coroutine[Any, Any, T], respond: Callable[[T], R]) -> R | Deferred:
        """Answer with the result of work for `awaiting.drive`, as `respond` makes a response of it:
        at once if the work never waits. It goes on if the connection closes."""
        try:
            step = work.send(None)
        except StopIteration as end:
            return respond(end.value)
        deferred = self.defer()
        resume(work, step, lambda result: deferred.complete(respond(result)))
        return deferred


class Deferred:
    """The promise of one response. It completes exactly once or is cancelled, never both.

    Case a: the handler completes it before it returns: answered in the same wake-up.
    Case b: `complete` later: answered when all earlier requests of the connection are.
    Case c: `fail` later: the connection is closed.
    Case d: the connection closes first: `on_cancel` is called and later completions do nothing.
    """

    __slots__ = ("_context", "_on_cancel", "_on_hurry", "cancelled", "done")

    def __init__(
        self,
        context: RequestContext,
        on_hurry: Callable[[], None] | None,
        on_cancel: Callable[[], None] | None,
    ) -> None:
        self._context: RequestContext | None = context
        self._on_hurry = on_hurry
        self._on_cancel = on_cancel
        self.done = False
        self.cancelled = False

    def complete(self, response: Any) -> None:
        """Answer the request (None: with nothing). AssertionError the second time."""
        if self.cancelled:
            return
        assert not self.done, "a deferred answer completes exactly once"
        self.done = True
        # Break the cycle with the operation, so that a context and its records are freed without
        # the garbage collector.
        self._on_hurry = self._on_cancel = None
        context, self._context = self._context, None
        assert context is not None
        context.peer.complete(context, response)

    def fail(self) -> None:
        """Close the connection after an internal error."""
        if self._context is not None:
            self._context.peer.close()

    def hurry(self) -> None:
        """Another request waits behind this one (called by the connection)."""
        on_hurry, self._on_hurry = self._on_hurry, None
        if on_hurry is not None and not self.done and not self.cancelled:
            on_hurry()

    def cancel(self) -> None:
        """Cancel because the connection closed (called by the connection)."""
        if self.done or self.cancelled:
            return
        self.cancelled = True
        on_cancel, self._on_cancel = self._on_cancel, None
        self._on_hurry = self._context = None
        if on_cancel is not None:
            on_cancel()


Handler = Callable[[RequestContext, Any], Any]
"""Returns the response message or its body, a `Deferred`, None, or a coroutine of the message."""


class Route:
    """One version of one API, ready to be served."""

    __slots__ = (
        "codec",
        "copies",
        "elements_max",
        "flexible",
        "handler",
        "is_wide",
        "response_codec",
        "response_head",
    )

    def __init__(self, api: Api, api_version: int, handler: Handler) -> None:
        self.handler = handler
        self.flexible = api_version >= api.flexible_from
        self.elements_max = elements_max(api.key)
        self.codec = api.request_codec(api_version)  # replaces its `decode` when compiled
        self.response_codec = api.response_codec(api_version)
        self.response_head = response_head(api, api_version)
        self.is_wide = api.key in WIDE_ANSWERS
        # The receive buffer is reused before an `async def` handler runs its first line.
        code = getattr(handler, "__code__", None)
        self.copies = bool(code is not None and code.co_flags & _COROUTINE_CODE)

    def encode(self, response: Any) -> list[Buffer]:
        """Encode the response's body."""
        try:
            return self.response_codec.encode_parts(response)
        except struct.error as error:
            return self.encode_cut(response, error)

    def encode_cut(self, response: Any, error: struct.error) -> list[Buffer]:
        """Encode the response's body, without what is too large for its field, such as quotes of a
        request: it is cut, with an error code."""
        from tidelog_protocol.fitting import fit  # noqa: PLC0415 - seldom needed

        log.warning("%s: the response is too large and was cut: %s", type(response).__name__, error)
        fit(response)
        return self.response_codec.encode_parts(response)

    async def encode_in_turns(self, response: Any) -> list[Buffer]:
        """Encode a wide response's body; the loop has turns meanwhile."""
        turns = self.response_codec.encode_in_turns(response)
        while True:
            try:
                next(turns)
            except StopIteration as end:
                body: list[Buffer] = end.value
                return body
            except struct.error:
                return self.encode(response)
            await asyncio.sleep(0)


class Observer(Protocol):
    """Sees the requests of a broker end."""

    def wrap(self, api_key: int, handler: Handler) -> Handler:
        """Return the handler, with `began_s` set, and `answered` called with what it returns."""
        ...

    def answered(self, context: RequestContext, response: Any) -> None:
        """Take a response: a message, an encoded body without errors, or None for none."""
        ...


class Throttle(Protocol):
    """Charges clients for their requests, and throttles those above their quotas."""

    def wrap(self, api_key: int, handler: Handler) -> Handler:
        """Return the handler as its requests are charged, with `took_s` set; `charge` has done it
        for responses that it returns."""
        ...

    def charge(self, context: RequestContext, response: Any) -> Any:
        """Return the response to send in the place of this one, of a parked request."""
        ...


class Dispatcher:
    """All handlers of a broker by api key, and the tasks of those that are coroutines."""

    def __init__(self, handlers: Mapping[ApiKey, Handler]) -> None:
        self._handlers = dict(handlers)
        self._routes: dict[int, Route] = {}  # by api key << 16 | version, compiled at first use
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, Any]] = {}
        self._wrap: Callable[[ApiKey, Handler], Handler] | None = None
        self._guard: Callable[[ApiKey, Handler], Handler] | None = None
        self._observer: Observer | None = None
        self._throttle: Throttle | None = None

    def throttle(self, throttle: Throttle | None) -> None:
        """Let clients be throttled from now on; nothing is paid while it is None."""
        if throttle is not self._throttle:
            self._throttle = throttle
            self._routes.clear()

    def observe(self, observer: Observer | None) -> None:
        """Show this observer all responses from now on; nothing is paid while it is None."""
        if observer is not self._observer:
            self._observer = observer
            self._routes.clear()

    def intercept(self, wrap: Callable[[ApiKey, Handler], Handler] | None) -> None:
        """Serve requests by `wrap(api key, handler)` from now on; by the handlers if it is None.

        A handler that `wrap` returns as it is costs nothing more. Another one may return a
        coroutine and keep the request: it gets its own copy.
        """
        self._wrap = wrap
        self._routes.clear()

    def guard(self, wrap: Callable[[ApiKey, Handler], Handler]) -> None:
        """Serve requests by `wrap(api key, handler)` from now on, which asks an authorizer first.
        It returns in the same wake-up what the handler does, or another response; it sets `merge`
        to add to a response that comes later."""
        self._guard = wrap
        self._routes.clear()

    @property
    def served(self) -> list[ApiKey]:
        """The keys of its handlers."""
        return list(self._handlers)

    @property
    def has_running(self) -> bool:
        """Whether a handler that is a coroutine has not ended."""
        return bool(self._tasks)

    def dispatch(self, peer: Peer, frame: Buffer) -> RequestContext:
        """Handle one request frame.

        The returned context has its response, or is parked (`deferred`), or has a task.
        ProtocolError: close the client without a response. Any other exception is an internal
        error.
        """
        try:
            api_key, api_version, correlation_id = _HEAD.unpack_from(frame)
        except struct.error:
            raise ProtocolError(f"a request of {len(frame)} bytes has no header") from None
        route = self._routes.get(api_key << 16 | api_version)
        if route is None:
            route = self._route(api_key, api_version)
            if route is None:
                return self._unknown_api_versions(peer, correlation_id)
        if route.copies:
            frame = memoryview(bytearray(frame))  # an append writes offsets into its batches
        client_id, position = decode_client_id(frame, flexible=route.flexible)
        context = RequestContext(peer, api_key, api_version, correlation_id, client_id)
        context.size = len(frame)
        request = route.codec.decode(frame, position, route.elements_max)
        response = route.handler(context, request)
        if response.__class__ is Deferred:
            assert response is context.deferred
        elif response is None:
            context.answer = ()
        elif response.__class__ is CoroutineType:
            self._run(context, response, route)
        else:
            if response.__class__ is not list:
                try:  # as `encode`, without its call: this is the fast path
                    response = route.response_codec.encode_parts(response)
                except struct.error as error:
                    response = route.encode_cut(response, error)
            context.answer = framed(route.response_head, correlation_id, response)
        return context

    def encodes_in_turns(self, context: RequestContext, response: Any) -> bool:
        """Encode the response of a parked request in turns of the loop if it is long, and complete
        the request then."""
        if not context.took_turns or context.body is not None or not isinstance(response, Message):
            return False
        route = self._route_of(context)

        async def answer() -> Any:
            return response

        self._run(context, answer(), route)
        return True

    def encode(self, context: RequestContext, response: Any) -> Sequence[Buffer]:
        """Encode the response frame of a parked request."""
        body = context.body
        if body is None:
            response = self._finished(context, response)
            if response is None:
                return ()
        route = self._route_of(context)
        if body is None:
            body = response if response.__class__ is list else route.encode(response)
        return framed(route.response_head, context.correlation_id, body)

    def _route_of(self, context: RequestContext) -> Route:
        """Return the route of a request that was served. Routes are dropped when handlers change,
        also while a request is parked."""
        key, version = context.api_key, context.api_version
        route = self._routes.get(key << 16 | version) or self._route(key, version)
        assert route is not None, "a request that was served has one"
        return route

    def _finished(self, context: RequestContext, response: Any) -> Any:
        """Return what is sent in the place of a handler's late response."""
        if context.merge is not None and response is not None:
            response = at_once(context.merge(response))
        if self._throttle is not None:
            response = self._throttle.charge(context, response)
        if self._observer is not None:
            self._observer.answered(context, response)
        return response

    def _route(self, api_key: int, api_version: int) -> Route | None:
        """Find and cache the route of a version; None for an unknown version of ApiVersions."""
        handler = self._handlers.get(api_key)  # type: ignore[call-overload]
        api = API.get(api_key)
        if handler is None or api is None:
            raise ProtocolError(f"api key {api_key} is not served")
        if not api.min_version <= api_version <= api.max_version:
            if api_key == ApiKey.API_VERSIONS:
                return None
            raise ProtocolError(f"{api.name} version {api_version} is not served")
        if isinstance(handler, LateHandler):
            handler = handler.built()
        handler = in_parts(api_key, handler)
        route = Route(api, api_version, handler)
        if self._wrap is not None:
            route.handler = self._wrap(ApiKey(api_key), handler)
            route.copies |= route.handler is not handler
        if self._guard is not None:
            route.handler = self._guard(ApiKey(api_key), route.handler)
        if self._observer is not None:
            route.handler = self._observer.wrap(api_key, route.handler)
        if self._throttle is not None:
            route.handler = self._throttle.wrap(api_key, route.handler)
        self._routes[api_key << 16 | api_version] = route
        return route

    def _unknown_api_versions(self, peer: Peer, correlation_id: int) -> RequestContext:
        """Answer in version 0, whatever the rest of the request looks like (KIP-511)."""
        context = RequestContext(peer, ApiKey.API_VERSIONS, 0, correlation_id)
        response = self._handlers[ApiKey.API_VERSIONS](context, None)
        context.answer = self.encode(context, response)
        return context

    def _run(
        self, context: RequestContext, coroutine: Coroutine[Any, Any, Any], route: Route
    ) -> None:
        name = (
            f"{API[context.api_key].name} of {context.client_host}:{context.client_port} "
            f"#{context.correlation_id}"
        )
        task = asyncio.get_running_loop().create_task(
            self._answer(context, coroutine, route), name=name
        )
        self._tasks[task] = coroutine
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).close()  # the coroutine has not begun if the task was cancelled first

    async def _answer(
        self, context: RequestContext, coroutine: Coroutine[Any, Any, Any], route: Route
    ) -> None:
        """Run one coroutine handler. It continues after its client disconnects, as in Kafka."""
        try:
            response = await coroutine
            is_wide = route.is_wide or context.size > WIDE_BYTES or context.took_turns
            if is_wide and response is not None and response.__class__ is not list:
                if context.merge is not None:
                    response = await with_turns(context.merge(response))
                    context.merge = None
                response = self._finished(context, response)
                await asyncio.sleep(0)
                context.body = await route.encode_in_turns(response)
        except asyncio.CancelledError:
            context.peer.close()
            raise
        except ProtocolError as error:
            log.info("closing %s:%d: %s", context.client_host, context.client_port, error)
            context.peer.close()
            return
        except Exception:
            log.exception("closing %s:%d: request failed", context.client_host, context.client_port)
            context.peer.close()
            return
        context.peer.complete(context, response)

    async def stop(self) -> None:
        """Cancel the coroutine handlers and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
