"""Planted bugs of the remote tier that whole clusters find, or logs with dead branches.

`CLUSTER`: by seeds of the mixed workload that have a tier; `BRANCHES`: by the play of
`test_remote_lineage.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidelog.tiered import segments, tier
from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog.tiered.reads import loading, reader
from tidelog.tiered.tasks import aux_state, copying
from tidelog.tiered.tasks.copying import Copier
from tidelog.tiered.tasks.expiration import Expiration
from tidelog_storage.log import Log
from tidelog_storage.remote import chunks, lineage
from tidelog_storage.remote.api import RemoteResourceNotFound, SegmentState
from tidelog_storage.remote.expiry import _Walk
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replication.aux_state import AuxState

    Patch = Callable[..., None]


# -- in clusters -----------------------------------------------------------------------------------


def unfinished_segments_are_read(patch: Patch) -> None:
    """A segment can be read, and counts as copied, as soon as its copy has begun."""
    real = PartitionMetadata._begin
    update = PartitionMetadata._update

    def begin(self: Any, segment: Any) -> bool:
        taken = real(self, segment)
        if taken and segment.segment_id not in self._finished:
            self._finish(segment)
        return taken

    def updated(self: Any, change: Any) -> bool:
        known = self._segments.get(change.segment_id)
        if known is not None and known.segment_id in self._finished:
            if change.state is SegmentState.COPY_SEGMENT_FINISHED:
                self._segments[change.segment_id] = known.updated(change)
                return True
            if known.state is SegmentState.COPY_SEGMENT_STARTED:
                self._hide(known)
        return update(self, change)

    patch(PartitionMetadata, "_begin", begin)
    patch(PartitionMetadata, "_update", updated)


def one_id_for_all_tries(patch: Patch) -> None:
    """A copy that is tried again goes by the id of the first try."""
    real = Copier._copy

    async def copy(self: Any, candidate: Any, term: int) -> None:
        number = candidate.start_offset.to_bytes(16, "big")
        held = self._tools

        class SameIds:
            uuid = staticmethod(lambda: number)
            uniform = held.runtime.rng.uniform

        self._tools = replace(held, runtime=held.runtime._replace(rng=SameIds()))
        try:
            await real(self, candidate, term)
        finally:
            self._tools = held

    patch(Copier, "_copy", copy)


def open_transactions_are_copied(patch: Patch) -> None:
    """What is committed is copied, be it stable or not."""
    real = copying.candidates

    class Decided:
        def __init__(self, held: Any) -> None:
            self._held = held

        def __getattr__(self, name: str) -> Any:
            return getattr(self._held, "high_watermark" if name == "last_stable_offset" else name)

    patch(copying, "candidates", lambda held, *rest: real(Decided(held), *rest))


def aborted_transactions_end_with_their_segment(patch: Patch) -> None:
    """A read of committed records looks for aborted transactions in the segment it reads alone."""

    async def collect(self: Any, segment: Any, _metadata: Any, source: Any) -> Any:
        if not segment.txn_index_empty:
            self._add(segment, await source.indexes(segment))
        return list(self._found)

    patch(reader._Aborted, "collect", collect)


def rotten_bytes_are_served(patch: Patch) -> None:
    """What the store returns is believed."""

    class Whatever:
        def __ne__(self, _other: object) -> bool:
            return False

        __hash__ = None  # type: ignore[assignment]

    patch(chunks, "crc32c", lambda *_: Whatever())


def the_segment_of_the_log_start_goes(patch: Patch) -> None:
    """A segment that begins below the log start is deleted, though it reaches above."""

    def is_below(self: Any, segment: Any) -> bool:
        return bool(
            segment.epochs[-1][0] <= self.epochs[0][0]
            and segment.start_offset < self.log_start_offset
        )

    patch(_Walk, "is_below_log_start", is_below)


def segments_go_before_the_log_start_moves(patch: Patch) -> None:
    """Expiration deletes, and then says so."""
    real = Expiration.run

    async def run(self: Any, held: Any, may_go_on: Any) -> None:
        class Later:
            start = 0

            def __getattr__(self, name: str) -> Any:
                return getattr(held, name)

            def maybe_increment_log_start(self, offset: int, _reason: str) -> bool:
                Later.start = offset
                return False

        await real(self, Later(), may_go_on)
        held.maybe_increment_log_start(Later.start, "remote segments expired")

    patch(Expiration, "run", run)


def the_store_before_the_metadata(patch: Patch) -> None:
    """The objects go first, and who dies then leaves a segment that is nowhere."""

    async def delete(self: Any, segment: Any, pool: Any) -> None:
        await pool.run(self.storage.delete_segment, segment)
        await self.publish(segment, SegmentState.DELETE_SEGMENT_STARTED)
        await self.publish(segment, SegmentState.DELETE_SEGMENT_FINISHED)

    patch(segments.RemoteSegments, "delete", delete)


def the_log_start_stays_when_the_tier_goes(patch: Patch) -> None:
    """A topic that leaves the tier still promises what was remote."""

    def drop_remote_part(self: Any) -> None:
        self.highest_remote_offset = -1

    patch(Log, "drop_remote_part", drop_remote_part)


def out_of_sight_is_out_of_range(patch: Patch) -> None:
    """A store that does not show an object yet is believed that there is none."""

    patch(loading, "LostError", RemoteResourceNotFound)


def files_are_ahead_of_what_they_have(patch: Patch) -> None:
    """A broker that comes back reads on a little behind what its file has."""
    real = TopicBasedMetadata._restore

    async def restore(self: Any, tracked: Any) -> None:
        await real(self, tracked)
        if tracked.next_offset:
            tracked.next_offset += 3

    patch(TopicBasedMetadata, "_restore", restore)


# -- dead branches ---------------------------------------------------------------------------------


def reads_run_into_dead_branches(patch: Patch) -> None:
    """A read ends where its segment does, as Kafka's."""
    patch(reader, "_end_in", lambda segment, _epoch, _log: segment.end_offset + 1)


