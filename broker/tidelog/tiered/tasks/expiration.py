"""One partition's expiration task on its leader (KIP-405): deletes remote segments by retention,
log start and lineage.

`expiry.plan` selects the segments. The log start is raised before the first deletion, so that reads
do not reach a segment that is being deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.tiered.segments import name_of
from tidelog_storage.remote.expiry import LogExtent, RemoteRetention, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.tiered.pools import Pool
    from tidelog.tiered.segments import RemoteSegments
    from tidelog.tiered.tasks.copying import Copier
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import TopicIdPartition

__all__ = ["Expiration"]

log = logging.getLogger("tidelog.tiered.expiration")


class Expiration:
    """Runs for one partition. `lag` is (bytes, segments) that the last pass selected and has not
    deleted yet.

    `planning_ms` is how long the last pass took to select them. `percents` are the sizes of the
    whole log and of its local part in percent of their limits, 0 for unlimited ones (KIP-1257);
    None before the first pass.
    """

    def __init__(
        self, segments: RemoteSegments, pool: Pool, partition: TopicIdPartition, copier: Copier
    ) -> None:
        self.lag = (0, 0)
        self.planning_ms = 0
        self.percents: tuple[int, int] | None = None
        self._segments = segments
        self._pool = pool
        self._partition = partition
        self._copier = copier

    async def run(self, held: Log, may_go_on: Callable[[], bool]) -> None:
        """Run one pass while it `may_go_on`; raises the first failure."""
        segments, partition = self._segments, self._partition
        if self._copier.is_replacing:
            return  # retention by size would count one segment twice
        self._copier.find_positions()
        self._copier.follow_log_start()
        begun_s = segments.clock.monotonic()
        decided = plan(
            segments.metadata.segments(partition),
            LogExtent.of(held),
            RemoteRetention.of(held.config),
            now_ms=segments.clock.wall_ms(),
            copying=self._copier.copying,
        )
        self.planning_ms = round(1000 * (segments.clock.monotonic() - begun_s))
        self.percents = (
            _percent(decided.size_bytes, held.config.retention_bytes),
            _percent(held.size_in_bytes, held.config.effective_local_retention_bytes),
        )
        if decided.new_log_start > held.high_watermark:
            # A new leader does not know the committed offset yet. Everything copied is committed,
            # so its high watermark will reach it.
            return
        if held.maybe_increment_log_start(decided.new_log_start, "remote segments expired"):
            log.info("%s begins at %d", name_of(partition), decided.new_log_start)
        left = list(decided.deletions)
        try:
            while left and may_go_on():
                self.lag = (sum(segment.size for segment in left), len(left))
                await segments.delete(left[0], self._pool)
                del left[0]
        finally:
            self.lag = (sum(segment.size for segment in left), len(left))


def _percent(size: int, limit: int) -> int:
    return 100 * size // limit if limit > 0 else 0
