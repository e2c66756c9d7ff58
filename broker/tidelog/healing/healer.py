"""The scrubber: reads the segments on this broker's disks, and repairs damaged ones.

It reads in steps on a thread, no faster than log.scrub.io.max.bytes.per.second. `schedule` starts
it.

Damaged records are no longer served: a read gets CORRUPT_MESSAGE. A leader stays leader, because
the rest of its log is good. If another in-sync replica or the remote tier has the records, they are
fetched, checked and swapped in. Otherwise the damage stays, and is named in the log, in the metric
DamagedOffsets and by `tidelog verify`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.healing.peer_copies import NoCopyError
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.epoch_checks import places_of, recorded_epochs
from tidelog_storage.remote.api import RemoteStorageError
from tidelog_storage.scrub import SegmentCheck, extent_of
from tidelog_storage.scrub_repair import (
    SegmentRepair,
    check_copy,
    epochs_with,
    is_same,
    rebuild_indexes,
)
from tidelog_storage.segment import Segment, SegmentOptions
from tidelog_storage.types import Damage, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tidelog.healing.peer_copies import PeerCopies
    from tidelog.healing.remote_copies import RemoteCopies
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog_storage.scrub import Extent

__all__ = ["Healer"]

_log = logging.getLogger("tidelog.healing")


class Healer:
    """Scrubs and repairs the logs of one broker."""

    def __init__(
        self,
        *,
        bytes_per_second: float,
        runtime: Runtime,
        replicas: ReplicaManager,
        peers: PeerCopies | None,
        remote: RemoteCopies | None,
    ) -> None:
        """`peers` is None for a lone broker, `remote` is None without a remote tier."""
        self._bytes_per_second = bytes_per_second
        self._clock, self._files, self._executor = runtime.clock, runtime.files, runtime.executor
        self._replicas = replicas
        self._peers = peers
        self._remote = remote
        self._lock = asyncio.Lock()  # at most one check or repair runs

    def close(self) -> None:
        """Close the channels to other brokers; no check or repair runs any more."""
        if self._peers is not None:
            self._peers.close()

    async def scrub_all(self) -> None:
        """Check all partitions of this broker once, and the remote segments of those it leads."""
        for partition in self._replicas.partitions():
            await self.scrub_guarded(partition)
            if self._remote is not None:
                await self._guarded(partition, self._remote.scrub)

    async def look_at_remote(self, partition: Partition) -> None:
        """Check the remote segments that are damaged or suspect."""
        if self._remote is not None:
            await self._guarded(partition, self._remote.look_again)

    def has_damages(self, partition: Partition) -> bool:
        """Return whether there is damage left without a copy."""
        is_remote = self._remote is not None and self._remote.has_damages(partition)
        return is_remote or bool(partition.log.damages)

    async def scrub_guarded(self, partition: Partition) -> None:
        """Run `scrub`, and log its failure."""
        await self._guarded(partition, self.scrub)

    async def _guarded(
        self, partition: Partition, work: Callable[[Partition], Awaitable[None]]
    ) -> None:
        """Run work for one partition; its failure is logged, and the other partitions are checked
        all the same."""
        try:
            await work(partition)
        except OSError as error:
            _log.warning("%s cannot be scrubbed: %s", partition.topic_partition, error)
        except Exception:  # noqa: BLE001 - the other partitions are checked all the same
            _log.exception("scrubbing %s failed", partition.topic_partition)

    # -- one log -----------------------------------------------------------------------------------

    async def scrub(self, partition: Partition) -> None:
        """Read a replica's segments, oldest first, and repair them."""
        async with self._lock:
            if self._is_hosted(partition):
                await self._restore_start(partition)
            offset = -1
            # The replica may leave this broker while others are read.
            while self._is_hosted(partition):
                segment = partition.log.segments.after(offset)
                if segment is None:
                    return
                offset = segment.base_offset
                if segment.size or partition.log.segments.after(offset) is not None:
                    await self._scrub_segment(partition, segment)

    def _is_hosted(self, partition: Partition) -> bool:
        return self._replicas.hosted(partition.topic_partition) is partition

    async def _scrub_segment(self, partition: Partition, segment: Segment) -> None:
        log = partition.log
        held = _Held(partition, segment, self._replicas)
        extent = extent_of(log, segment, has_gaps=self._replicas.logs.may_have_gaps(log))
        check = SegmentCheck(self._files, extent)
        try:
            while not await self._step(check):
                if not held.is_current():
                    return
        finally:
            check.close()
        if not held.is_current():
            return
        damages = check.damages
        fault = segment.index_fault or next(iter(check.index_faults), None)
        if (damages or fault) and log.segments.active is segment:
            log.roll(self._clock.wall_ms())  # only a sealed segment can be replaced
            await self._scrub_segment(partition, segment)
            return
        if damages:
            damages = await self._blame_epochs(held, extent, damages)
        if fault:
            segment.index_fault = None
            damages = await self._judge(held, extent, fault, damages)
        if damages:
            await self._heal(held, extent, damages)
        elif log.damages:
            log.set_damages(segment.base_offset, ())

    async def _blame_epochs(
        self, held: _Held, extent: Extent, damages: list[Damage]
    ) -> list[Damage]:
        """Correct the log's leader epochs if they are damaged, and not the records.

        That is so if only leader epochs differ, and another replica has the same records; or if
        more than one batch differs, and the epochs in the records of the whole log are consistent.
        """
        loose = extent._replace(epochs=())
        check = SegmentCheck(self._files, loose)
        while not await self._step(check):
            pass
        if check.damages:
            return damages
        recorded = partial(recorded_epochs, self._files, epochs=extent.epochs)
        found, _ = await self._executor.run(recorded, [(extent.path, extent.size)])
        if not found:
            return damages
        whole = Damage(
            extent.base_offset, extent.base_offset, extent.end_offset, 0, extent.size, "epochs"
        )
        copy = await self._copy_of(held.partition, loose, whole)
        if copy is None:
            all_places = places_of(held.log.segments)
            proof = await self._executor.run(recorded, all_places)
            are_right = proof.are_proven(held.partition.leader_epoch)
        else:
            are_right = await self._executor.run(is_same, self._files, extent, copy)
        if not held.is_current():
            return []
        if are_right:
            held.log.correct_epochs(found, extent.end_offset)
            _log.warning("%s: leader epochs of %s were put right", held.key, extent.path)
            return []
        return damages

    async def _restore_start(self, partition: Partition) -> None:
        """Fetch the records that were lost before the first segment; only the checkpoint of the log
        start shows that they are missing."""
        log, start = partition.log, partition.log.lost_start
        if start is None or log.is_tiered or start >= log.segments.first.base_offset:
            return
        held = _Held(partition, log.segments.first, self._replicas)
        extent = extent_of(log, held.segment, has_gaps=self._replicas.logs.may_have_gaps(log))
        end_offset = extent.base_offset
        extent = extent._replace(base_offset=start, end_offset=end_offset, size=0, epochs=())
        damage = Damage(start, start, end_offset, 0, 0, "the segments are missing")
        copy = await self._copy_of(partition, extent, damage)
        if copy is None or not len(copy):
            return
        new = await self._write(held, extent, [(damage, copy)])
        if new is not None:
            epochs = epochs_with(copy, log.epochs.entries)
            log.restore_start(new, epochs, self._clock.wall_ms())
            await self._executor.run(self._files.fsync_dir, log.folder)
            _log.warning("%s: offsets %d to %d are back", held.key, start, end_offset - 1)

    async def _step(self, check: SegmentCheck) -> bool:
        """Run one step, then pause to stay within the limit."""
        before, started_s = check.read_bytes, self._clock.monotonic()
        is_done = await self._executor.run(check.step)
        busy_s = self._clock.monotonic() - started_s
        read_s = (check.read_bytes - before) / self._bytes_per_second
        await asyncio.sleep(max(busy_s, read_s - busy_s))  # Python on a thread slows the loop
        return is_done

    async def _judge(
        self, held: _Held, extent: Extent, fault: str, damages: list[Damage]
    ) -> list[Damage]:
        """Decide whether an index or its records are wrong, as they do not fit.

        If another replica has the same records, the index is wrong and is built again. Otherwise
        the records are of another file, and all are damaged, not only `damages`.
        """
        whole = Damage(
            extent.base_offset, extent.base_offset, extent.end_offset, 0, extent.size, ""
        )
        whole = whole._replace(why=f"the records are not those of the indexes ({fault})")
        # Neither this segment nor a copy without gaps was ever compacted: they must be equal.
        plain = extent._replace(has_gaps=False)
        copy = await self._copy_of(held.partition, plain, whole)
        if not held.is_current():
            return []
        if copy is not None and not await self._executor.run(is_same, self._files, extent, copy):
            return [whole]
        if damages:
            return damages
        _log.warning("%s: %s; built again", held.key, fault)
        await self._executor.run(rebuild_indexes, self._files, extent, held.options)
        if held.is_current():
            held.segment.release()
        return []

    # -- repair ------------------------------------------------------------------------------------

    async def _heal(self, held: _Held, extent: Extent, damages: list[Damage]) -> None:
        """Stop serving the damaged ranges; then repair those that have copies."""
        log, key = held.log, held.key
        is_news = not set(damages) <= set(log.damages)
        log.set_damages(extent.base_offset, damages)
        for damage in damages if is_news else ():
            _log.error("%s: damaged %s", key, damage)
        copies: list[tuple[Damage, memoryview]] = []
        for damage in damages:
            copy = await self._copy_of(held.partition, extent, damage)
            if copy is None:
                if is_news:
                    _log.error(
                        "%s: offsets %d to %d have no copy: no other replica in sync and no remote"
                        " tier gives them",
                        key,
                        damage.first_offset,
                        damage.end_offset - 1,
                    )
                return
            copies.append((damage, copy))
        for one_extent, one_copies in _parts(extent, copies):
            if not await self._replace(held, one_extent, one_copies):
                return
        log.set_damages(extent.base_offset, ())
        for damage in damages:
            _log.warning(
                "%s: offsets %d to %d were repaired from a copy",
                key,
                damage.first_offset,
                damage.end_offset - 1,
            )

    async def _copy_of(
        self, partition: Partition, extent: Extent, damage: Damage
    ) -> memoryview | None:
        """Return the first copy that fits; None if there is none."""
        for name, fetch in self._sources(partition, damage):
            try:
                copy = await fetch()
                why = check_copy(extent, damage, copy)
            except (PeerError, NoCopyError, RemoteStorageError, ProtocolError) as error:
                why = str(error)
            if not why:
                return copy
            _log.info("%s: %s: no copy in %s: %s", partition.topic_partition, damage, name, why)
        return None

    def _sources(
        self, partition: Partition, damage: Damage
    ) -> Iterator[tuple[str, Callable[[], Awaitable[memoryview]]]]:
        peers, remote = self._peers, self._remote
        if peers is not None:
            for source in peers.sources(partition):
                yield f"broker {source}", partial(peers.fetch, partition, damage, source)
        if remote is not None:
            yield "the remote tier", partial(remote.fetch, partition, damage)

    async def _replace(
        self, held: _Held, extent: Extent, copies: list[tuple[Damage, memoryview]]
    ) -> bool:
        """Write a repaired segment and swap it in; False if the log has changed since the check."""
        log = held.log
        if not held.is_current():
            return False
        assert log.segments.active is not held.segment
        new = await self._write(held, extent, copies)
        if new is None:
            return False
        old = log.segments.floor(extent.base_offset)
        assert old is not None
        is_there = old.base_offset == extent.base_offset
        log.replace_damaged([old] if is_there else [], new, self._clock.wall_ms())
        held.replaced_by(new if is_there else old)
        await self._executor.run(self._files.fsync_dir, log.folder)
        return True

    async def _write(
        self, held: _Held, extent: Extent, copies: list[tuple[Damage, memoryview]]
    ) -> Segment | None:
        """Write the new segment, to be swapped in at once; None if the log has changed since."""
        repair = SegmentRepair(self._files, extent, copies, held.options)
        try:
            await self._executor.run(repair.write)
        except StorageError as error:
            _log.warning("%s is not repaired now: %s", held.key, error)
            return None
        if not held.is_current():
            return None
        return Segment(
            self._files,
            held.log.folder,
            extent.base_offset,
            size=repair.size,
            options=held.options,
            created_ms=held.segment.created_ms,
        )