def segments_are_found_by_offset_alone(patch: Patch) -> None:
    """Of those that have an offset the first is read, whoever wrote it."""

    def segment_for(self: Any, _epoch: int, offset: int) -> Any:
        for segment_id in self._finished:
            segment = self._segments[segment_id]
            if segment.start_offset <= offset <= segment.end_offset:
                return segment
        return None

    def part_end(segment: Any, epoch: int) -> int:
        ends = [end for own, _, end in lineage.epoch_parts(segment) if own == epoch]
        return ends[0] if ends else segment.end_offset  # else it would fail without a read

    patch(PartitionMetadata, "segment_for", segment_for)
    patch(lineage, "part_end", part_end)
    patch(reader, "part_end", part_end)


def copies_of_dead_branches_count(patch: Patch) -> None:
    """A new leader goes on behind all that was ever copied in its epochs."""

    def copied_up_to(epochs: Any, _end: int, highest_offset: Any) -> OffsetAndEpoch:
        for epoch, _ in reversed(epochs):
            highest = highest_offset(epoch)
            if highest is not None:
                return OffsetAndEpoch(highest, epoch)
        return OffsetAndEpoch(-1, -1)

    patch(segments, "copied_up_to", copied_up_to)
    patch(segments, "kept_up_to", lambda copied, *_: copied)


def followers_begin_with_one_epoch(patch: Patch) -> None:
    """Behind the remote tier everything is of the newest leader epoch."""
    real = aux_state.fetch_aux_state

    async def fetch(*args: Any) -> AuxState:
        state = await real(*args)
        return state._replace(epochs=[(state.epochs[-1][0], 0)])

    patch(tier, "fetch_aux_state", fetch)


def _named(*functions: Callable[[Patch], None]) -> dict[str, Callable[[Patch], None]]:
    return {function.__name__.replace("_", "-"): function for function in functions}


CLUSTER = _named(
    unfinished_segments_are_read,
    one_id_for_all_tries,
    open_transactions_are_copied,
    aborted_transactions_end_with_their_segment,
    rotten_bytes_are_served,
    the_segment_of_the_log_start_goes,
    segments_go_before_the_log_start_moves,
    the_store_before_the_metadata,
    the_log_start_stays_when_the_tier_goes,
    out_of_sight_is_out_of_range,
    files_are_ahead_of_what_they_have,
)
BRANCHES = _named(
    reads_run_into_dead_branches,
    segments_are_found_by_offset_alone,
    copies_of_dead_branches_count,
    followers_begin_with_one_epoch,
)
