"""The authentication of one connection of a SASL listener: what may come when, and the answers.

Until it is complete, a connection's requests come here instead of the dispatcher; afterwards too if
the session has an end, since a client may authenticate again before it (KIP-368). What the table
does not have closes the connection. Kafka: SaslServerAuthenticator, KafkaChannel.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.network.dispatch import Peer, RequestContext
from tidelog.security.principal import USER, Principal
from tidelog.security.refused import RefusedError
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.error_answers import error_answer
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.frames import decode_client_id, framed, response_head
from tidelog_protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.network.dispatch import Dispatcher
    from tidelog.security.guard import Guard
    from tidelog.security.sasl import ServerExchange
    from tidelog_protocol.schema import Buffer, Message

__all__ = ["Authentication"]

log = logging.getLogger("tidelog.network.authentication")

REAUTHENTICATION_S_MIN = 1.0  # a session is not authenticated again sooner


class State(Enum):
    """How far an authentication is."""

    INITIAL = auto()
    VERSIONS_REFUSED = auto()  # ApiVersions came in an unknown version, and may come again
    HANDSHAKE = auto()  # after ApiVersions
    AUTHENTICATE = auto()  # SaslAuthenticate requests
    TOKENS = auto()  # bare tokens, after SaslHandshake v0
    COMPLETE = auto()
    FAILED = auto()  # the answer is delayed, then the connection closes


_NEXT: Mapping[tuple[State, int], State] = {
    (State.INITIAL, ApiKey.API_VERSIONS): State.HANDSHAKE,
    (State.INITIAL, ApiKey.SASL_HANDSHAKE): State.AUTHENTICATE,
    (State.VERSIONS_REFUSED, ApiKey.API_VERSIONS): State.HANDSHAKE,
    (State.VERSIONS_REFUSED, ApiKey.SASL_HANDSHAKE): State.AUTHENTICATE,
    (State.HANDSHAKE, ApiKey.SASL_HANDSHAKE): State.AUTHENTICATE,
    (State.AUTHENTICATE, ApiKey.SASL_AUTHENTICATE): State.COMPLETE,
    (State.COMPLETE, ApiKey.SASL_HANDSHAKE): State.AUTHENTICATE,
}
"""What may come, and the state after its success. A token that needs an answer stays."""


class SaslPeer(Peer, Protocol):
    """The connection."""

    def authenticated(self, *, ends: bool) -> None:
        """Take requests of any size from now on; come back with each if the session ends."""
        ...


class Authentication:
    """The state of one connection."""

    def __init__(self, guard: Guard, dispatcher: Callable[[], Dispatcher]) -> None:
        self._guard = guard
        self._dispatcher = dispatcher
        self._state = State.INITIAL
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        self._before: tuple[str, Principal] | None = None  # of a session that goes on
        self._expires_s: float | None = None  # of the loop
        self._again_s = 0.0  # when it was last authenticated again

    def dispatch(self, peer: SaslPeer, frame: Buffer) -> RequestContext:
        """Handle one frame, as `Dispatcher.dispatch`."""
        if self._state is State.TOKENS:
            return self._bare_token(peer, frame)
        key, version, correlation_id = _head(frame)
        if self._state is State.COMPLETE and not self._begins_again(key):
            if self._expires_s is not None and _now_s() > self._expires_s:
                raise ProtocolError("the session has expired without a new authentication")
            return self._dispatcher().dispatch(peer, frame)
        api = API.get(key)
        after = _NEXT.get((self._state, key))
        if key == ApiKey.API_VERSIONS and after is not None and api is not None:
            known = api.min_version <= version <= api.max_version
            self._state = after if known else State.VERSIONS_REFUSED
            return self._dispatcher().dispatch(peer, frame)
        if api is None or not api.min_version <= version <= api.max_version:
            raise ProtocolError(f"api key {key} version {version} is not served")
        client_id, position = decode_client_id(frame, flexible=version >= api.flexible_from)
        context = RequestContext(peer, key, version, correlation_id, client_id)
        if after is None:
            return self._out_of_turn(context, position, frame)
        request = api.request_codec(version).decode(frame, position)
        if key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(context, request.mechanism)
        return self._authenticate(context, bytes(request.auth_bytes))

    def _begins_again(self, key: int) -> bool:
        """Return whether a request begins a new authentication, at most one a second."""
        if key != ApiKey.SASL_HANDSHAKE or self._expires_s is None:
            return False
        now_s = _now_s()
        if self._again_s and now_s - self._again_s < REAUTHENTICATION_S_MIN:
            return False
        self._again_s = now_s
        return True

    def _out_of_turn(self, context: RequestContext, position: int, frame: Buffer) -> RequestContext:
        """Answer what comes in the place of a token with its own error, then close."""
        api = API[context.api_key]
        if self._state is not State.AUTHENTICATE:
            raise ProtocolError(f"{api.name} comes before the client is authenticated")
        request = api.request_codec(context.api_version).decode(frame, position)
        return self._fail(
            context,
            error_answer(api, request, ErrorCode.ILLEGAL_SASL_STATE),
            f"Unexpected Kafka request of type {api.name} during SASL authentication.",
        )

    def _handshake(self, context: RequestContext, mechanism: str) -> RequestContext:
        begin = self._guard.exchanges.get(mechanism)
        mechanisms = list(self._guard.exchanges)
        if begin is None:
            refused = None  # as Kafka, which closes a session that cannot go on
            if self._state is not State.COMPLETE:
                refused = SaslHandshakeResponse(
                    error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
                )
            return self._fail(context, refused, f"Unsupported SASL mechanism {mechanism}")
        if self._state is State.COMPLETE:
            self._before = (self._mechanism, context.peer.principal)
        self._mechanism, self._exchange = mechanism, begin()
        self._state = State.AUTHENTICATE if context.api_version else State.TOKENS
        return _answered(context, SaslHandshakeResponse(mechanisms=mechanisms))

    def _authenticate(self, context: RequestContext, token: bytes) -> RequestContext:
        if self._before is not None and self._before[0] != self._mechanism:
            return self._fail(  # without an answer, as in Kafka
                context,
                None,
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._before[0]}'",
            )
        try:
            answer = self._evaluate(context.peer, token)
        except RefusedError as error:
            shown = error.shown or (
                f"Authentication failed during {self._act} due to invalid credentials with SASL"
                f" mechanism {self._mechanism}"
            )
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=shown
            )
            return self._fail(context, refused, str(error))
        lifetime_ms = self._completed(context.peer)
        return _answered(
            context, SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        )

    def _bare_token(self, peer: SaslPeer, frame: Buffer) -> RequestContext:
        context = RequestContext(peer, ApiKey.SASL_AUTHENTICATE, 0)
        try:
            answer = self._evaluate(peer, bytes(frame))
        except RefusedError as error:
            return self._fail(context, None, str(error))
        self._completed(peer)
        context.answer = (len(answer).to_bytes(4, "big") + answer,)
        return context

    @property
    def _act(self) -> str:
        return "authentication" if self._before is None else "re-authentication"

    def _evaluate(self, peer: Peer, token: bytes) -> bytes:
        """Take a token; RefusedError."""
        exchange = self._exchange
        assert exchange is not None, "a mechanism comes first"
        answer = exchange.evaluate(token)
        if exchange.user is not None and self._before is not None:
            old, new = self._before[1], Principal(USER, exchange.user)
            if str(old) != str(new):
                raise RefusedError.openly(
                    f"Cannot change principals during re-authentication from {old.type}.{old.name}:"
                    f" {new.type}.{new.name}"
                )
        del peer
        return answer

    def _completed(self, peer: Any) -> int:
        """If the exchange is complete, begin the session; return its milliseconds, 0 for no end."""
        exchange = self._exchange
        assert exchange is not None
        if exchange.user is None:
            return 0
        lifetime_ms = self._guard.lifetime_ms(self._mechanism, exchange.expires_ms)
        self._expires_s = None if lifetime_ms is None else _now_s() + lifetime_ms / 1000
        self._state, self._exchange, self._before = State.COMPLETE, None, None
        peer.principal = Principal(USER, exchange.user, exchange.is_of_token)
        peer.authenticated(ends=lifetime_ms is not None)
        return lifetime_ms or 0

    def _fail(self, context: RequestContext, response: Message | None, why: str) -> RequestContext:
        """Answer after a delay, which makes guesses slow, and close."""
        peer = context.peer
        log.info("failed %s of %s:%d: %s", self._act, context.client_host, context.client_port, why)
        self._state = State.FAILED
        parts = None if response is None else _encoded(context, response)

        def end() -> None:
            if parts is not None:
                peer.complete(context, parts)
            peer.close()

        asyncio.get_running_loop().call_later(self._guard.failure_delay_s, end)
        return context


def _head(frame: Buffer) -> tuple[int, int, int]:
    if len(frame) < 8:
        raise ProtocolError(f"a request of {len(frame)} bytes has no header")
    view = memoryview(frame)
    return (
        int.from_bytes(view[:2], "big", signed=True),
        int.from_bytes(view[2:4], "big", signed=True),
        int.from_bytes(view[4:8], "big", signed=True),
    )


def _encoded(context: RequestContext, response: Message) -> list[Buffer]:
    return API[context.api_key].response_codec(context.api_version).encode_parts(response)


def _answered(context: RequestContext, response: Message) -> RequestContext:
    head = response_head(API[context.api_key], context.api_version)
    context.answer = framed(head, context.correlation_id, _encoded(context, response))
    return context


def _now_s() -> float:
    return asyncio.get_running_loop().time()
