"""Send requests to the active controller, wherever it is, and forward those of clients.

`ControllerDoor` sends a request: a call if this node leads the metadata quorum, else a request to
the leader's controller listener, which has the same handlers. `Forwarding` sends requests of
clients (topics, settings, elections ...) to it, and retries while there is no active controller or
it changes, like Kafka's forwarding manager. It answers only when this broker's image has the
result, so that a client that creates a topic finds it on the same broker.

Clients' requests are forwarded unchanged, in their version, in an Envelope with the client's
principal (KIP-590). A request whose answer was lost may take effect twice, as with any client's
retry.
"""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from tidelog.network.dispatch import Deferred, RequestContext
from tidelog.network.observer import error_codes
from tidelog.network.peers import PeerChannel, PeerError
from tidelog.security.principal import ANONYMOUS
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.frames import RequestHeader
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.dispatch import Handler
    from tidelog.seams import Clock
    from tidelog_protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
    from tidelog_protocol.messages.admin import CreateTopicsRequest, CreateTopicsResponse
    from tidelog_protocol.schema import Message

__all__ = ["FORWARDED", "ControllerDoor", "Forwarding"]

FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""What clients ask of any broker and only the active controller can answer."""

RETRY_S = 0.02  # between attempts to find an active controller
CATCH_UP_S_MAX = 2.0  # how long an answer waits for this broker's image


class ControllerDoor:
    """Sends requests to the active controller that this node knows."""

    def __init__(
        self,
        metadata: MetadataLog,
        handlers: Mapping[ApiKey, Handler],
        channels: Mapping[int, PeerChannel],
    ) -> None:
        """`handlers` are those of this node's own controller listener, `channels` lead to those of
        the other controllers."""
        self._metadata = metadata
        self._handlers = handlers
        self._channels = channels

    async def ask(
        self,
        message: Message,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
        client: RequestContext | None = None,
    ) -> Any:
        """Send once, in the name of a client if its context is given; PeerError if there is no
        active controller or it does not answer.

        The response may say NOT_CONTROLLER, when the controller changed meanwhile.
        """
        assert message.API_KEY is not None
        key = ApiKey(message.API_KEY)
        version = API[key].max_version if version is None else version
        metadata = self._metadata
        if metadata.is_leader:
            return await self._ask_here(key, message, version, client)
        channel = self._channels.get(metadata.leader_id)
        if channel is None:
            raise PeerError("no active controller is known")
        if client is None:
            return await channel.ask(message, version, timeout_s=timeout_s)
        from tidelog.cluster import envelopes  # noqa: PLC0415 - a lone broker has none

        header = RequestHeader(key, version, client.correlation_id, client.client_id)
        content = envelopes.Enveloped(header, message, client.principal, client.client_host)
        answer = await channel.ask(envelopes.enveloped(content), timeout_s=timeout_s)
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            return answer
        try:
            return envelopes.unsealed(header, answer)
        except ProtocolError as error:
            raise PeerError(str(error)) from error

    async def _ask_here(
        self, key: ApiKey, message: Message, version: int, client: RequestContext | None
    ) -> Any:
        peer = _Here(client)
        client_id = None if client is None else client.client_id
        context = RequestContext(peer, key, version, client_id=client_id)
        result = self._handlers[key](context, message)
        if result.__class__ is CoroutineType:
            result = await result
        elif result.__class__ is Deferred:
            result = await peer.answer()
        return result

    def close(self) -> None:
        """Close all connections; pending requests get PeerError."""
        for channel in self._channels.values():
            channel.close()


class _Here:
    """The `Peer` of a request that this node sends to itself, for a client or for its own sake."""

    client_port = 0
    listener = ""
    software = ("tidelog", "")
    is_forwarded = True

    def __init__(self, client: RequestContext | None) -> None:
        self.client_host = "127.0.0.1" if client is None else client.client_host
        self.principal = ANONYMOUS if client is None else client.principal
        self._response: Any = None
        self._waiting: asyncio.Future[Any] | None = None
        self._done = False

    async def answer(self) -> Any:
        if not self._done:
            self._waiting = asyncio.get_running_loop().create_future()
            return await self._waiting
        return self._response

    def at_close(self, callback: Callable[[], None]) -> None:
        """There is no connection behind the request."""

    def throttle(self, seconds: float) -> None:
        """There is no connection behind the request."""

    def complete(self, context: RequestContext, response: Any) -> None:
        self._done, self._response = True, response
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(response)

    def close(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(PeerError("the request failed"))


def _check_creations(request: CreateAclsRequest) -> None:
    from tidelog.security.acls import check_creations  # noqa: PLC0415 - seldom needed

    check_creations(request)


def _check_filters(request: DeleteAclsRequest) -> None:
    from tidelog.security.acls import check_filters  # noqa: PLC0415 - seldom needed

    check_filters(request)


_CHECKS: dict[ApiKey, Callable[[Any], None]] = {
    ApiKey.CREATE_ACLS: _check_creations,
    ApiKey.DELETE_ACLS: _check_filters,
}
"""Raise ProtocolError before a request is forwarded, so that the client's connection alone is
closed."""


class Forwarding:
    """Forwards requests to the active controller and waits for this broker's image."""

    def __init__(
        self,
        door: ControllerDoor,
        metadata: MetadataLog,
        clock: Clock,
        *,
        catch_up: Callable[[], Coroutine[Any, Any, None]],
        request_timeout_ms: int,
    ) -> None:
        """`catch_up` returns when this broker's image has all that is committed when it is
        called."""
        self._door = door
        self._metadata = metadata
        self._clock = clock
        self._timeout_s = request_timeout_ms / 1000
        self._wait_for_image = catch_up
        self._closed = False

    def wrap(self, handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
        """Return the same handlers, with those of `FORWARDED` forwarded to the active
        controller."""
        return {
            key: self._forwarded(handler, _CHECKS.get(key)) if key in FORWARDED else handler
            for key, handler in handlers.items()
        }

    def _forwarded(self, handler: Handler, check: Callable[[Any], None] | None) -> Handler:
        async def forward(context: RequestContext, request: Any) -> Any:
            if check is not None:
                check(request)
            try:
                return await self.carry(request, context.api_version, context)
            except PeerError:
                # No controller answered in time: the local handler answers NOT_CONTROLLER in the
                # form of its API, which makes clients retry.
                answer = handler(context, request)
                return await answer if answer.__class__ is CoroutineType else answer

        return forward

    async def carry(
        self, request: Message, version: int | None = None, client: RequestContext | None = None
    ) -> Any:
        """Retry until an active controller has answered; return when this broker's image has the
        result. `client` is the context of the client's request.

        PeerError when that took longer than `request.timeout.ms`.
        """
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            try:
                response = await self._door.ask(
                    request,
                    version,
                    timeout_s=max(deadline - self._clock.monotonic(), 0.001),
                    client=client,
                )
            except PeerError:
                if self._closed or self._clock.monotonic() >= deadline:
                    raise
            else:
                if not says_not_controller(response) or self._clock.monotonic() >= deadline:
                    break
            await asyncio.sleep(RETRY_S)
        if not self._metadata.is_leader:
            await self._catch_up()
        return response

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create topics at the active controller; StorageError if there is none."""
        response: CreateTopicsResponse = await self._carried(request)
        return response

    async def allocate_producer_ids(self, node_id: int, broker_epoch: int) -> range:
        """Return a block of producer ids for this broker (KIP-730); StorageError if there is
        none."""
        from tidelog_protocol.messages.controller import (  # noqa: PLC0415 - when first needed
            AllocateProducerIdsRequest,
        )

        response = await self._carried(
            AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=broker_epoch)
        )
        if response.error_code:
            raise StorageError(ErrorCode(response.error_code))
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    async def _carried(self, request: Message) -> Any:
        try:
            return await self.carry(request)
        except PeerError as error:
            raise StorageError(ErrorCode.NOT_CONTROLLER, str(error)) from error

    def close(self) -> None:
        """Stop retrying."""
        self._closed = True

    async def _catch_up(self) -> None:
        """Wait, up to a limit, until everything committed so far is in this broker's image."""
        try:
            async with asyncio.timeout(CATCH_UP_S_MAX):
                await self._wait_for_image()
        except (PeerError, StorageError, TimeoutError):
            return  # metadata may be a little old, as in Kafka


def says_not_controller(response: Any) -> bool:
    """Return whether a response has NOT_CONTROLLER, at its top or for one of its items."""
    return ErrorCode.NOT_CONTROLLER in error_codes(response)
