"""Producer ids for whoever needs one (Kafka's RPCProducerIdManager).

Ids come in blocks that the controller notes in the metadata log, so that no id is given twice over
the life of the cluster; one block is asked for at a time, and who comes meanwhile waits for it.
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
    """`_left` are ids of a durable block, not given out yet."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        """`allocate` asks the controller for a block; OSError or StorageError if it can't."""
        self._allocate = allocate
        self._left = range(0)
        self._allocating = asyncio.Lock()
        self._ordered: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether `take` would refuse: `refill` first."""
        return not self._left

    def take(self) -> int:
        """An id nobody ever had. StorageError COORDINATOR_LOAD_IN_PROGRESS, as Kafka's, if there is
        none in memory: a block is on its way then, whoever needs it asks again."""
        if not self._left:
            if self._ordered is None or self._ordered.done():
                self._ordered = asyncio.get_running_loop().create_task(self.refill())
            raise StorageError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids")
        producer_id, self._left = self._left[0], self._left[1:]
        return producer_id

    def close(self) -> None:
        """Wait for no block any more."""
        if self._ordered is not None:
            self._ordered.cancel()

    async def refill(self) -> None:
        """Have at least one id, unless the controller refuses: then `take` will say so."""
        async with self._allocating:
            if self._left:  # another request may have brought the block while this one waited
                return
            try:
                self._left = await self._allocate()
            except (OSError, StorageError) as error:
                _log.error("no block of producer ids: %s", error)
