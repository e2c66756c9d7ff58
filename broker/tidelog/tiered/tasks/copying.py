"""One partition's copy task on its leader (KIP-405): selects segments, and copies each.

`Copier` belongs to one `TieredPartition`, which runs it when a segment may be ready. State changes
on the loop; calls to the store run on the copier pool with frozen values. When leadership ends, a
copy in progress is finished, and published if it succeeds; no other copy begins.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.replication.purgatory import DelayedOperation
from tidelog.tiered.segments import name_of
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentState,
)
from tidelog_storage.remote.checks import check_segment
from tidelog_storage.remote.copier import candidates
from tidelog_storage.remote.lineage import find_log_start
from tidelog_storage.remote.proof import copy_and_look, look
from tidelog_storage.transaction_proof import TransactionProof, unproven_segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replication.partition import Partition
    from tidelog.replication.purgatory import Purgatory
    from tidelog.seams import Runtime
    from tidelog.tiered.pools import Pool
    from tidelog.tiered.quotas import RateQuota
    from tidelog.tiered.segments import RemoteSegments
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, TopicIdPartition
    from tidelog_storage.remote.copier import CopyCandidate
    from tidelog_storage.remote.proof import Copied

__all__ = ["Copier", "Copying", "LogCutError"]

log = logging.getLogger("tidelog.tiered.copy")

QUOTA_WAIT_S = 1.0
LOOK_PAUSES_S = (0.1, 0.4, 1.6)
TAKE_BACK_S, TAKE_BACK_S_MAX = 0.1, 30.0
WATCH_MS = 3_600_000


class LogCutError(RemoteStorageError):
    """The log was truncated while a segment was copied: the copy may be incomplete."""


class CustomMetadataError(RemoteStorageError):
    """A store's custom metadata of a segment exceed
    remote.log.metadata.custom.metadata.max.bytes."""


class NotGivenBackError(RetriableRemoteStorageError):
    """A store reports that it copied a segment, but a read does not return the segment's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """How all partitions of a broker copy. `runtime` is for local files, never for the store."""

    segments: RemoteSegments
    pool: Pool
    quota: RateQuota
    runtime: Runtime
    purgatory: Purgatory[tuple[str, int]]
    custom_metadata_bytes_max: int


