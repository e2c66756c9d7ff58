"""The three indexes of a segment, in Kafka's own file formats.

Offset index: (offset, position) of a batch at most every `index.interval.bytes`; time index: the
largest timestamp so far and its offset, at the same moments and when the segment is sealed;
transaction index: aborted transactions. Entries of the first two live in compact arrays and reach
their file in bulk (`write`: at roll, flush, close), so that indexing costs no system call on the
append path. An unclean stop therefore loses them; recovery builds them again from the records.

A `Segment` owns its indexes and is the only caller. They know nothing of records.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import closing
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from tidelog_storage.seams import File, FileSystem

RELATIVE_OFFSET_MAX = 0x7FFFFFFF
NO_TIMESTAMP = -1

OFFSET_ENTRY = Struct(">ii")  # offset less the segment's first, position
TIME_ENTRY = Struct(">qi")  # timestamp, offset less the segment's first
TRANSACTION_ENTRY = Struct(">hqqqq")  # version, and an `AbortedEntry`
_LITTLE_ENDIAN = sys.byteorder == "little"


class CorruptIndexError(Exception):
    """An invalid index file; the segment rebuilds it from its records."""


class _Index:
    """The shared part of the two array-backed indexes: reading and writing the file."""

    __slots__ = (
        "_entries_written",
        "_files",
        "_has_file",
        "base_offset",
        "is_synced",
        "offsets",
        "path",
    )

    ENTRY_BYTES: ClassVar[int]

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self._entries_written = 0  # entries in the file that are still valid
        self._has_file = False  # and it holds nothing else
        self.base_offset = base_offset
        self.is_synced = True  # the file's content; set by the code that syncs it
        self.offsets = array("i")  # relative to the base

    def __len__(self) -> int:
        return len(self.offsets)

    def _encode(self, first: int) -> bytes:
        raise NotImplementedError

    def _cut(self, entries: int) -> None:
        raise NotImplementedError

    def open_written(self) -> File:
        """Bring the file up to date and leave it open, for the caller to sync and close."""
        file = self._files.open(self.path, create=True)
        kept = self._entries_written
        size = file.size()
        if size < kept * self.ENTRY_BYTES:
            kept = 0
        if size > kept * self.ENTRY_BYTES:
            file.truncate(kept * self.ENTRY_BYTES)
            self.is_synced = False
        if kept < len(self):
            self.is_synced = False
            file.append((self._encode(kept),))
        self._entries_written = len(self)
        self._has_file = True
        return file

    def write(self) -> None:
        """Bring the file up to date, without syncing it; an empty index is an empty file."""
        if not self._has_file or self._entries_written != len(self):
            self.open_written().close()

    def truncate_to(self, offset: int) -> None:
        """Drop entries at or above `offset`."""
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        entries = bisect_left(self.offsets, relative)
        self._cut(entries)
        if self._entries_written > entries:
            self._entries_written = entries
            self._has_file = False  # it has more entries than the index, until the next write

    def _read(self) -> bytes:
        data = self._files.read_bytes(self.path)
        if len(data) % self.ENTRY_BYTES:
            raise CorruptIndexError(
                f"{self.path}: {len(data)} bytes are not a multiple of {self.ENTRY_BYTES}"
            )
        self._entries_written = len(data) // self.ENTRY_BYTES
        self._has_file = True
        return data

    def _corrupt(self, why: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: {why}")


class OffsetIndex(_Index):
    """Entries of int32 offset (relative to the base), int32 position; both strictly rising.

    An entry names the last offset of a batch and the batch's position.
    """

    __slots__ = ("positions",)

    ENTRY_BYTES = OFFSET_ENTRY.size

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self.positions = array("i")

    def append(self, offset: int, position: int) -> None:
        """Add that the batch at `position` ends with `offset`."""
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """Position of the batch of the largest entry at or below `offset`; 0 without one."""
        relative = offset - self.base_offset
        if relative > RELATIVE_OFFSET_MAX:
            return self.positions[-1] if self.positions else 0
        slot = bisect_right(self.offsets, relative) - 1
        return self.positions[slot] if slot >= 0 else 0

    def floor(self, offset: int) -> tuple[int, int] | None:
        """The largest entry at or below `offset`, as (offset, position)."""
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        slot = bisect_right(self.offsets, relative) - 1
        return self._entry(slot) if slot >= 0 else None

    def before(self, position: int) -> tuple[int, int] | None:
        """The entry with the largest position at or below `position`, as (offset, position)."""
        slot = bisect_right(self.positions, position) - 1
        return self._entry(slot) if slot >= 0 else None

    def last(self) -> tuple[int, int] | None:
        """The newest entry, as (offset, position)."""
        return self._entry(-1) if self.offsets else None

    def _entry(self, slot: int) -> tuple[int, int]:
        return self.base_offset + self.offsets[slot], self.positions[slot]

    def last_position(self) -> int:
        """Position of the newest entry; 0 without one."""
        return self.positions[-1] if self.positions else 0

    def load(self, records_bytes: int) -> None:
        """Read the file; `CorruptIndexError` if it does not fit records of that many bytes."""
        entries = array("i", self._read())
        if _LITTLE_ENDIAN:
            entries.byteswap()
        self.offsets = entries[0::2]
        self.positions = entries[1::2]
        if not entries:
            return
        if self.offsets[0] < 0 or self.positions[0] < 0 or self.positions[-1] >= records_bytes:
            raise self._corrupt(f"entries outside of the segment's {records_bytes} bytes")
        if not _rises(self.offsets) or not _rises(self.positions):
            raise self._corrupt("entries do not rise")

    def _encode(self, first: int) -> bytes:
        entries = array("i", bytes(8 * (len(self.offsets) - first)))
        entries[0::2] = self.offsets[first:]
        entries[1::2] = self.positions[first:]
        if _LITTLE_ENDIAN:
            entries.byteswap()
        return entries.tobytes()

    def _cut(self, entries: int) -> None:
        del self.offsets[entries:]
        del self.positions[entries:]


class TimeIndex(_Index):
    """Entries of int64 timestamp (ms), int32 offset (relative to the base).

    An entry means that no record up to that offset is newer. Timestamps rise strictly.
    """

    __slots__ = ("timestamps",)

    ENTRY_BYTES = TIME_ENTRY.size

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self.timestamps = array("q")

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the newest has that timestamp already."""
        last = self.timestamps[-1] if self.timestamps else NO_TIMESTAMP
        if timestamp > last:
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """Offset of the largest entry at or below `timestamp`; the base offset without one."""
        slot = bisect_right(self.timestamps, timestamp) - 1
        return self.base_offset + (self.offsets[slot] if slot >= 0 else 0)

    def floor(self, timestamp: int) -> tuple[int, int] | None:
        """The largest entry at or below `timestamp`, as (timestamp, offset)."""
        slot = bisect_right(self.timestamps, timestamp) - 1
        return (self.timestamps[slot], self.base_offset + self.offsets[slot]) if slot >= 0 else None

    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the newest entry; (-1, base offset) without one."""
        if not self.timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def load(self) -> None:
        """Read the file; `CorruptIndexError` if its entries are invalid."""
        data = self._read()
        count = len(data) // TIME_ENTRY.size
        self.timestamps = array("q", bytes(8 * count))
        self.offsets = array("i", bytes(4 * count))
        for slot, (timestamp, offset) in enumerate(TIME_ENTRY.iter_unpack(data)):
            self.timestamps[slot] = timestamp
            self.offsets[slot] = offset
        if not count:
            return
        if self.offsets[0] < 0 or not _rises(self.timestamps):
            raise self._corrupt("timestamps do not rise")
        if sorted(self.offsets) != self.offsets.tolist():
            raise self._corrupt("offsets fall")

    def _encode(self, first: int) -> bytes:
        pack = TIME_ENTRY.pack
        entries = zip(self.timestamps[first:], self.offsets[first:], strict=True)
        return b"".join([pack(timestamp, offset) for timestamp, offset in entries])

    def _cut(self, entries: int) -> None:
        del self.timestamps[entries:]
        del self.offsets[entries:]


class AbortedEntry(NamedTuple):
    """One aborted transaction: 34 bytes of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # after the marker


