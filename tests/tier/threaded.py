"""A tiered cluster in a loop of its own thread, for clients that are programs: a test calls them
and blocks, and the brokers go on.

    with Threaded(store, brokers=3) as it:
        it.run(it.cluster.create("a"))
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tier.harness import TieredCluster

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Self

T = TypeVar("T")

CALL_S_MAX = 250.0


class Threaded:
    """The cluster is touched on its own loop alone: by `run`."""

    def __init__(self, store: dict[str, str], **options: Any) -> None:
        """As `TieredCluster` has them."""
        self.cluster = TieredCluster(store, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="brokers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self.cluster.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.run(self.cluster.__aexit__(*error))
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S_MAX)
