"""One partition's copy task on its leader (KIP-405): which segments go to the remote tier, and the
steps of each copy.

`Copier` belongs to one `TieredPartition`, which runs it when there may be something to do. State
changes on the loop; the store's calls run on the copier pool with frozen values. A copy under way
when leadership goes is finished, and published if it succeeds; no other is begun.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.replication.purgatory import DelayedOperation
from tidelog.tiered.shared import copied_offset, delete_segment, name_of
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
    from tidelog.tiered.shared import Shared
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, TopicIdPartition
    from tidelog_storage.remote.copier import CopyCandidate
    from tidelog_storage.remote.proof import Copied

__all__ = ["Copier", "LogCutError"]

log = logging.getLogger("tidelog.tiered.copy")

QUOTA_WAIT_S = 1.0
LOOK_PAUSES_S = (0.1, 0.4, 1.6)
TAKE_BACK_S, TAKE_BACK_S_MAX = 0.1, 30.0
WATCH_MS = 3_600_000


class LogCutError(RemoteStorageError):
    """The log was cut while a segment of it was copied: what is remote may be half of it."""


class CustomMetadataError(RemoteStorageError):
    """The store wants more to be kept with a segment than
    remote.log.metadata.custom.metadata.max.bytes."""


class NotGivenBackError(RetriableRemoteStorageError):
    """The store says that it has copied a segment, and does not give its end back."""


class Copier:
    """How far a partition is copied, and its copy under way.

    `term` counts leaderships of this broker; None while it does not lead. `copied_offset` is the
    last offset that is remote, -1 for none, None before that was found in this term. `copying` are
    the ids of segments being copied, which expiration leaves alone.
    """

    def __init__(
        self,
        shared: Shared,
        partition: TopicIdPartition,
        replica: Partition,
        wake: Callable[[], None],
    ) -> None:
        """`wake` has this run again soon."""
        self.copying: set[UUID] = set()
        self.copied_offset: int | None = None
        self.has_given_up = False
        self.is_replacing = False
        self._shared = shared
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
        """This broker leads, in a new epoch: find out anew how far the log is copied."""
        self._replica = replica
        self._terms += 1
        self._term = self._terms
        self.copied_offset = None
        self.has_given_up = False

    def resign(self) -> None:
        """Begin no other copy."""
        self._term = None
        if self._watch is not None:
            self._shared.replicas.fetch_purgatory.cancel(self._watch)
            self._watch = None

    def _is_over(self, term: int | None) -> bool:
        config = self._log.config
        return self._term != term or not self._log.is_tiered or config.remote_log_copy_disable

    # -- where to begin ----------------------------------------------------------------------------

    def find_positions(self) -> None:
        """Once per leadership: the log start, the remote part counted in, and up to where the log
        is copied. RetriableRemoteStorageError."""
        if self.copied_offset is not None or not self.leads:
            return
        shared, held, partition = self._shared, self._log, self._partition
        self._raise_log_start()
        self.copied_offset = copied = copied_offset(shared.metadata, partition, held)
        held.reset_highest_remote_offset(copied)
        log.info("%s is copied up to %d", name_of(partition), copied)

    def follow_log_start(self) -> None:
        """Raise the log start if the first remote segments are gone: a former leader that has not
        heard yet of this one may have expired them. RemoteStorageNotReady."""
        held, partition = self._log, self._partition
        start = held.log_start_offset
        epoch = held.epochs.epoch_for_offset(start)
        if start < held.local_log_start_offset and (
            epoch is None or self._shared.metadata.segment_for(partition, epoch, start) is None
        ):
            self._raise_log_start()

    def _raise_log_start(self) -> None:
        shared, held, partition = self._shared, self._log, self._partition
        start = find_log_start(
            held.epochs.entries,
            held.local_log_start_offset,
            lambda epoch: shared.metadata.segments(partition, epoch),
        )
        if start > held.high_watermark:
            # A new leader may not know yet how much is committed: its followers' next fetches show
            # it.
            raise RetriableRemoteStorageError(
                f"the log begins at offset {start} in the remote tier, which is above its high"
                f" watermark {held.high_watermark}: waiting until the in-sync replicas confirm it"
            )
        held.maybe_increment_log_start(start, "remote log start")

    # -- copying -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Copy what may be copied now. Raises what stopped it: RetriableRemoteStorageError to try
        again soon, any other error to try again later."""
        term = self._term
        if term is None or self._is_over(term) or self.has_given_up:
            return
        self.find_positions()
        copied = self.copied_offset
        assert copied is not None
        if 0 < self._log.last_stable_offset > copied:
            await self._prove_transactions(copied + 1)
            for candidate in candidates(self._log, copied, self._shared.clock.wall_ms()):
                await self._wait_for_quota(term)
                if self._is_over(term):
                    return
                if self._is_here(candidate):
                    await self._copy(candidate, term)
        self._watch_for_more()

    async def _prove_transactions(self, offset: int) -> None:
        """What is copied was compared with its records, large segments off the loop."""
        held = self._log
        while (segment := unproven_segment(held, offset, held.log_end_offset)) is not None:
            proof = TransactionProof(held, segment)
            proof.settle(await self._shared.executor.run(proof.run))
            if not segment.transactions_are_proven:
                return  # the log was cut

    def _is_here(self, candidate: CopyCandidate) -> bool:
        """Whether the log still has the segment and reads may need it."""
        held = self._log.segments.floor(candidate.start_offset)
        return (
            held is not None
            and held.base_offset == candidate.start_offset
            and candidate.end_offset >= self._log.log_start_offset
        )

    async def _wait_for_quota(self, term: int) -> None:
        quota, clock = self._shared.copy_quota, self._shared.clock
        while not self._is_over(term):
            if not quota.is_exceeded(clock.monotonic()):
                break
            await asyncio.sleep(QUOTA_WAIT_S)

    async def _copy(self, candidate: CopyCandidate, term: int) -> None:
        shared, held = self._shared, self._log
        shared.copy_quota.record(candidate.size, shared.clock.monotonic())
        segment = candidate.started(
            self._partition, UUID(bytes=shared.rng.uuid()), shared.node_id, shared.clock.wall_ms()
        )
        truncations = held.truncations
        self.copying.add(segment.segment_id)
        try:
            await self._flush(candidate)
            await shared.metadata.add(segment)
            custom_metadata = await self._ship(segment, candidate.files, truncations)
            await self._finish(replace(segment, custom_metadata=custom_metadata))
        finally:
            self.copying.discard(segment.segment_id)
        if held.truncations == truncations:  # else the log may hold other records there by now
            held.set_highest_remote_offset(candidate.end_offset)
        shared.meters.mark_topic("RemoteCopyBytesPerSec", segment.topic, segment.size)
        log.debug("%s: copied %d", name_of(self._partition), candidate.end_offset)
        if self._term == term:
            self.copied_offset = candidate.end_offset

    async def _finish(self, segment: RemoteSegment) -> None:
        shared, finished = self._shared, SegmentState.COPY_SEGMENT_FINISHED
        try:
            await shared.metadata.update(shared.change(segment, finished))
        except Exception:
            if not await self._take_back_if_deleted(segment):
                raise
        else:
            if not await self._take_back_if_deleted(segment):
                return
        raise RemoteResourceNotFound("the segment was deleted while it was copied")

    async def _take_back_if_deleted(self, segment: RemoteSegment) -> bool:
        """A newer leader may have deleted the segment during the copy. Objects that are written
        after that have no metadata and would stay in the store for ever."""
        shared, pause_s = self._shared, TAKE_BACK_S
        if not self._is_deleted(segment):
            return False
        while True:
            try:
                await shared.pools.copier.run(shared.storage.delete_segment, segment)
            except Exception as error:  # noqa: BLE001 - of any plug-in
                log.info("%s: %s", name_of(self._partition), error)
                await asyncio.sleep(pause_s * shared.rng.uniform(0.8, 1.2))
                pause_s = min(2 * pause_s, TAKE_BACK_S_MAX)
            else:
                return True

    def _is_deleted(self, segment: RemoteSegment) -> bool:
        try:
            known = self._shared.metadata.segments(self._partition)
        except RemoteStorageError:
            return False  # that is not known
        copied = (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED)
        return not any(
            each.segment_id == segment.segment_id and each.state in copied for each in known
        )

    async def _flush(self, candidate: CopyCandidate) -> None:
        """What is copied is on this disk: else a power failure could leave the log shorter than its
        remote part."""
        held = self._log
        segment = held.segments.floor(candidate.start_offset)
        assert segment is not None
        held.sealed_files(segment)  # makes what a crash has left out
        task = held.prepare_flush(candidate.end_offset + 1)
        if task is not None:
            await self._shared.executor.run(task)
            held.flushed(task)

    async def _ship(
        self, segment: RemoteSegment, files: SegmentFiles, truncations: int
    ) -> bytes | None:
        """The store's part: its custom metadata. What fails for good, and what the store does not
        have after all, is deleted again, with the custom metadata if the store has answered: it may
        find the objects by that."""
        shared, topic = self._shared, segment.topic
        shared.meters.mark_topic("RemoteCopyRequestsPerSec", topic)
        try:
            copied = await shared.pools.copier.run(
                copy_and_look, shared.storage, segment, files, shared.files
            )
            segment = replace(segment, custom_metadata=copied.custom_metadata)
            self._check(copied.custom_metadata, truncations)
            if copied.doubt is not None:
                await self._look_again(segment, copied, truncations)
        except Exception as error:
            if _may_pass(error):
                await self._take_back_if_deleted(segment)
                raise  # else it stays as begun, and goes with the retention of its offsets
            shared.meters.mark_topic("RemoteCopyErrorsPerSec", topic)
            self.has_given_up = isinstance(error, CustomMetadataError)
            log.warning("%s: %s", name_of(self._partition), error)
            if not await self._take_back_if_deleted(segment):
                await delete_segment(shared, segment, shared.pools.copier)
            raise
        return copied.custom_metadata

    async def _look_again(self, segment: RemoteSegment, copied: Copied, truncations: int) -> None:
        """Give a store that shows what was copied a little late, or was away for a moment, a little
        time: another copy would cost it more. NotGivenBackError."""
        shared, doubt = self._shared, copied.doubt
        for pause_s in LOOK_PAUSES_S:
            await asyncio.sleep(pause_s * shared.rng.uniform(0.8, 1.2))
            doubt = await shared.pools.copier.run(look, shared.storage, segment, copied.tail)
            self._check(copied.custom_metadata, truncations)
            if doubt is None:
                return
        raise NotGivenBackError(
            f"the store says that it has copied {segment.start_offset}..{segment.end_offset},"
            f" and does not give it back: {doubt}"
        )

    def _check(self, custom_metadata: bytes | None, truncations: int) -> None:
        if self._log.truncations != truncations:
            raise LogCutError("the log was cut while this segment was copied")
        size, size_max = len(custom_metadata or b""), self._shared.custom_metadata_bytes_max
        if size > size_max:
            raise CustomMetadataError(f"{size} bytes of custom metadata are more than {size_max}")

    # -- healing -----------------------------------------------------------------------------------

    async def replace(self, damaged: RemoteSegment, files: SegmentFiles | None) -> None:
        """Copy a segment again and delete its damaged copy from the store. Without `files` there
        is a good copy already. RemoteStorageError if the new copy is no better."""
        self.is_replacing = True
        try:
            if files is not None:
                await self._copy_again(damaged, files)
            await self._delete_damaged(damaged)
        finally:
            self.is_replacing = False

    async def _delete_damaged(self, damaged: RemoteSegment) -> None:
        """There is a good copy, which reads prefer: what fails here is for expiration, or for the
        next scrub."""
        try:
            await delete_segment(self._shared, damaged, self._shared.pools.copier)
        except Exception as error:  # noqa: BLE001 - of any plug-in
            text = "%s: the damaged copy of %d..%d is not deleted yet: %s"
            offsets = damaged.start_offset, damaged.end_offset
            log.warning(text, name_of(self._partition), *offsets, error)

    async def _copy_again(self, damaged: RemoteSegment, files: SegmentFiles) -> None:
        """Under an id of its own, as every try of a copy: one that fails must not take with it what
        is left of the damaged one."""
        shared = self._shared
        segment = replace(
            damaged,
            segment_id=UUID(bytes=shared.rng.uuid()),
            broker_id=shared.node_id,
            event_timestamp=shared.clock.wall_ms(),
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=files.transaction_index is None,
            custom_metadata=None,
        )
        shared.copy_quota.record(segment.size, shared.clock.monotonic())
        self.copying.add(segment.segment_id)
        try:
            await shared.metadata.add(segment)
            custom_metadata = await self._ship(segment, files, self._log.truncations)
            segment = replace(segment, custom_metadata=custom_metadata)
            faults = await shared.pools.copier.run(check_segment, shared.storage, segment)
            if faults:
                await delete_segment(shared, segment, shared.pools.copier)
                raise RemoteStorageError(f"the new copy is damaged, too: {faults[0]}")
            await self._finish(segment)
        finally:
            self.copying.discard(segment.segment_id)
        shared.meters.mark_topic("RemoteCopyBytesPerSec", segment.topic, segment.size)

    # -- what comes next ---------------------------------------------------------------------------

    def _watch_for_more(self) -> None:
        """Run again as soon as a segment that is sealed by now is below the last stable offset."""
        held, copied = self._log, self.copied_offset
        if copied is None or not self.leads:
            return
        following = held.segments.after(max(copied + 1, held.log_start_offset))
        if following is None or following.base_offset <= held.last_stable_offset:
            return
        if self._watch is None or self._watch.closed:
            watch = self._watch = _OffsetWatch(held, following.base_offset, self._wake)
            key = self._replica.topic_partition
            self._shared.replicas.fetch_purgatory.park(watch, [key], WATCH_MS)

    def lag(self) -> tuple[int, int]:
        """Bytes and number of the sealed segments that are not remote, 0 unless this broker
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
    """Whether the store may have had no time for a copy, and has told so."""
    return isinstance(error, RetriableRemoteStorageError) and not isinstance(
        error, NotGivenBackError
    )


class _OffsetWatch(DelayedOperation[tuple[str, int]]):
    """A sealed segment waits until all of it is stable.

    Case A: the last stable offset has reached it: the copier runs.
    Case B: an hour is over: it runs too, and looks.
    Woken by: the partition, whenever its watermarks move.
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
