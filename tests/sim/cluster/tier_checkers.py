"""What must hold of a log that is in two tiers: after every step, and when all is quiet.

Local and remote part have no hole from log start to log end; what is deleted locally was finished
remotely, in the lineage of who deletes it; what is finished is whole in the store, and has the
bytes that were committed; nothing that is not stable is copied; nothing is deleted from the store
before the metadata says that it goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.cluster.checkers import Committed
from sim.cluster.tier_rest import unmoved
from sim.cluster.tier_truth import FINISHED, GOING, GONE, STARTED, TierTruth, is_metadata
from sim.history import require
from sim.raw_logs import DATA, RawBatch, read_batches, read_log
from sim.remote_store import PREFIX
from tidelog_storage.remote.layout import folder_name, object_name
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.cluster.checkers import ClusterCheckers
    from sim.cluster.tier_truth import Change
    from sim.history import History, Key
    from sim.remote_store import Weather
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.machines import Machines
    from tidelog_storage.remote.api import RemoteSegment


class TierCheckers:
    """All of one run; `truth` is what the metadata topic says."""

    def __init__(
        self, machines: Machines, history: History, checkers: ClusterCheckers, weather: Weather
    ) -> None:
        self.machines, self.history, self.weather = machines, history, weather
        self.truth = TierTruth()
        self._checkers = checkers
        self._looks: dict[Any, tuple[int, ...]] = {}
        self._metadata: set[Any] = set()  # replicas of the metadata topic
        self._log_starts: dict[Key, int] = {}  # the highest of any leader

    # -- at every step -----------------------------------------------------------------------------

    def look(self, partitions: Iterable[Any]) -> None:
        """At those replicas of one broker that its last step has changed."""
        looks = self._looks
        moved: list[Any] = []
        for partition in partitions:
            log = partition.log
            if looks.get(partition) != _seen(partition):
                moved.append(partition)
            elif partition in self._metadata and log.high_watermark > self.truth.next_of(partition):
                self._refresh(partition)
        for partition in moved:
            if is_metadata(partition):
                self._metadata.add(partition)
                self._refresh(partition)
        if self.weather.deleted:
            self._check_deletions()
        for partition in moved:
            self._look_at(partition)

    def _refresh(self, partition: Any) -> None:
        for change in self.truth.refresh(partition):
            self._changed(change)

    def _look_at(self, partition: Any) -> None:
        log = partition.log
        start, local_start = log.log_start_offset, log.local_log_start_offset
        before = self._looks.get(partition)
        self._looks[partition] = _seen(partition)
        key = (partition.topic_id, partition.topic_partition.partition)
        if partition.is_leader and start > self._log_starts.get(key, 0):
            self._log_starts[key] = start
        if log.is_tiered:
            if before is not None and local_start > max(before[1], start):
                self.history.count("local parts that shrank")
            self._check_hole(key, partition)
        else:
            require(start == local_start, f"{log!r}: it begins at {local_start}, and has no tier")

    def _check_hole(self, key: Key, partition: Any) -> None:
        """From the log start on, unless a leader has moved it up already, until the local part."""
        if key in self.truth.marked:
            return  # the topic is gone, and not everybody knows
        log = partition.log
        topic = self.history.topic(key[0])
        if topic is not None and topic.loses_records and not self._knows(partition):
            return  # what left the tier and came back: who has not heard may count on what is going
        first = max(log.log_start_offset, self._log_starts.get(key, 0))
        hole = self.truth.hole(key, log.epochs, first, log.local_log_start_offset)
        require(
            hole is None,
            f"{log!r}: {hole} is neither local (from {log.local_log_start_offset} on) nor in a"
            f" finished remote segment; epochs {log.epochs.entries}",
        )

    def _knows(self, partition: Any) -> bool:
        """Whether it leads, does not only believe so, and has looked where its log begins since."""
        key, image = partition.topic_partition, self.machines.image()
        state = None if image is None else image.partition(*key)
        if state is None or not partition.is_leader or state.leader != partition.node_id:
            return False
        server = dict(self.machines.servers())[partition.node_id]
        tiered = server.tier.partitions.get(key)
        return tiered is not None and tiered.copier.copied_offset is not None

    def _changed(self, change: Change) -> None:
        segment, state = change
        key = (segment.topic_id.bytes, segment.partition)
        self.history.count(f"remote segments {state.name}")
        if state is STARTED:
            self._check_stable(key, segment)
        elif state is FINISHED:
            self._check_whole(key, segment)
        elif state is GOING:
            replicas = self._replicas_of(key)
            for partition in replicas:
                if partition.is_leader:  # its log start may have moved in the same step
                    start = partition.log.log_start_offset
                    self._log_starts[key] = max(start, self._log_starts.get(key, 0))
            for partition in replicas:
                if partition.log.is_tiered:
                    self._check_hole(key, partition)

    def _replicas_of(self, key: Key) -> list[Any]:
        return [
            partition
            for _, partition in self.machines.partitions()
            if (partition.topic_id, partition.topic_partition.partition) == key
        ]

    def _check_stable(self, key: Key, segment: RemoteSegment) -> None:
        for partition in self._replicas_of(key):
            if partition.is_leader and partition.node_id == segment.broker_id:
                log = partition.log
                memory = self._checkers.in_sync.memories.get(key)
                if memory is not None and log.high_watermark < memory.committed_end:
                    continue  # it leads again, and does not know yet how much is committed
                require(
                    segment.end_offset < log.last_stable_offset,
                    f"{log!r}: {segment.end_offset} is copied, and the last stable offset is"
                    f" {log.last_stable_offset}",
                )

    def _check_whole(self, key: Key, segment: RemoteSegment) -> None:
        """A finished segment is in the store, and is what was committed."""
        batches = self.remote_batches(segment)
        name = f"{segment.topic}-{segment.partition} {segment.start_offset}"
        require(batches, f"remote segment {name} is finished, and not in the store")
        size = sum(len(batch.data) for batch in batches)
        last = batches[-1].header.last_offset
        require(
            size == segment.size and last <= segment.end_offset,
            f"remote segment {name} to {segment.end_offset}, {segment.size} bytes: there are {size}"
            f" to {last}",
        )
        committed = self._checkers.logs.get(key)
        if isinstance(committed, Committed):
            for batch in batches:
                known = committed.batches.get(batch.header.base_offset, batch.data)
                require(known == batch.data, f"remote segment {name}: it has other records")

    def _check_deletions(self) -> None:
        deleted = self.weather.deleted
        while deleted:
            segment = deleted.pop()
            state = self.truth.states.get(segment.segment_id)
            key = (segment.topic_id.bytes, segment.partition)
            require(
                state in (GOING, GONE) or key in self.truth.marked,
                f"the store was told to delete a segment that is {state and state.name}",
            )

    # -- reading -----------------------------------------------------------------------------------

    def remote_batches(self, segment: RemoteSegment) -> list[RawBatch]:
        """What the store really has of a segment; nothing unless its manifest is there."""
        names, place = self.weather.disk.names, self.place(segment)
        manifest = names.get(f"{place}.manifest.json")
        inode = names.get(f"{place}.log")
        if manifest is None or inode is None:
            return []
        return read_batches(bytes(inode.data), segment.start_offset)[0]

    def place(self, segment: RemoteSegment) -> str:
        """What the paths of a segment's objects begin with."""
        folder = folder_name(segment.topic_id_partition)
        return f"{PREFIX}{self.weather.name}/{folder}/{object_name(segment, '')}"

    def batches(self, machine: Machine, partition: Any) -> list[RawBatch]:
        """A replica's whole log: what the store has below its first local segment, and that."""
        log = partition.log
        raw = read_log(machine.disk, log.folder)
        local = raw.batches()
        boundary = min(raw.segments, default=0)
        if not log.is_tiered or log.log_start_offset >= boundary:
            return local
        key = (partition.topic_id, partition.topic_partition.partition)
        found: dict[int, RawBatch] = {}
        for segment in self.truth.of(key, FINISHED):
            for batch in self.remote_batches(segment):
                header = batch.header
                if (
                    header.base_offset < boundary
                    and header.last_offset >= log.log_start_offset
                    and log.epochs.epoch_for_offset(header.base_offset)
                    in (None, header.leader_epoch)
                ):
                    found[header.base_offset] = batch
        return [found[offset] for offset in sorted(found)] + local

    # -- when it is quiet --------------------------------------------------------------------------

    def unquiet(self, image: ClusterImage) -> str | None:
        """Something that still has to go; None if nothing does."""
        for (topic_id, index), segments in self.truth.segments.items():
            topic = image.topic_by_id(topic_id)
            for segment in segments.values():
                state = self.truth.states[segment.segment_id]
                name = f"{segment.topic}-{index} {segment.start_offset}"
                if state is GOING or (topic is None and state is not GONE):
                    return f"remote segment {name} is {state.name}"
        every = [partition for _, partition in self.machines.partitions()]
        return self._orphan() or unmoved(image, every)

    def _orphan(self) -> str | None:
        """An object of no segment that may have some."""
        known = {
            self.place(segment)
            for segments in self.truth.segments.values()
            for segment in segments.values()
            if self.truth.states[segment.segment_id] in (STARTED, FINISHED)
        }
        for path in self.weather.disk.names:
            folder, _, name = path.rpartition("/")
            if f"{folder}/{name.partition('.')[0]}" not in known:
                return f"{path} is in the store, and of no segment"
        return None

    def check(self) -> None:
        """In the end every finished segment is whole, and no log has a hole."""
        for key in self.truth.segments:
            for segment in self.truth.of(key, FINISHED):
                self._check_whole(key, segment)
        for _, partition in self.machines.partitions():
            if partition.log.is_tiered:
                key = (partition.topic_id, partition.topic_partition.partition)
                self._check_hole(key, partition)

    def whole(self, node_id: int, topic: str, index: int) -> list[RawBatch]:
        """As `batches`, of the replica on a broker; the local part alone if it is not running."""
        machine = self.machines.by_id[node_id]
        server: Any = machine.server
        partition = server.replicas.hosted(TopicPartition(topic, index))
        if partition is None:
            return read_log(machine.disk, f"{DATA}/{topic}-{index}").batches()
        return self.batches(machine, partition)


def _seen(partition: Any) -> tuple[int, ...]:
    """What has changed when a replica is to be looked at."""
    log = partition.log
    return (log.log_start_offset, log.local_log_start_offset, partition.is_leader, log.is_tiered)
