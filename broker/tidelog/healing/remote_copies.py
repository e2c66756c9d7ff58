"""What the remote tier has of a damage, and the remote objects' own damages.

A remote segment is a whole copy of a sealed one: a damaged local part comes back from it. A damaged
remote object is copied again, under the same id, from the local segment it was made of, as long as
that is here: RemoteStorage overwrites then. Only the leader looks after remote objects.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.healing.peer_copies import NoCopyError
from tidelog.remote.shared import id_of
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.remote.api import (
    RemoteStorageError,
    SegmentState,
)
from tidelog_storage.remote.checks import UnreadableStoreError, check_segment
from tidelog_storage.remote.copier import local_copy

if TYPE_CHECKING:
    from tidelog.remote.tier import RemoteTier
    from tidelog.replication.partition import Partition
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage
    from tidelog_storage.types import Damage

__all__ = ["RemoteCopies"]

_log = logging.getLogger("tidelog.healing")


class RemoteCopies:
    """The remote tier of this broker as a source of copies, and what is wrong with it."""

    def __init__(self, tier: RemoteTier) -> None:
        self._tier = tier

    async def fetch(self, partition: Partition, damage: Damage) -> memoryview:
        """All that the remote tier has of a damage's offsets. NoCopyError, RemoteStorageError."""
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
            taken, offset = _between(records, offset, damage.end_offset)
            parts += taken
        return memoryview(b"".join(parts))

    async def scrub(self, partition: Partition) -> None:
        """Check the remote segments of a partition that this broker leads."""
        tier = self._tier
        if not partition.is_leader or not partition.log.is_tiered:
            return
        name = id_of(partition)
        if not tier.metadata.is_ready(name):
            return
        for segment in list(tier.metadata.segments(name)):
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                try:
                    await self._check(partition, segment)
                except (RemoteStorageError, UnreadableStoreError) as error:
                    _log.info("%s: the remote tier is not checked: %s", name, error)
                    return

    async def _check(self, partition: Partition, segment: RemoteSegment) -> None:
        tier = self._tier
        faults = await tier.pools.reader.run(check_segment, tier.storage, segment)
        if not faults or not self._is_live(segment):
            return
        name = f"remote segment {segment.start_offset}..{segment.end_offset}"
        _log.warning("%s: %s is damaged: %s", partition.topic_partition, name, faults[0])
        copy = local_copy(partition.log, segment)
        if copy is not None and self._is_live(segment):
            await tier.pools.copier.run(tier.storage.copy_segment, segment, copy)
            tier.reads.forget((segment.segment_id,))
            faults = await tier.pools.reader.run(check_segment, tier.storage, segment)
        if faults:
            _log.error(
                "%s: %s cannot be repaired: no local copy of it is left. Its offsets may be lost",
                partition.topic_partition,
                name,
            )
        else:
            _log.warning("%s: %s was copied again", partition.topic_partition, name)

    def _is_live(self, segment: RemoteSegment) -> bool:
        """Whether the segment was not deleted meanwhile."""
        known = self._tier.metadata.segments(segment.topic_id_partition)
        return any(
            each.segment_id == segment.segment_id
            and each.state is SegmentState.COPY_SEGMENT_FINISHED
            for each in known
        )


def _read(storage: RemoteStorage, segment: RemoteSegment) -> memoryview:
    """A remote segment's records. On a thread."""
    with storage.fetch_segment(segment, 0) as stream:
        return memoryview(stream.read())


def _between(records: memoryview, offset: int, end_offset: int) -> tuple[list[memoryview], int]:
    """The batches of [offset, end_offset), and the offset after the last batch."""
    taken: list[memoryview] = []
    after = offset
    try:
        for position, header in iter_batches(records):
            after = header.next_offset
            if offset <= header.base_offset < end_offset:
                taken.append(records[position : position + header.size_in_bytes])
    except ProtocolError as error:
        raise NoCopyError(str(error)) from error
    if after <= offset:
        raise NoCopyError(f"offset {offset} is not there")
    return taken, after
