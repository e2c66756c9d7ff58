"""One partition's expiration task on its leader (KIP-405): what remote retention, the log start and
the lineage let go.

The decision is `expiry.plan`'s; the log start is raised before anything is deleted, so that no
reader is sent to what is going.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.remote.shared import delete_segment, name_of
from tidelog_storage.remote.expiry import RemoteRetention, local_only_bytes, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.remote.copying import Copier
    from tidelog.remote.shared import Shared
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import TopicIdPartition

__all__ = ["Expiration"]

log = logging.getLogger("tidelog.remote.expiration")


class Expiration:
    """Runs for one partition; `lag` is what the last pass has decided on and not deleted yet, as
    (bytes, segments)."""

    def __init__(self, shared: Shared, partition: TopicIdPartition, copier: Copier) -> None:
        self.lag = (0, 0)
        self._shared = shared
        self._partition = partition
        self._copier = copier

    async def run(self, held: Log, may_go_on: Callable[[], bool]) -> None:
        """One pass, for as long as it `may_go_on`; raises the first failure."""
        shared, partition = self._shared, self._partition
        self._copier.find_positions()
        local = [(segment.base_offset, segment.size) for segment in held.segments]
        decided = plan(
            shared.metadata.segments(partition),
            held.epochs.entries,
            log_start_offset=held.log_start_offset,
            log_end_offset=held.log_end_offset,
            local_only_bytes=local_only_bytes(local, held.highest_remote_offset),
            retention=RemoteRetention.of(held.config),
            now_ms=shared.clock.wall_ms(),
            copying=self._copier.copying,
        )
        if held.maybe_increment_log_start(decided.new_log_start, "remote segments expired"):
            log.info("%s begins at %d", name_of(partition), decided.new_log_start)
        left = list(decided.deletions)
        try:
            while left and may_go_on():
                self.lag = (sum(segment.size for segment in left), len(left))
                await delete_segment(shared, left[0], shared.pools.expiration)
                del left[0]
        finally:
            self.lag = (sum(segment.size for segment in left), len(left))
