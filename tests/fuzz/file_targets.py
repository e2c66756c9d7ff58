"""Every file that a broker reads: one of them has other bytes, the rest is as a stop left it.

The first byte of an input chooses the file, the second the stop: in order or a kill.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from fuzz.mutation import mutated, with_checksums
from fuzz.oracles import Target
from support.logs import NOW, append, batch, config
from support.metadata import FixedClock, StepExecutor, only_voter
from support.quorum_nodes import setting
from support.remote import copy_candidates
from tidelog.cluster.metadata.log import MetadataLog, NotControllerError
from tidelog.cluster.metadata.replay import ReplayError
from tidelog.simulation.disk import Inode, SimDisk
from tidelog.simulation.machine import SimAsyncFiles
from tidelog.tiered.metadata.files import MetadataFiles, SavedPartition
from tidelog_protocol.checksum import crc32c
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.directory import LogDirectoryError
from tidelog_storage.manager import LogManager
from tidelog_storage.remote.api import RemoteStorageError
from tidelog_storage.remote.checks import UnreadableStoreError, check_segment
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.scrub import SegmentCheck, extent_of
from tidelog_storage.types import Records, StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment
    from tidelog_storage.seams import FileSystem

PARTITION = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
SMALL = config(internal_segment_bytes=700, index_interval_bytes=100, retention_ms=-1)
READS_MAX = 200  # of a log of 30 batches
OUT_OF_RANGE = 1 << 40  # where reads beyond the end go


class Stop(NamedTuple):
    """What a stop leaves: files by path, and which of them are fuzzed."""

    files: Mapping[str, bytes]
    fuzzed: tuple[str, ...]


def _files_of(disk: SimDisk) -> dict[str, bytes]:
    return {name: bytes(inode.data) for name, inode in disk.names.items()}


def disk_with(files: Mapping[str, bytes]) -> SimDisk:
    """A disk that has these files."""
    disk = SimDisk(0)
    for name, data in files.items():
        inode = disk.names[name] = Inode()
        inode.data += data
        inode.synced, inode.durable = len(data), bytearray(data)
        parts = name.split("/")[:-1]
        disk.folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    disk.durable_names, disk.durable_folders = dict(disk.names), set(disk.folders)
    return disk


def _changed(stops: tuple[Stop, ...], data: bytes) -> SimDisk | None:
    """The disk of an input; None if it is none."""
    if len(data) < 2:
        return None
    stop = stops[data[1] % len(stops)]
    path = stop.fuzzed[data[0] % len(stop.fuzzed)]
    return disk_with({**stop.files, path: data[2:]})


def _seeds(stops: Callable[[], tuple[Stop, ...]]) -> list[bytes]:
    return [
        bytes([number, which]) + stop.files.get(path, b"")
        for which, stop in enumerate(stops())
        for number, path in enumerate(stop.fuzzed)
    ]


def _mutated_file(data: bytes, seed: int) -> bytes:
    """Half of the changes get the checksums that hide them: of batches, snapshots of producers, and
    those of the remote tier's metadata."""
    content = mutated(data[2:], seed)
    if seed % 2:
        content = with_checksums(content)
        if len(content) > 6 and content[:2] == b"\0\1":
            content = content[:2] + struct.pack(">I", crc32c(content[6:], 0)) + content[6:]
        elif len(content) > 6 and content[:2] == b"\0\2":
            content = content[:2] + struct.pack(">I", zlib.crc32(content[6:])) + content[6:]
    return data[:2] + content


# ---- log directories -----------------------------------------------------------------------------


def _manager(files: FileSystem) -> LogManager:
    logs = LogManager(files, ["data"], SMALL, report=lambda _: None)
    logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)
    return logs


def write_transaction(log: Log, sequence: int, kind: ControlType) -> None:
    """Append a batch of a producer, and its marker."""
    log.append_as_leader(
        batch(producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True),
        leader_epoch=2,
        now_ms=NOW,
    )
    marker = build_end_transaction_marker(
        kind, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=2, now_ms=NOW, from_client=False
    )