class _Held:
    """A segment as it was when its check began."""

    def __init__(self, partition: Partition, segment: Segment, replicas: ReplicaManager) -> None:
        self.partition = partition
        self.log = partition.log
        self.key = partition.topic_partition
        self.segment = segment
        self.options = SegmentOptions.of(self.log.config)
        self._replicas = replicas
        self._truncations = self.log.truncations

    def is_current(self) -> bool:
        """Return whether the log still has the segment, and was not truncated since."""
        log, segment = self.log, self.segment
        return (
            self._replicas.hosted(self.key) is self.partition
            and self.partition.log is log
            and log.truncations == self._truncations
            and log.segments.floor(segment.base_offset) is segment
        )

    def replaced_by(self, segment: Segment) -> None:
        """Note that this segment replaced the damaged one."""
        self.segment = segment
        self._truncations = self.log.truncations


def _parts(
    extent: Extent, copies: list[tuple[Damage, memoryview]]
) -> Iterator[tuple[Extent, list[tuple[Damage, memoryview]]]]:
    """Yield what to write: the segment, and another segment for the offsets missing behind it.

    A lost file shows as offsets that are missing behind the segment before it.
    """
    damage, copy = copies[-1]
    is_missing = damage.position == damage.end_position == extent.size and extent.size > 0
    inside = copies[:-1] if is_missing else copies
    if inside:
        end = damage.first_offset if is_missing else extent.end_offset
        yield extent._replace(end_offset=end), inside
    if is_missing and len(copy):
        missing = damage._replace(base_offset=damage.first_offset, position=0, end_position=0)
        own = extent._replace(base_offset=damage.first_offset, end_offset=damage.end_offset, size=0)
        yield own, [(missing, copy)]
