"""Repairs local segments from the remote tier, and damaged remote segments from other copies.

A remote segment is a whole copy of a sealed one, so it can restore a damaged local part. A damaged
remote segment is copied again from the local segment it was made of, from itself if its records are
whole, or from the records that a follower still has locally. Only the leader checks remote
segments.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.healing.peer_copies import NoCopyError, take
from tidelog.network.peers import PeerError
from tidelog.tiered.segments import id_of
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.remote.api import (
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentState,
)
from tidelog_storage.remote.checks import UnreadableStoreError, check_segment
from tidelog_storage.remote.copier import epochs_of, local_copy
from tidelog_storage.remote.lineage import in_lineage, is_copy_of
from tidelog_storage.remote.rebuilding import (
    SegmentContent,
    check_range,
    check_records,
    clean,
    producers_known,
    rebuild,
    whole,
)
from tidelog_storage.segment import SegmentOptions
from tidelog_storage.types import Damage, Records, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tidelog.healing.peer_copies import PeerCopies
    from tidelog.replication.partition import Partition
    from tidelog.seams import Runtime
    from tidelog.tiered.tasks.partition import TieredPartition
    from tidelog.tiered.tier import RemoteTier
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage, SegmentFiles

__all__ = ["RemoteCopies"]

_log = logging.getLogger("tidelog.healing")

_NO_COPY = (PeerError, NoCopyError, RemoteStorageError, ProtocolError, StorageError)
_READ_BYTES = 1 << 20


class RemoteCopies:
    """The remote tier of this broker: a source of copies, and the checks of its segments."""

    def __init__(
        self,
        tier: RemoteTier,
        peers: PeerCopies | None,
        *,
        runtime: Runtime,
        folder: str,
        bytes_per_second: float,
    ) -> None:
        """`peers` is None for a lone broker. `folder` is used only to rebuild segments. OSError if
        leftovers can't be removed."""
        self._tier = tier
        self._peers = peers
        self._runtime = runtime
        self._folder = folder
        self._bytes_per_second = bytes_per_second
        self._lock = asyncio.Lock()  # at most one repair, as there is one folder
        clean(runtime.files, folder)

    async def fetch(self, partition: Partition, damage: Damage) -> memoryview:
        """Fetch all remote records of a damaged range. NoCopyError, RemoteStorageError."""
        tier, log = self._tier, partition.log
        if not log.is_tiered:
            raise NoCopyError("the topic is not tiered")
        offset = damage.first_offset
        parts: list[memoryview] = []
        while offset < damage.end_offset:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = epoch is not None and tier.metadata.segment_for(
                id_of(partition), epoch, offset
            )
            if not segment:
                raise NoCopyError(f"offset {offset} is not there")
            records = await tier.pools.reader.run(_read, tier.storage, segment)
            taken, offset = take(records, offset, damage.end_offset)
            parts += taken
            if not taken and offset < damage.end_offset:
                raise NoCopyError(f"offset {offset} is not there")
        return memoryview(b"".join(parts))

    async def scrub(self, partition: Partition) -> None:
        """Check the remote segments of a partition that this broker leads, and repair them."""
        if self._is_led(partition):
            segments = list(self._tier.metadata.segments(id_of(partition)))
            await self._check_all(partition, segments)

    async def look_again(self, partition: Partition) -> None:
        """Check the remote segments that could not be repaired or read."""
        tiered = self._tiered(partition)
        if tiered is not None and self._is_led(partition):
            suspects = tiered.damaged | tiered.suspects
            tiered.suspects.clear()
            await self._check_all(partition, list(suspects.values()))

    def has_damages(self, partition: Partition) -> bool:
        """Whether there are remote segments that could not be repaired yet."""
        tiered = self._tiered(partition)
        return tiered is not None and tiered.leads and bool(tiered.damaged)

    def _tiered(self, partition: Partition) -> TieredPartition | None:
        """Return the tasks of a replica; None if it has left, even if a new topic has its name."""
        tiered = self._tier.partitions.get(partition.topic_partition)
        return tiered if tiered is not None and tiered.partition == id_of(partition) else None

    def _is_led(self, partition: Partition) -> bool:
        tier = self._tier
        return (
            partition.is_leader
            and partition.log.is_tiered
            and self._tiered(partition) is not None
            and tier.metadata.is_ready(id_of(partition))
        )

    async def _check_all(self, partition: Partition, segments: list[RemoteSegment]) -> None:
        for segment in segments:
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                begun_s = self._runtime.clock.monotonic()
                try:
                    async with self._lock:
                        await self._check(partition, segment)
                except (RemoteStorageError, UnreadableStoreError) as error:
                    name = partition.topic_partition
                    _log.info("%s: the remote tier is not checked: %s", name, error)
                    return
                took_s = self._runtime.clock.monotonic() - begun_s
                await asyncio.sleep(max(0.0, segment.size / self._bytes_per_second - took_s))

    async def _check(self, partition: Partition, segment: RemoteSegment) -> None:
        tier, log = self._tier, partition.log
        tiered = self._tiered(partition)
        if tiered is None:
            return
        faults: list[str] = []
        # Reads do not need a segment below the log start, and it expires.
        if segment.end_offset >= log.log_start_offset and self._is_live(segment):
            faults = await tier.pools.reader.run(check_segment, tier.storage, segment)
        if not tiered.leads:
            return  # a follower would keep its local records for ever
        if not faults or not self._is_live(segment):
            tiered.note_whole(segment)
            return
        is_known = segment.segment_id in tiered.damaged
        name = f"remote segment {segment.start_offset}..{segment.end_offset}"
        if not is_known:
            _log.warning("%s: %s is damaged: %s", partition.topic_partition, name, faults[0])
        tiered.note_damaged(segment)
        if await self._repair(partition, tiered, segment):
            tiered.note_whole(segment)
            _log.warning("%s: %s was copied again", partition.topic_partition, name)
        elif not is_known:
            _log.error(
                "%s: %s cannot be repaired: neither this broker nor a replica in sync has its"
                " records. They may be lost. It is tried again",
                partition.topic_partition,
                name,
            )

    # -- repair ------------------------------------------------------------------------------------

    async def _repair(
        self, partition: Partition, tiered: TieredPartition, segment: RemoteSegment
    ) -> bool:
        """Replace a damaged copy by a good one; False if there is none."""
        log = partition.log
        if not in_lineage(segment, log.epochs.entries, log.log_end_offset):
            return False  # it is of a branch that no replica has
        if await self._has_twin(segment):  # an earlier repair was interrupted
            return await self._replace(tiered, segment, None)
        files = local_copy(log, segment)
        if files is not None and await self._replace(tiered, segment, files):
            return True
        for source, fetch in self._sources(partition, segment):
            try:
                records = await fetch()
                why = check_records(segment, records)
            except _NO_COPY as error:
                why = str(error)
            if why:
                text = "%s: remote segment %d..%d: no copy in %s: %s"
                offsets = segment.start_offset, segment.end_offset
                _log.info(text, partition.topic_partition, *offsets, source, why)
            elif await self._replace_by(partition, tiered, segment, records):
                return True
        return False

    async def _has_twin(self, segment: RemoteSegment) -> bool:
        """Whether there is a good remote segment of the same records."""
        tier = self._tier
        for each in list(tier.metadata.segments(segment.topic_id_partition)):
            if (
                each.segment_id != segment.segment_id
                and each.state is SegmentState.COPY_SEGMENT_FINISHED
                and is_copy_of(each, segment)
                and not await tier.pools.reader.run(check_segment, tier.storage, each)
            ):
                return True
        return False

    def _sources(
        self, partition: Partition, segment: RemoteSegment
    ) -> Iterator[tuple[str, Callable[[], Awaitable[memoryview]]]]:
        """Yield where the segment's records may be whole: also in itself, if only an index is
        damaged."""
        tier, peers = self._tier, self._peers
        yield "itself", partial(tier.pools.reader.run, _read, tier.storage, segment)
        yield "the local log", partial(_local, partition.log, segment)
        if peers is not None:
            for source in peers.sources(partition):
                yield f"broker {source}", partial(peers.fetch, partition, whole(segment), source)

    async def _replace_by(
        self,
        partition: Partition,
        tiered: TieredPartition,
        segment: RemoteSegment,
        records: memoryview,
    ) -> bool:
        tier, log = self._tier, partition.log
        files, run = self._runtime.files, self._runtime.executor.run
        earlier, lead_in = await self._before(partition, segment)
        known = await tier.pools.reader.run(
            producers_known, tier.storage, segment, earlier, lead_in
        )
        try:
            content = SegmentContent(records, known, epochs_of(log, segment))
            options = SegmentOptions.of(log.config)
            made = await run(rebuild, files, self._folder, segment, content, options)
            is_whole = await self._replace(tiered, segment, made)
        except GeneratorExit:  # the loop is gone: nothing can be awaited
            raise
        except BaseException:
            await run(clean, files, self._folder)
            raise
        await run(clean, files, self._folder)
        return is_whole

    async def _before(
        self, partition: Partition, segment: RemoteSegment
    ) -> tuple[RemoteSegment | None, memoryview]:
        """Return the last remote segment that ends below this one's start, and the records in
        between. Segments may overlap, because leaders roll at different offsets."""
        log, start = partition.log, segment.start_offset
        earlier: RemoteSegment | None = None
        for each in self._tier.metadata.segments(segment.topic_id_partition):
            if (
                each.end_offset < start
                and (earlier is None or each.end_offset > earlier.end_offset)
                and each.state is SegmentState.COPY_SEGMENT_FINISHED
                and in_lineage(each, log.epochs.entries, log.log_end_offset)
            ):
                earlier = each
        nothing = memoryview(b"")
        if earlier is None or earlier.end_offset + 1 == start:
            return earlier, nothing
        offset = earlier.end_offset + 1
        wanted = Damage(offset, offset, start, 0, 0, "")
        try:
            lead_in = await self.fetch(partition, wanted)
        except RetriableRemoteStorageError:
            raise
        except (NoCopyError, RemoteStorageError):
            return None, nothing  # they are lost, too
        is_bad = check_range(wanted, log.epochs.entries, lead_in)
        return (None, nothing) if is_bad else (earlier, lead_in)

    async def _replace(
        self, tiered: TieredPartition, segment: RemoteSegment, files: SegmentFiles | None
    ) -> bool:
        """Return whether the segment is whole now, or deleted."""
        if self._is_live(segment):
            try:
                await tiered.replace(segment, files)
            except RetriableRemoteStorageError:
                raise
            except RemoteStorageError as error:
                _log.info("%s: %s", segment.topic_id_partition, error)
                return False
        return True

    def _is_live(self, segment: RemoteSegment) -> bool:
        """Whether the segment was not deleted meanwhile."""
        known = self._tier.metadata.segments(segment.topic_id_partition)
        return any(
            each.segment_id == segment.segment_id
            and each.state is SegmentState.COPY_SEGMENT_FINISHED
            for each in known
        )


def _read(storage: RemoteStorage, segment: RemoteSegment) -> memoryview:
    """Read a remote segment's records. Runs on a thread."""
    with storage.fetch_segment(segment, 0) as stream:
        return memoryview(stream.read())


async def _local(log: Log, segment: RemoteSegment) -> memoryview:
    """Read the segment's records from the local log, which may have other segments. NoCopyError."""
    offset = segment.start_offset
    parts: list[memoryview] = []
    while offset <= segment.end_offset:
        found = log.read(offset, _READ_BYTES, upper_bound=log.high_watermark)
        if not isinstance(found, Records) or not found.size:
            raise NoCopyError(f"offset {offset} is not there")
        records = memoryview(b"".join(found.parts))
        taken, offset = take(records, offset, segment.end_offset + 1)
        parts += taken
        await asyncio.sleep(0)
    return memoryview(b"".join(parts))