class Copier:
    """How far a partition is copied, and its copy in progress.

    `term` counts leaderships of this broker; None while it does not lead. `copied_offset` is the
    last remote offset, -1 for none, None before it was found in this term. `copying` has the ids of
    segments that are being copied; expiration does not delete them.
    """

    def __init__(
        self,
        tools: Copying,
        partition: TopicIdPartition,
        replica: Partition,
        wake: Callable[[], None],
    ) -> None:
        """`wake` makes the task run again soon."""
        self.copying: set[UUID] = set()
        self.copied_offset: int | None = None
        self.has_given_up = False
        self.is_replacing = False
        self._tools = tools
        self._partition = partition
        self._replica = replica
        self._wake = wake
        self._terms = 0
        self._term: int | None = None
        self._watch: _OffsetWatch | None = None

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""
        return self._term is not None

    @property
    def _log(self) -> Log:
        return self._replica.log

    def lead(self, replica: Partition) -> None:
        """Note a new leader epoch of this broker: find again how far the log is copied."""
        self._replica = replica
        self._terms += 1
        self._term = self._terms
        self.copied_offset = None
        self.has_given_up = False

    def resign(self) -> None:
        """Stop beginning copies."""
        self._term = None
        if self._watch is not None:
            self._tools.purgatory.cancel(self._watch)
            self._watch = None

    def _is_over(self, term: int | None) -> bool:
        config = self._log.config
        return self._term != term or not self._log.is_tiered or config.remote_log_copy_disable

    # -- where to begin ----------------------------------------------------------------------------

    def find_positions(self) -> None:
        """Find the log start, including the remote part, and how far the log is copied; once per
        leadership. RetriableRemoteStorageError."""
        if self.copied_offset is not None or not self.leads:
            return
        held, partition = self._log, self._partition
        self._raise_log_start()
        self.copied_offset = copied = self._tools.segments.copied_offset(partition, held)
        held.reset_highest_remote_offset(copied)
        log.info("%s is copied up to %d", name_of(partition), copied)

    def follow_log_start(self) -> None:
        """Raise the log start if the first remote segments are deleted. A former leader that does
        not know of the new one yet may have expired them. RemoteStorageNotReady."""
        held, partition = self._log, self._partition
        start = held.log_start_offset
        epoch = held.epochs.epoch_for_offset(start)
        if start < held.local_log_start_offset and (
            epoch is None
            or self._tools.segments.metadata.segment_for(partition, epoch, start) is None
        ):
            self._raise_log_start()

    def _raise_log_start(self) -> None:
        metadata, held, partition = self._tools.segments.metadata, self._log, self._partition
        start = find_log_start(
            held.epochs.entries,
            held.local_log_start_offset,
            lambda epoch: metadata.segments(partition, epoch),
        )
        if start > held.high_watermark:
            # A new leader may not know the committed offset before its followers' next fetches.
            raise RetriableRemoteStorageError(
                f"the log begins at offset {start} in the remote tier, which is above its high"
                f" watermark {held.high_watermark}: waiting until the in-sync replicas confirm it"
            )
        held.maybe_increment_log_start(start, "remote log start")

    # -- copying -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Copy the segments that are ready. RetriableRemoteStorageError: try again soon; any other
        error: try again later."""
        term = self._term
        if term is None or self._is_over(term) or self.has_given_up:
            return
        self.find_positions()
        copied = self.copied_offset
        assert copied is not None
        if 0 < self._log.last_stable_offset > copied:
            await self._prove_transactions(copied + 1)
            for candidate in candidates(self._log, copied, self._tools.runtime.clock.wall_ms()):
                await self._wait_for_quota(term)
                if self._is_over(term):
                    return
                if self._is_here(candidate):
                    await self._copy(candidate, term)
        self._watch_for_more()

    async def _prove_transactions(self, offset: int) -> None:
        """Compare transaction indexes with the records before a copy; for large segments on a
        thread."""
        held = self._log
        while (segment := unproven_segment(held, offset, held.log_end_offset)) is not None:
            proof = TransactionProof(held, segment)
            proof.settle(await self._tools.runtime.executor.run(proof.run))
            if not segment.transactions_are_proven:
                return  # the log was truncated

    def _is_here(self, candidate: CopyCandidate) -> bool:
        """Return whether the log still has the segment and reads may need it."""
        held = self._log.segments.floor(candidate.start_offset)
        return (
            held is not None
            and held.base_offset == candidate.start_offset
            and candidate.end_offset >= self._log.log_start_offset
        )

    async def _wait_for_quota(self, term: int) -> None:
        quota, clock = self._tools.quota, self._tools.runtime.clock
        while not self._is_over(term):
            if not quota.is_exceeded(clock.monotonic()):
                break
            await asyncio.sleep(QUOTA_WAIT_S)

    async def _copy(self, candidate: CopyCandidate, term: int) -> None:
        segments, runtime, held = self._tools.segments, self._tools.runtime, self._log
        self._tools.quota.record(candidate.size, runtime.clock.monotonic())
        segment = candidate.started(
            self._partition,
            UUID(bytes=runtime.rng.uuid()),
            segments.node_id,
            runtime.clock.wall_ms(),
        )
        truncations = held.truncations
        await self._flush(candidate)
        await self._send(segment, candidate.files, truncations)
        if held.truncations == truncations:  # else the log may have other records there now
            held.set_highest_remote_offset(candidate.end_offset)
        log.debug("%s: copied %d", name_of(self._partition), candidate.end_offset)
        if self._term == term:
            self.copied_offset = candidate.end_offset

    async def _send(
        self, segment: RemoteSegment, files: SegmentFiles, truncations: int, *, checks: bool = False
    ) -> None:
        """Publish COPY_SEGMENT_STARTED, copy, publish COPY_SEGMENT_FINISHED. With `checks` the
        whole copy is read back first; RemoteStorageError if it is damaged."""
        tools, segments = self._tools, self._tools.segments
        self.copying.add(segment.segment_id)
        try:
            await segments.metadata.add(segment)
            custom_metadata = await self._ship(segment, files, truncations)
            copied = replace(segment, custom_metadata=custom_metadata)
            if checks and (faults := await tools.pool.run(check_segment, segments.storage, copied)):
                await segments.delete(copied, tools.pool)
                raise RemoteStorageError(f"the new copy is damaged, too: {faults[0]}")
            await self._finish(copied)
        finally:
            self.copying.discard(segment.segment_id)
        segments.meters.mark_topic("RemoteCopyBytesPerSec", segment.topic, segment.size)

    async def _finish(self, segment: RemoteSegment) -> None:
        try:
            await self._tools.segments.publish(segment, SegmentState.COPY_SEGMENT_FINISHED)
        except Exception:
            if not await self._take_back_if_deleted(segment):
                raise
        else:
            if not await self._take_back_if_deleted(segment):
                return
        raise RemoteResourceNotFound("the segment was deleted while it was copied")

    async def _take_back_if_deleted(self, segment: RemoteSegment) -> bool:
        """Delete the objects if a newer leader deleted the segment during the copy. Objects written
        after that have no metadata and would stay in the store for ever."""
        tools, pause_s = self._tools, TAKE_BACK_S
        if not self._is_deleted(segment):
            return False
        while True:
            try:
                await tools.pool.run(tools.segments.storage.delete_segment, segment)
            except Exception as error:  # noqa: BLE001 - of any plug-in
                log.info("%s: %s", name_of(self._partition), error)
                await asyncio.sleep(pause_s * tools.runtime.rng.uniform(0.8, 1.2))
                pause_s = min(2 * pause_s, TAKE_BACK_S_MAX)
            else:
                return True

    def _is_deleted(self, segment: RemoteSegment) -> bool:
        try:
            known = self._tools.segments.metadata.segments(self._partition)
        except RemoteStorageError:
            return False  # it is unknown
        copied = (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED)
        return not any(
            each.segment_id == segment.segment_id and each.state in copied for each in known
        )

    async def _flush(self, candidate: CopyCandidate) -> None:
        """Flush the segment first. Otherwise a power failure could leave the log shorter than its
        remote part."""
        held = self._log
        segment = held.segments.floor(candidate.start_offset)
        assert segment is not None
        held.sealed_files(segment)  # creates files that a crash has left out
        task = held.prepare_flush(candidate.end_offset + 1)
        if task is not None:
            await self._tools.runtime.executor.run(task)
            held.flushed(task)

    async def _ship(
        self, segment: RemoteSegment, files: SegmentFiles, truncations: int
    ) -> bytes | None:
        """Copy to the store, and return its custom metadata. After a permanent failure the segment
        is deleted again, with the custom metadata if the store has answered, as it may need them to
        find the objects."""
        tools, segments, topic = self._tools, self._tools.segments, segment.topic
        segments.meters.mark_topic("RemoteCopyRequestsPerSec", topic)
        try:
            copied = await tools.pool.run(
                copy_and_look, segments.storage, segment, files, tools.runtime.files
            )
            segment = replace(segment, custom_metadata=copied.custom_metadata)
            self._check(copied.custom_metadata, truncations)
            if copied.doubt is not None:
                await self._look_again(segment, copied, truncations)
        except Exception as error:
            if _may_pass(error):
                await self._take_back_if_deleted(segment)
                raise  # a segment that was begun expires with its offsets
            segments.meters.mark_topic("RemoteCopyErrorsPerSec", topic)
            self.has_given_up = isinstance(error, CustomMetadataError)
            log.warning("%s: %s", name_of(self._partition), error)
            if not await self._take_back_if_deleted(segment):
                await segments.delete(segment, tools.pool)
            raise
        return copied.custom_metadata

    async def _look_again(self, segment: RemoteSegment, copied: Copied, truncations: int) -> None:
        """Look for the copy a few more times. A store may show it late, and another copy would cost
        more. NotGivenBackError."""
        tools, doubt = self._tools, copied.doubt
        for pause_s in LOOK_PAUSES_S:
            await asyncio.sleep(pause_s * tools.runtime.rng.uniform(0.8, 1.2))
            doubt = await tools.pool.run(look, tools.segments.storage, segment, copied.tail)
            self._check(copied.custom_metadata, truncations)
            if doubt is None:
                return
        raise NotGivenBackError(
            f"the store reports that it copied {segment.start_offset}..{segment.end_offset},"
            f" but does not return it: {doubt}"
        )

    def _check(self, custom_metadata: bytes | None, truncations: int) -> None:
        if self._log.truncations != truncations:
            raise LogCutError("the log was truncated while this segment was copied")
        size, size_max = len(custom_metadata or b""), self._tools.custom_metadata_bytes_max
        if size > size_max:
            raise CustomMetadataError(f"{size} bytes of custom metadata exceed {size_max}")

    # -- healing -----------------------------------------------------------------------------------

    async def replace(self, damaged: RemoteSegment, files: SegmentFiles | None) -> None:
        """Copy a segment again and delete its damaged copy. Without `files` a good copy exists
        already. RemoteStorageError if the new copy is damaged too."""
        self.is_replacing = True
        try:
            if files is not None:
                await self._copy_again(damaged, files)
            await self._delete_damaged(damaged)
        finally:
            self.is_replacing = False

    async def _delete_damaged(self, damaged: RemoteSegment) -> None:
        """Delete a damaged copy. Reads prefer the good one, so expiration or the next scrub may
        finish this."""
        try:
            await self._tools.segments.delete(damaged, self._tools.pool)
        except Exception as error:  # noqa: BLE001 - of any plug-in
            text = "%s: the damaged copy of %d..%d is not deleted yet: %s"
            offsets = damaged.start_offset, damaged.end_offset
            log.warning(text, name_of(self._partition), *offsets, error)

    async def _copy_again(self, damaged: RemoteSegment, files: SegmentFiles) -> None:
        """Copy under a new id, like every attempt: a failure must not remove what is left of the
        damaged copy."""
        runtime = self._tools.runtime
        segment = replace(
            damaged,
            segment_id=UUID(bytes=runtime.rng.uuid()),
            broker_id=self._tools.segments.node_id,
            event_timestamp=runtime.clock.wall_ms(),
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=files.transaction_index is None,
            custom_metadata=None,
        )
        self._tools.quota.record(segment.size, runtime.clock.monotonic())
        await self._send(segment, files, self._log.truncations, checks=True)

    # -- what comes next ---------------------------------------------------------------------------

    def _watch_for_more(self) -> None:
        """Run again when the next sealed segment is below the last stable offset."""
        held, copied = self._log, self.copied_offset
        if copied is None or not self.leads:
            return
        following = held.segments.after(max(copied + 1, held.log_start_offset))
        if following is None or following.base_offset <= held.last_stable_offset:
            return
        if self._watch is None or self._watch.closed:
            watch = self._watch = _OffsetWatch(held, following.base_offset, self._wake)
            key = self._replica.topic_partition
            self._tools.purgatory.park(watch, [key], WATCH_MS)

    def lag(self) -> tuple[int, int]:
        """Return bytes and number of the sealed segments that are not remote; 0 unless this broker
        leads."""
        if self.copied_offset is None or not self.leads:
            return 0, 0
        held = self._log
        waiting = [
            segment.size
            for segment in held.segments.from_floor(self.copied_offset + 1)
            if segment is not held.segments.active and segment.base_offset > self.copied_offset
        ]
        return sum(waiting), len(waiting)


def _may_pass(error: Exception) -> bool:
    """Return whether the store was temporarily unable to copy."""
    return isinstance(error, RetriableRemoteStorageError) and not isinstance(
        error, NotGivenBackError
    )


class _OffsetWatch(DelayedOperation[tuple[str, int]]):
    """Waits until a sealed segment is stable.

    Case A: the last stable offset has passed the segment: the copier runs.
    Case B: an hour has passed: the copier runs too.
    Woken by: the partition, when its watermarks move.
    """

    __slots__ = ("_log", "_offset", "_wake")

    def __init__(self, held: Log, offset: int, wake: Callable[[], None]) -> None:
        super().__init__()
        self._log = held
        self._offset = offset
        self._wake = wake

    def touch(self, key: tuple[str, int]) -> bool:
        return self._log.last_stable_offset >= self._offset

    def complete(self, *, expired: bool) -> None:
        self._wake()
