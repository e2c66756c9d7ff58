"""What must hold: at every step, at every death and start, and at the end.

The checkers look at the raw bytes on the simulated disk and at what clients were told
(`history.py`), and compare the broker's own view with both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.history import PartitionHistory, require
from sim.raw_logs import DATA, RawLog, check_indexes, folders, read_log
from tidelog_protocol.apis import ApiKey
from tidelog_storage.checkpoints import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    CheckpointError,
    OffsetCheckpoint,
    read_partition_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.history import History
    from tidelog.server import BrokerServer
    from tidelog.simulation.machine import Machine
    from tidelog_storage.log import Log

METADATA_FOLDER = f"{DATA}/__cluster_metadata-0"
BATCHES_RETAINED = 5  # of each producer, in memory
STEPS_BETWEEN_CHECKS = 16


class Before:
    """How the machine was when it died, to be compared with how it comes back."""

    def __init__(self) -> None:
        self.logs: dict[str, RawLog] = {}
        self.floors: dict[str, int] = {}
        self.owners: dict[str, PartitionHistory | None] = {}
        self.powerless_life: int | None = None  # the first life that ended by a power failure
        self.was_clean = False


class Checkers:
    """All checks of one run."""

    def __init__(self, machine: Machine, history: History) -> None:
        self.machine, self.history = machine, history
        self._before: Before | None = None
        self._steps = 0
        self._seen: dict[bytes, tuple[int, int]] = {}  # of this life: high watermark, log end
        self._seen_life = 0

    # -- the broker's own view ---------------------------------------------------------------------

    def _logs(self, server: BrokerServer | None) -> Iterator[tuple[str, Log]]:
        """The logs that are open, by folder."""
        if server is None:
            return
        if server.logs is not None:
            for log in server.logs.loaded():
                yield log.folder, log
        if server.is_built and server.metadata.is_open:
            yield METADATA_FOLDER, server.metadata.log

    def after_step(self) -> None:
        """Now and then: offsets in order, and never back within one life."""
        self._steps += 1
        if self._steps % STEPS_BETWEEN_CHECKS:
            return
        machine = self.machine
        if machine.life != self._seen_life:
            self._seen_life = machine.life
            self._seen.clear()
        seen = self._seen
        for folder, log in self._logs(machine.server):
            high_watermark, end = log.high_watermark, log.log_end_offset
            if not (
                log.log_start_offset <= log.last_stable_offset <= high_watermark <= end
                and log.recovery_point <= end
            ):
                require(False, f"{log!r}: high watermark {high_watermark}")
            key = folder.encode() + (log.topic_id or b"")
            before = seen.get(key)
            if before is not None and (high_watermark < before[0] or end < before[1]):
                require(False, f"{log!r} went back from {before}")
            seen[key] = high_watermark, end

    def count_compacted(self) -> None:
        """How many partitions the checkpoint names, for the summary."""
        compacted = OffsetCheckpoint(
            self.machine.disk.files(), f"{DATA}/{CLEANER_OFFSET_CHECKPOINT}"
        )
        self.history.count("partitions compacted", len(compacted.read()))

    # -- deaths and starts -------------------------------------------------------------------------

    def before_death(self, how: str) -> None:
        """Remember what is on the disk, and what the broker holds for durable."""
        server = self.machine.server
        if server is not None and server._connections.is_open and self._before is not None:
            self.after_start()  # it served clients before anybody could look
        before = self._before
        if before is None:
            before = self._before = Before()
            before.was_clean = how == "stop"
            for folder in folders(self.machine.disk):
                before.logs[folder] = read_log(self.machine.disk, folder)
                before.owners[folder] = self._owner(folder)
        for folder, log in self._logs(server):
            if folder in before.logs:  # a start that was cut short may have written more since
                floor = min(log.recovery_point, before.logs[folder].end_offset())
                before.floors[folder] = max(before.floors.get(folder, 0), floor)
        if how == "power":
            self.history.power_failures.append(self.machine.life)
            if before.powerless_life is None:
                before.powerless_life = self.machine.life
            for committed in self.history.committed.values():
                committed.acked = committed.told = -1
        if how == "stop":
            self._check_clean_stop()

    def _owner(self, folder: str) -> PartitionHistory | None:
        """Whose partition this is, by the id in the folder."""
        inode = self.machine.disk.names.get(f"{folder}/partition.metadata")
        if inode is None:
            return None
        try:
            topic_id = read_partition_metadata(_OneFile(bytes(inode.data)), folder)  # type: ignore[arg-type]
        except CheckpointError as error:  # a power failure tore it before it was synced
            require(not read_log(self.machine.disk, folder).batches(), str(error))
            return None
        topic = self.history.topic(topic_id or b"")
        return None if topic is None else topic.partition(int(folder.rpartition("-")[2]))

    def after_start(self) -> None:
        """The broker is back: what was there before is there again, whole or as a prefix."""
        before, self._before = self._before, None
        if before is not None:
            for folder, old in before.logs.items():
                owner = before.owners[folder]
                if folder == METADATA_FOLDER or owner is not None:
                    self._compare(before, folder, old, owner)
        require(
            f"{DATA}/{CLEAN_SHUTDOWN_MARKER}" not in self.machine.disk.names,
            "the clean shutdown marker outlived a start",
        )
        image = self._image()
        if image is not None:
            counts = {t.topic_id: len(t.partitions) for t in image.topics.values()}
            self.check_topics(counts, "the image")
        self.check_live()

    def _image(self) -> Any:
        server: Any = self.machine.server
        return None if server is None else server.metadata.image

    def _compare(
        self, before: Before, folder: str, old: RawLog, owner: PartitionHistory | None
    ) -> None:
        if owner is not None and owner.topic.state != "exists":
            return
        new = read_log(self.machine.disk, folder)
        if not new.segments and not max(old.segments) and not old.end_offset():
            return  # never written to; made again as soon as there is a descriptor for it
        require(new.segments, f"{folder} has vanished")
        batches, kept = old.batches(), {b.header.base_offset: b.data for b in new.batches()}
        first = min(new.segments)
        old_first = min(old.segments, default=0)
        if owner is None or not owner.topic.has_retention:
            bound = 0 if owner is None else owner.delete_bound
            require(first <= max(old_first, bound), f"{folder} starts at {first} now")
        end = max(old.end_offset() if not batches else batches[-1].header.last_offset + 1, first)
        for batch in batches:
            offset = batch.header.base_offset
            if batch.header.last_offset >= first and kept.get(offset) != batch.data:
                end = max(offset, first)  # a log may begin anew at a log start inside a batch
                break
        lost = [b.header for b in batches if b.header.last_offset >= end]
        floor = before.floors.get(folder, 0)
        if owner is not None:
            floor = owner.floor(floor)
        if before.powerless_life is None:
            require(not lost, f"{folder}: a kill lost {len(lost)} batches from {end} on")
        else:
            require(
                end >= floor or first >= floor,
                f"{folder}: durable up to {floor}, ends at {end} after a power failure",
            )
            if owner is not None:
                owner.cut(before.powerless_life, end)
                self.history.count("batches lost by power failures", len(lost))
        self._check_tail(
            folder, new, end, max((b.header.leader_epoch for b in batches), default=-1)
        )

    def _check_tail(self, folder: str, new: RawLog, end: int, epoch: int) -> None:
        """What lies behind the kept prefix was written by the new leader."""
        for batch in new.batches():
            if batch.header.base_offset >= end:
                require(
                    batch.header.leader_epoch > epoch,
                    f"{folder}: {batch.header.base_offset} came out of nowhere",
                )

    def _check_clean_stop(self) -> None:
        """A clean stop leaves its mark, and files that need no recovery."""
        disk = self.machine.disk
        require(f"{DATA}/{CLEAN_SHUTDOWN_MARKER}" in disk.names, "no clean shutdown marker")
        for folder in folders(disk):
            log = read_log(disk, folder)
            require(not any(log.torn.values()), f"{folder} is torn after a clean stop")
            wrong = check_indexes(disk, log)
            require(wrong is None, f"after a clean stop: {wrong}")
            for path, inode in disk.names.items():
                if path.startswith(f"{folder}/") and path.endswith(
                    (".log", ".index", ".timeindex")
                ):
                    require(inode.synced == len(inode.data), f"{path} was not synced")

    # -- the broker's view against the raw bytes ---------------------------------------------------

    def check_live(self) -> None:
        """Log ends, epochs and producers are what the bytes on the disk say."""
        for folder, log in self._logs(self.machine.server):
            raw = read_log(self.machine.disk, folder)
            require(raw.segments, f"{folder} has no segments")
            require(
                raw.end_offset() == log.log_end_offset and not any(raw.torn.values()),
                f"{log!r}: the disk ends at {raw.end_offset()}, torn {raw.torn}",
            )
            self._check_epochs(log, raw)
            self._check_producers(log, raw)

    def _check_epochs(self, log: Log, raw: RawLog) -> None:
        for batch in raw.batches():
            header = batch.header
            if header.base_offset >= log.log_start_offset:
                known = log.epochs.epoch_for_offset(header.base_offset)
                require(
                    known == header.leader_epoch,
                    f"{log!r}: epoch {header.leader_epoch} at {header.base_offset} is {known}",
                )

    def _check_producers(self, log: Log, raw: RawLog) -> None:
        written: dict[int, list[tuple[int, int, int]]] = {}
        for batch in raw.batches():
            header = batch.header
            if header.producer_id >= 0 and header.base_offset >= log.log_start_offset:
                written.setdefault(header.producer_id, []).append(
                    (header.producer_epoch, header.last_sequence, header.last_offset)
                )
        known = log.producers.producers
        for producer_id, batches in written.items():
            entry = known.get(producer_id)
            require(entry is not None, f"{log!r}: producer {producer_id} is forgotten")
            assert entry is not None
            remembered = [
                (entry.producer_epoch, batch.last_sequence, batch.last_offset)
                for batch in entry.batches
            ]
            count = min(len(remembered), len(batches))
            require(
                remembered and remembered[-count:] == batches[-count:],
                f"{log!r}: producer {producer_id} wrote {batches[-count:]}, is {remembered}",
            )
        if not log.log_start_offset:
            strangers = sorted(known.keys() - written.keys())
            require(not strangers, f"{log!r}: producers {strangers} wrote nothing")

    # -- topics ------------------------------------------------------------------------------------

    def check_topics(self, counts: dict[bytes, int], what: str) -> None:
        """Topics of the cluster (partitions by id) against what the admin was told."""
        for topic in self.history.topics.values():
            count = counts.get(topic.topic_id)
            if topic.state == "gone":
                require(count is None, f"{what}: deleted topic {topic.name} is there")
            elif topic.state == "exists":
                require(
                    count is not None and topic.partitions_min <= count <= topic.partitions_max,
                    f"{what}: topic {topic.name} has {count} partitions",
                )

    # -- the end -----------------------------------------------------------------------------------

    def check_contents(self) -> None:
        """Every fact is in the logs, nothing else than what was sent, idempotent records once."""
        starts = {folder: log.log_start_offset for folder, log in self._logs(self.machine.server)}
        for topic in self.history.existing():
            for partition in topic.partitions.values():
                if partition.index < topic.partitions_min:
                    folder = f"{DATA}/{partition}"
                    require(folder in starts, f"{folder} is not open")
                    self._check_contents(partition, starts[folder])

    def _check_contents(self, partition: PartitionHistory, log_start_offset: int) -> None:
        folder = f"{DATA}/{partition}"
        raw = read_log(self.machine.disk, folder)
        require(raw.segments, f"{folder} is not there")
        values: dict[int, bytes] = {}
        next_offset = min(raw.segments)
        for batch in raw.batches():
            require(batch.header.base_offset == next_offset, f"{partition}: hole at {next_offset}")
            next_offset = batch.header.last_offset + 1
            for record in batch.records():
                values[record.offset] = record.value or b""
        for offset, value in values.items():
            require(value in partition.sent, f"{partition}: nobody sent {value!r} at {offset}")
        # A producer is forgotten with its records: those below the log start may come again.
        self._check_once(partition, {key: values[key] for key in values if key >= log_start_offset})
        first = min(raw.segments)
        if not partition.topic.has_retention:
            require(first <= partition.delete_bound, f"{partition}: starts at {first}")
        for offset, value in partition.facts.items():
            if offset >= first:
                require(
                    values.get(offset) == value,
                    f"{partition}: {value!r} at {offset} has become {values.get(offset)!r}",
                )
        self.history.count("records in the end", len(values))

    def _check_once(self, partition: PartitionHistory, values: dict[int, bytes]) -> None:
        """Records of idempotent producers are there once, in the order they were sent."""
        last: dict[bytes, int] = {}
        for offset in sorted(values):
            name, number, _ = values[offset].split(b"/")
            if name.startswith(b"idempotent"):
                require(
                    int(number) > last.get(name, 0),
                    f"{partition}: {name!r} {number!r} at {offset} is doubled or out of order",
                )
                last[name] = int(number)

    def check_quiet(self) -> None:
        """Nobody is connected: nothing waits, and what is kept is bounded."""
        server: Any = self.machine.server
        replicas = server.replicas
        for name in ("fetch", "produce", "delete_records"):
            purgatory = getattr(replicas, f"{name}_purgatory")
            require(not len(purgatory), f"{len(purgatory)} operations wait in the {name} purgatory")
            require(not purgatory._watchers, f"{name} purgatory: {purgatory._watchers}")
        require(not server.connections, f"{len(server.connections)} connections live")
        require(not server.dispatchers[0].has_running, "handlers still run")
        sessions = server.handlers[ApiKey.FETCH].__self__.sessions
        require(len(sessions) <= 200, f"{len(sessions)} fetch sessions")
        for folder, log in self._logs(server):
            require(
                log.high_watermark == log.log_end_offset or folder == METADATA_FOLDER,
                f"{log!r}: high watermark {log.high_watermark}",
            )


class _OneFile:
    """A file system of one file, for the reader of `partition.metadata`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_bytes(self, _path: str) -> bytes:
        return self._data