class TransactionIndex:
    """Aborted transactions whose marker lies in this segment, in the order of the markers.

    Written at once, because aborts are rare; the file exists only if there are entries.
    """

    __slots__ = ("_files", "entries", "is_whole", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.is_whole = True  # the file has all entries; not after one could not be written
        self.path = path
        self.entries: list[AbortedEntry] = []

    def load(self) -> None:
        """Read the file, if there is one, without a partial last entry."""
        self.entries = []
        try:
            data = self._files.read_bytes(self.path)
        except FileNotFoundError:
            return
        whole = len(data) - len(data) % TRANSACTION_ENTRY.size
        self.is_whole = whole == len(data)
        for version, *fields in TRANSACTION_ENTRY.iter_unpack(data[:whole]):
            if version != 0:
                raise CorruptIndexError(f"{self.path}: entry of version {version}")
            self.entries.append(AbortedEntry(*fields))

    def append(self, entry: AbortedEntry) -> None:
        """Add an aborted transaction; if it can't be written (OSError), `open_written` does it."""
        self.entries.append(entry)
        was_whole, self.is_whole = self.is_whole, False
        with closing(self._files.open(self.path, create=True)) as file:
            file.append((TRANSACTION_ENTRY.pack(0, *entry),))
        self.is_whole = was_whole

    def open_written(self) -> File | None:
        """The file, left open for the caller to sync and close; None without entries."""
        if not self.is_whole:
            self._rewrite()
        return self._files.open(self.path, create=True) if self.entries else None

    def replace(self, entries: list[AbortedEntry]) -> None:
        """Set the entries, whatever the file holds."""
        self.entries = entries
        if entries:
            self._rewrite()
        else:
            self.reset()

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker is at or above `offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self._rewrite()

    def reset(self) -> None:
        """Drop all entries and the file."""
        self.entries = []
        self._files.remove(self.path)
        self.is_whole = True

    def collect(self, start_offset: int, upper_bound: int, found: list[AbortedEntry]) -> bool:
        """Add entries that overlap [start, upper bound) to `found`; return whether later segments
        add none."""
        for entry in self.entries:
            if entry.last_offset >= start_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False

    def _rewrite(self) -> None:
        self.is_whole = False
        with closing(self._files.open(self.path, create=True)) as file:
            file.truncate(0)
            if self.entries:
                file.append(
                    (b"".join(TRANSACTION_ENTRY.pack(0, *entry) for entry in self.entries),)
                )
        self.is_whole = True


def _rises(values: array[int]) -> bool:
    """Return whether each value is larger than the one before."""
    iterator = iter(values)
    previous = next(iterator)
    for value in iterator:
        if value <= previous:
            return False
        previous = value
    return True
