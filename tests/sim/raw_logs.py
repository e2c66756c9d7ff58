"""A partition's log as its bytes on the simulated disk say, by nobody's word but theirs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.records import crc_is_valid, iter_records, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.simulation.disk import Inode, SimDisk
    from tidelog_protocol.records import BatchHeader, Record

DATA = "data"
MORE = "more"  # a second log directory, in runs that have one
HEADER_BYTES = 61
SWAP_SUFFIX = ".log.swap"  # of a compacted segment on the way to its place
_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class RawBatch:
    """A batch in a segment file."""

    __slots__ = ("_records", "data", "header", "position")

    def __init__(self, position: int, header: BatchHeader, data: bytes) -> None:
        self.position, self.header, self.data = position, header, data
        self._records: list[Record] | None = None

    def records(self) -> list[Record]:
        """Decoded."""
        if self._records is None:
            self._records = list(iter_records(self.data))
        return self._records


class RawLog:
    """The segments of one folder. `torn`: bytes behind the last whole, valid batch of each."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.segments: dict[int, list[RawBatch]] = {}
        self.torn: dict[int, int] = {}

    def batches(self) -> list[RawBatch]:
        """All batches by offset, up to the first torn segment: what a recovery may keep."""
        found: list[RawBatch] = []
        for base_offset in sorted(self.segments):
            found += self.segments[base_offset]
            if self.torn[base_offset]:
                break
        return found

    def end_offset(self) -> int:
        """After the last batch."""
        last = max(self.segments, default=0)
        batches = self.segments.get(last) or ()
        return batches[-1].header.last_offset + 1 if batches else last


def read_log(disk: SimDisk, folder: str) -> RawLog:
    """Parse the segment files of a folder, which may have moved to the other log directory.

    Where a process has died between two renames of a compaction's swap, the next start finishes
    it: until then, what has lost its first file is what the compacted segment has.
    """
    if folder not in disk.folders:
        folder = folder.replace(f"{DATA}/", f"{MORE}/", 1)
    log = RawLog(folder)
    prefix = f"{folder}/"
    suffixes = (".log", SWAP_SUFFIX) if disk.unwinding else (".log",)
    replaced_end = 0
    for path in sorted(disk.names):
        if not path.startswith(prefix) or not path.endswith(suffixes):
            continue
        base_offset = int(path[len(prefix) :].partition(".")[0])
        if base_offset in log.segments or base_offset < replaced_end:
            continue
        inode = disk.names[path]
        batches, valid = _read_file(inode, base_offset)
        log.segments[base_offset] = batches
        log.torn[base_offset] = len(inode.data) - valid
        if batches and path.endswith(SWAP_SUFFIX):
            replaced_end = batches[-1].header.last_offset + 1
    return log


class ReadFile(NamedTuple):
    """What was found in a file, and the valid bytes that it was found in."""

    base_offset: int
    data: bytes
    batches: list[RawBatch]


def _read_file(inode: Inode, base_offset: int) -> tuple[list[RawBatch], int]:
    """As `read_batches`. Files mostly grow: where the bytes are those of the last time, so are
    their batches."""
    known: ReadFile | None = inode.read
    if known is None or known.base_offset != base_offset or not inode.data.startswith(known.data):
        known = ReadFile(base_offset, b"", [])
    if len(inode.data) - len(known.data) < HEADER_BYTES:
        return known.batches.copy(), len(known.data)
    data = bytes(inode.data)
    found, valid = read_batches(data, base_offset, known.batches)
    if inode.rotten is not None and data.startswith(inode.rotten[1], inode.rotten[0]):
        valid = min(valid, inode.rotten[0])
        found = [batch for batch in found if batch.position < valid]
    inode.read = ReadFile(base_offset, data[:valid], found)
    return found.copy(), valid


def read_batches(
    data: bytes, base_offset: int, known: Sequence[RawBatch] = ()
) -> tuple[list[RawBatch], int]:
    """The whole, valid batches that a segment's bytes begin with, and how many bytes they are.

    `known`: those that it is known to begin with.
    """
    found = list(known)
    position, next_offset = 0, base_offset
    if found:
        last = found[-1]
        position, next_offset = last.position + len(last.data), last.header.last_offset + 1
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        size = header.size_in_bytes
        if header.magic != 2 or size < HEADER_BYTES or size > len(data) - position:
            break
        batch = data[position : position + size]
        if header.base_offset < next_offset or not crc_is_valid(batch, header):
            break
        found.append(RawBatch(position, header, batch))
        position += size
        next_offset = header.last_offset + 1
    return found, position


def folders(disk: SimDisk) -> list[str]:
    """Partition folders, the metadata log's among them; deleted ones and strays are left out."""
    return sorted(
        folder
        for folder in disk.folders
        if folder.startswith(f"{DATA}/") and not folder.endswith(("-delete", "-stray"))
    )


def check_indexes(disk: SimDisk, log: RawLog) -> str | None:
    """What is wrong with the index files of a log that was closed in order; None if nothing."""
    for base_offset, batches in log.segments.items():
        stem = f"{log.folder}/{base_offset:020d}"
        if f"{stem}.index" not in disk.names or f"{stem}.timeindex" not in disk.names:
            continue  # built when they are needed
        for suffix, entry in ((".index", _INDEX_ENTRY), (".timeindex", _TIME_ENTRY)):
            length = len(disk.names[stem + suffix].data)
            if length % entry.size:
                return f"{stem}{suffix}: {length} bytes"
        ends = {batch.position: batch.header.last_offset - base_offset for batch in batches}
        for offset, position in _INDEX_ENTRY.iter_unpack(bytes(disk.names[f"{stem}.index"].data)):
            if ends.get(position) != offset:
                return f"{stem}.index: {offset} at {position}, there is {ends.get(position)}"
        newest = {-1: -1}
        for batch in batches:
            if batch.header.max_timestamp > max(newest):
                newest[batch.header.max_timestamp] = batch.header.last_offset - base_offset
        entries = list(_TIME_ENTRY.iter_unpack(bytes(disk.names[f"{stem}.timeindex"].data)))
        for timestamp, offset in entries:
            if newest.get(timestamp) != offset:
                return f"{stem}.timeindex: {timestamp} at {offset}, not {newest.get(timestamp)}"
        if batches and (not entries or entries[-1][0] != max(newest)):
            return f"{stem}.timeindex: ends with {entries[-1:]}, not {max(newest)}"
    return None