def _write_log(log: Log) -> None:
    for number in range(6):
        append(log, 2, leader_epoch=number // 3, timestamp=NOW + number)
    log.assign_epoch(2)
    for number, kind in enumerate((ControlType.ABORT, ControlType.COMMIT) * 4):
        write_transaction(log, number, kind)
    log.set_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start(3, "test")


@cache
def _log_stops() -> tuple[Stop, ...]:
    disk = SimDisk(0)
    logs = _manager(disk.files())
    log = logs.create(PARTITION, TOPIC_ID, SMALL)
    _write_log(log)
    log.flush()
    logs.upkeep.prepare_checkpoints()()
    logs.prepare_compacted(PARTITION, 4)()
    write_transaction(log, 8, ControlType.ABORT)
    killed = _files_of(disk)
    logs.shutdown(NOW)
    return tuple(
        Stop(files, tuple(sorted(name for name in files if not name.endswith(".lock"))))
        for files in (_files_of(disk), killed)
    )


def _run_log(data: bytes) -> None:
    """Start, read all in every way, scrub, append, stop, and start again."""
    disk = _changed(_log_stops(), data)
    if disk is None:
        return
    for _ in range(2):
        logs = _manager(disk.files())
        for _, log in list(logs.items()):
            _use(log, disk.files())
        logs.shutdown(NOW)


def _use(log: Log, files: FileSystem) -> None:
    offset, reads = log.log_start_offset, 0
    while offset < log.log_end_offset:
        outcome = log.read(offset, 2000, upper_bound=log.log_end_offset)
        reads += 1
        assert reads < READS_MAX, "a reader does not come to the end"
        if not isinstance(outcome, Records) or outcome.next_offset <= offset:
            break
        assert sum(map(len, outcome.parts)) == outcome.size
        log.aborted_transactions(offset, outcome.next_offset)
        offset = outcome.next_offset
    for timestamp in (-1, NOW, NOW + 3, 1 << 62):
        log.offset_for_timestamp(timestamp)
    log.max_timestamp_offset()
    for epoch in (-1, 0, 1, 2, 1 << 30):
        log.end_offset_for_epoch(epoch)
    log.read(OUT_OF_RANGE, 100, upper_bound=log.log_end_offset)
    for segment in log.segments:
        check = SegmentCheck(files, extent_of(log, segment, has_gaps=False))
        check.run()
        check.close()
    append(log, 1, leader_epoch=max(3, log.epochs.latest_epoch))


# ---- metadata ------------------------------------------------------------------------------------


async def _metadata_log(files: FileSystem) -> MetadataLog:
    log, _ = only_voter(files, StepExecutor(), FixedClock(), snapshot_bytes=2000)
    return log


@cache
def _metadata_stops() -> tuple[Stop, ...]:
    async def write() -> dict[str, bytes]:
        disk = SimDisk(0)
        log = await _metadata_log(disk.files())
        for number in range(100):
            await log.commit([setting("n", str(number)), setting(f"s{number % 7}", str(number))])
        await log.close()
        return _files_of(disk)

    files = asyncio.run(write())
    names = tuple(sorted(name for name in files if "/__cluster_metadata-0/" in name))
    newest = max(name for name in names if name.endswith(".checkpoint"))
    alone = {name: files[name] for name in files if not name.endswith(".log") or name == newest}
    return Stop(files, names), Stop(alone, tuple(name for name in names if name in alone))


def _run_metadata(data: bytes) -> None:
    """Open the only voter's log, which applies all of it and elects itself, and commit."""
    disk = _changed(_metadata_stops(), data)
    if disk is None:
        return

    async def life() -> None:
        log = await _metadata_log(disk.files())
        await log.commit([setting("more")])
        await log.close()

    asyncio.run(life())


# ---- the remote tier -----------------------------------------------------------------------------


@cache
def _segments() -> tuple[dict[str, bytes], list[RemoteSegment]]:
    disk = SimDisk(0)
    files = disk.files()
    logs = _manager(files)
    log = logs.create(PARTITION, TOPIC_ID, SMALL)
    _write_log(log)
    copied = copy_candidates(log, DirectoryStore(files, "tier"))
    assert len(copied) > 3
    found = {name: data for name, data in _files_of(disk).items() if name.startswith("tier/")}
    return found, copied


@cache
def _remote_stops() -> tuple[Stop, ...]:
    files, copied = _segments()
    start = f"/{copied[-1].start_offset:020d}-"
    return (Stop(files, tuple(sorted(name for name in files if start in name))),)


def _run_remote(data: bytes) -> None:
    disk = _changed(_remote_stops(), data)
    if disk is None:
        return
    segment = _segments()[1][-1]
    store = DirectoryStore(disk.files(), "tier")
    with suppress(UnreadableStoreError):
        check_segment(store, segment)
    cached = IndexCache(disk.files(), "data", 1 << 20)
    disk.files().make_dirs("data")
    cached.open(NOW)
    cached.load(segment, store, with_times=True)


@cache
def _cache_stops() -> tuple[Stop, ...]:
    """The index cache's own files."""
    files, copied = _segments()
    disk = disk_with(files)
    disk.files().make_dirs("data")
    cached = IndexCache(disk.files(), "data", 1 << 20)
    cached.open(NOW)
    cached.load(copied[-1], DirectoryStore(disk.files(), "tier"), with_times=True)
    everything = _files_of(disk)
    return (Stop(everything, tuple(sorted(everything.keys() - files.keys()))),)


def _run_cache(data: bytes) -> None:
    disk = _changed(_cache_stops(), data)
    if disk is None:
        return
    cached = IndexCache(disk.files(), "data", 1 << 20)
    cached.open(NOW)
    found = cached.load(_segments()[1][-1], DirectoryStore(disk.files(), "tier"), with_times=True)
    assert found.times is not None


# ---- files of the remote tier's metadata ---------------------------------------------------------


@cache
def _saved() -> tuple[Stop, ...]:
    disk = SimDisk(0)
    disk.files().make_dirs("data")
    _, copied = _segments()
    known = PartitionMetadata(copied[0].topic_id_partition)
    from dataclasses import replace

    from tidelog_storage.remote.api import SegmentState, SegmentUpdate

    for each in copied:
        known.apply(replace(each, state=SegmentState.COPY_SEGMENT_STARTED))
        known.apply(
            SegmentUpdate(
                topic_id_partition=each.topic_id_partition,
                segment_id=each.segment_id,
                broker_id=1,
                event_timestamp=NOW,
                state=SegmentState.COPY_SEGMENT_FINISHED,
            )
        )
    saved = SavedPartition(known.snapshot(), 0, 12, is_older=False)

    async def write() -> None:
        files = MetadataFiles(SimAsyncFiles(disk.files(), StepExecutor()), "data")
        await files.save(TOPIC_ID, [saved], [known.partition], {0: 12, 3: 4})

    asyncio.run(write())
    everything = _files_of(disk)
    return (Stop(everything, tuple(sorted(everything))),)


def _run_saved(data: bytes) -> None:
    disk = _changed(_saved(), data)
    if disk is None:
        return

    async def read() -> None:
        files = MetadataFiles(SimAsyncFiles(disk.files(), StepExecutor()), "data")
        await files.committed(TOPIC_ID)
        await files.partitions([])
        saved = await files.load(_segments()[1][0].topic_id_partition, TOPIC_ID)
        if saved is not None:
            known = PartitionMetadata.restore(saved.snapshot)
            for epoch in (0, 1, 2):
                known.segment_for(epoch, 5)

    asyncio.run(read())


_OF_A_START = (
    *(LogDirectoryError, CheckpointError, StorageError, ReplayError, ProtocolError, OSError),
    NotControllerError,
)

FILE_TARGETS = [
    Target("log-files", _run_log, _OF_A_START, partial(_seeds, _log_stops), _mutated_file),
    Target(
        "metadata-files",
        _run_metadata,
        _OF_A_START,
        partial(_seeds, _metadata_stops),
        _mutated_file,
    ),
    Target(
        "remote-files",
        _run_remote,
        (RemoteStorageError,),
        partial(_seeds, _remote_stops),
        _mutated_file,
    ),
    Target("index-cache", _run_cache, (), partial(_seeds, _cache_stops), _mutated_file),
    Target("remote-metadata-files", _run_saved, (), partial(_seeds, _saved), _mutated_file),
]
