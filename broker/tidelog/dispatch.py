"""From a request frame to its handler, and the contract between handlers and connections.

Owns: the table of what is served, the check of api key and version, decoding and encoding, and the tasks of
handlers that are `async def`. Called by `connection.py` alone; knows nothing of sockets.

A handler is `def handler(context, request)` and ends in one of four ways:

1. it returns the response message: answered in the same wake-up, the fast path;
2. it returns a `Deferred`, got from `context.defer(...)`, and completes it later, once;
3. it returns None: no answer at all (Produce with acks=0);
4. it is `async def` (or returns a coroutine): dispatch runs it as a task and answers what it returns. Later
   requests of that connection wait until then, as they do in Kafka: who creates a topic and pipelines a
   Metadata request behind it sees the topic.

`memoryview`s in a request (records) point into the receive buffer and are valid only until the handler
returns; whoever parks a request copies what it keeps.

An exception that leaves a handler is a bug or a broken invariant: it is logged and closes that connection.
Expected refusals are error codes in the response, which the handler fills in itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    Buffer = bytes | bytearray | memoryview

__all__ = ["Deferred", "Handler", "Peer", "RequestContext"]


class Peer(Protocol):
    """What a request may know of the connection it came in by, and do to it."""

    client_host: str
    client_port: int
    listener_host: str
    listener_port: int
    software: tuple[str, str]

    def close(self) -> None:
        """Close the connection; requests without an answer are cancelled."""
        ...

    def complete(self, context: RequestContext, response: Any) -> None:
        """Answer a parked request. Never raises: the caller is not to blame for this connection."""
        ...


class RequestContext:
    """One request on its way through the broker; also its slot in the connection's order of answers.

    Invariant: `answer` is None until the response is encoded, and never changes after that; the empty
    tuple stands for "answered with nothing" (acks=0).
    """

    __slots__ = (
        "answer",
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "deferred",
        "peer",
    )

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
        self.deferred: Deferred | None = None

    @property
    def client_host(self) -> str:
        """Address of the client, as group members show it."""
        return self.peer.client_host

    @property
    def client_port(self) -> int:
        """Port of the client."""
        return self.peer.client_port

    @property
    def listener_host(self) -> str:
        """The broker's own address on this connection."""
        return self.peer.listener_host

    @property
    def listener_port(self) -> int:
        """The broker's own port on this connection."""
        return self.peer.listener_port

    @property
    def software(self) -> tuple[str, str]:
        """Client software (name, version) told by ApiVersions v3+, else ("unknown", "unknown")."""
        return self.peer.software

    def close(self) -> None:
        """Close the connection after this wake-up, without an answer to this request."""
        self.peer.close()

    def defer(
        self,
        on_hurry: Callable[[], None] | None = None,
        on_cancel: Callable[[], None] | None = None,
    ) -> Deferred:
        """Park this request; the handler returns what it gets here, now or already completed.

        `on_hurry()` is called, once, when another request arrives behind this one, or right after the handler
        if one is waiting already: a parked Fetch then completes with what there is. `on_cancel()` is called
        when the connection is gone before completion: drop timers and watches, do not complete.
        """
        assert self.deferred is None, "a request is parked once"
        self.deferred = Deferred(self, on_hurry, on_cancel)
        return self.deferred


class Deferred:
    """The promise of one answer. Completes exactly once or is cancelled, never both.

    Case a: the handler completes it before it returns: answered in the same wake-up.
    Case b: `complete` later: answered when all earlier requests of the connection are.
    Case c: `fail` later: the connection is closed.
    Case d: the connection goes first: `on_cancel` is called and later completions do nothing.
    """

    __slots__ = ("_context", "_on_cancel", "_on_hurry", "cancelled", "done")

    def __init__(
        self,
        context: RequestContext,
        on_hurry: Callable[[], None] | None,
        on_cancel: Callable[[], None] | None,
    ) -> None:
        self._context = context
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
        self._on_hurry = self._on_cancel = None  # no cycles: these close over the operation
        self._context.peer.complete(self._context, response)

    def fail(self) -> None:
        """Give up after an error of ours: close the connection, as an exception in a handler does."""
        if not self.done and not self.cancelled:
            self._context.peer.close()

    def hurry(self) -> None:
        """Another request waits behind this one (called by the connection)."""
        on_hurry, self._on_hurry = self._on_hurry, None
        if on_hurry is not None and not self.done and not self.cancelled:
            on_hurry()

    def cancel(self) -> None:
        """The connection is gone (called by the connection)."""
        if self.done or self.cancelled:
            return
        self.cancelled = True
        on_cancel, self._on_cancel = self._on_cancel, None
        self._on_hurry = None
        if on_cancel is not None:
            on_cancel()


Handler = Callable[[RequestContext, Any], Any]
"""Returns the response message, a `Deferred`, None, or a coroutine of the response message."""
