"""InitProducerId (API 22): ids for idempotent producers.

Behaviour. A producer without a transactional id gets a new id with epoch 0, whatever id it held
before, as in Kafka. Ids come in blocks that the controller notes in the metadata log, so that no id
is given twice over the life of the cluster; one block is asked for at a time, and who comes
meanwhile waits for it.

Transactions are not served yet: a transactional id is answered UNSUPPORTED_VERSION once the request
itself is found good. Clients take that as fatal and say so at `init_transactions()`;
NOT_COORDINATOR and its like would have them try again for a minute, an authorization error would
send people to look for ACLs.

Version notes. 2: flexible. 3 (KIP-360): the producer's present id and epoch. 4 (KIP-588):
PRODUCER_FENCED. 5 (KIP-890): TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txns import InitProducerIdResponse
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tidelog.config.broker import BrokerConfig
    from tidelog.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.txns import InitProducerIdRequest

__all__ = ["ProducerIdsApi"]

_log = logging.getLogger(__name__)

_NONE = -1  # no producer id, no epoch


class ProducerIdsApi:
    """Handler of InitProducerId. `_left` are ids of a durable block, not given out yet."""

    def __init__(
        self, allocate_producer_ids: Callable[[], Awaitable[range]], config: BrokerConfig
    ) -> None:
        self._allocate = allocate_producer_ids
        self._timeout_max_ms = config.transaction_max_timeout_ms
        self._left = range(0)
        self._allocating = asyncio.Lock()

    def handlers(self) -> dict[ApiKey, Handler]:
        """What this object serves."""
        return {ApiKey.INIT_PRODUCER_ID: self.init_producer_id}

    def init_producer_id(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | Coroutine[None, None, InitProducerIdResponse]:
        """A new producer id, at once if the block has one left."""
        del context
        error = self._refusal(request)
        if error is not None:
            return _refused(error)
        return self._take() if self._left else self._take_later()

    def _refusal(self, request: InitProducerIdRequest) -> ErrorCode | None:
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            return ErrorCode.INVALID_REQUEST
        if request.transactional_id is None:
            return None
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.transaction_timeout_ms <= self._timeout_max_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.UNSUPPORTED_VERSION

    def _take(self) -> InitProducerIdResponse:
        producer_id, self._left = self._left[0], self._left[1:]
        return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)

    async def _take_later(self) -> InitProducerIdResponse:
        async with self._allocating:
            if not self._left:  # another request may have brought the block while this one waited
                try:
                    self._left = await self._allocate()
                except (OSError, StorageError) as error:
                    _log.error("no block of producer ids: %s", error)
                    return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # as Kafka: try again
            return self._take()


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=_NONE, producer_epoch=_NONE)
