"""Producer ids for all rooms of a broker (Kafka's RPCProducerIdManager).

Ids come in blocks that the controller records in the metadata log, so that no id is assigned twice
in the life of the cluster. One block is requested at a time; other callers wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ProducerIds"]

_log = logging.getLogger(__name__)


class ProducerIds:
    """Hands out producer ids; `_left` are the unused ids of a durable block."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        """`allocate` asks the controller for a block; OSError or StorageError on failure."""
        self._allocate = allocate
        self._left = range(0)
        self._allocating = asyncio.Lock()
        self._ordered: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether `take` would fail: call `refill` first."""
        return not self._left

    def take(self) -> int:
        """Return an unused id. As in Kafka, StorageError COORDINATOR_LOAD_IN_PROGRESS if none is
        left: a block is requested then, and the caller retries."""
        if not self._left:
            if self._ordered is None or self._ordered.done():
                self._ordered = asyncio.get_running_loop().create_task(self.refill())
            raise StorageError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids")
        producer_id, self._left = self._left[0], self._left[1:]
        return producer_id

    def close(self) -> None:
        """Stop waiting for a block."""
        if self._ordered is not None:
            self._ordered.cancel()

    async def refill(self) -> None:
        """Ensure that there is an id, unless the controller refuses: then `take` raises."""
        async with self._allocating:
            if self._left:  # another request may have brought the block while this one waited
                return
            try:
                self._left = await self._allocate()
            except (OSError, StorageError) as error:
                _log.error("no block of producer ids: %s", error)
