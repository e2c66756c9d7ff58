"""One partition's expiration task on its leader (KIP-405): what remote retention, the log start and
the lineage let go.

The decision is `expiry.plan`'s; the log start is raised before anything is deleted, so that no
reader is sent to what is going.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.tiered.shared import delete_segment, name_of
from tidelog_storage.remote.expiry import RemoteRetention, local_only_bytes, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.tiered.copying import Copier
    from tidelog.tiered.shared import Shared
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import TopicIdPartition

__all__ = ["Expiration"]

log = logging.getLogger("tidelog.tiered.expiration")


class Expiration:
    """Runs for one partition; `lag` is what the last pass has decided on and not deleted yet, as
    (bytes, segments).

    `planning_ms` is how long that pass took to find out sizes, `percents` the whole log and its
    local part beside their limits, 0 for unlimited ones (KIP-1257); None before the first pass.
    """

    def __init__(self, shared: Shared, partition: TopicIdPartition, copier: Copier) -> None:
        self.lag = (0, 0)
        self.planning_ms = 0
        self.percents: tuple[int, int] | None = None
        self._shared = shared
        self._partition = partition
        self._copier = copier

    async def run(self, held: Log, may_go_on: Callable[[], bool]) -> None:
        """One pass, for as long as it `may_go_on`; raises the first failure."""
        shared, partition = self._shared, self._partition
        if self._copier.is_replacing:
            return  # retention by size would let go too much
        self._copier.find_positions()
        self._copier.follow_log_start()
        begun_s = shared.clock.monotonic()
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
        self.planning_ms = round(1000 * (shared.clock.monotonic() - begun_s))
        self.percents = (
            _percent(decided.size_bytes, held.config.retention_bytes),
            _percent(held.size_in_bytes, held.config.effective_local_retention_bytes),
        )
        if decided.new_log_start > held.high_watermark:
            # A leader that does not know yet how much is committed: what was copied by the one
            # before it is, so it will hear of it.
            return
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


def _percent(size: int, limit: int) -> int:
    return 100 * size // limit if limit > 0 else 0
