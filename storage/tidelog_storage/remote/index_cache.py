"""Indexes of remote segments on the local disk, bounded by bytes (Kafka: RemoteIndexCache).

Folder `remote-log-index-cache` of the first log directory, `<start offset>_<segment id>` with the
endings `.index`, `.timeindex`, `.txnindex`, in Kafka's formats. A segment has all three or none: a
file appears by renaming what was fetched and checked, and what a crash left in part is dropped at
the next start. Those in use are also in memory, parsed.

`load` blocks, touches files alone and runs on worker threads; between `begin` and `put` or
`give_up` nothing else touches the files of that segment. All the rest is state of the loop. What a
reader has been given stays good: it is in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidelog_protocol.batch import HEADER_BYTES
from tidelog_protocol.primitives import uuid_from_str, uuid_to_str
from tidelog_storage.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TRANSACTION_ENTRY,
    CorruptIndexError,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound, RemoteStorageError
from tidelog_storage.remote.chunks import CorruptRemoteDataError, read_exactly

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_storage.indexes import AbortedEntry
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage
    from tidelog_storage.seams import FileSystem

__all__ = ["IndexCache", "RemoteIndexes"]

FOLDER = "remote-log-index-cache"
REMOVE_DELAY_MS = 10_000
_DELETED = ".deleted"
_TEMPORARY = ".tmp"
_ENDINGS = {
    IndexKind.OFFSET: ".index",
    IndexKind.TIMESTAMP: ".timeindex",
    IndexKind.TRANSACTION: ".txnindex",
}
_ENTRY_BYTES = {
    IndexKind.OFFSET: OFFSET_ENTRY.size,
    IndexKind.TIMESTAMP: TIME_ENTRY.size,
    IndexKind.TRANSACTION: TRANSACTION_ENTRY.size,
}
_PARSED_BYTES_MAX = 32 << 20


class RemoteIndexes(NamedTuple):
    """The indexes of one segment. `size`: bytes on the disk. `times` is only loaded on request: few
    look-ups go by time."""

    offsets: OffsetIndex
    transactions: tuple[AbortedEntry, ...]
    size: int
    times: TimeIndex | None = None


class _Entry:
    """What is on the disk for one segment; `indexes` while they are in memory too."""

    __slots__ = ("indexes", "size", "stem", "used_ms")

    def __init__(self, stem: str, size: int, used_ms: int) -> None:
        self.stem = stem
        self.size = size
        self.used_ms = used_ms
        self.indexes: RemoteIndexes | None = None


class IndexCache:
    """Least recently used first. Invariant: `bytes` is the size of all entries, and at most
    `capacity_bytes` but for the newest entry, which is kept however large it is."""

    def __init__(
        self,
        files: FileSystem,
        log_dir: str,
        capacity_bytes: int,
        *,
        ttl_ms: int = 900_000,
    ) -> None:
        """`capacity_bytes`: remote.log.index.file.cache.total.size.bytes; `ttl_ms` -1: for ever."""
        self.folder = f"{log_dir}/{FOLDER}"
        self.bytes = 0
        self._capacity_bytes = capacity_bytes
        self._ttl_ms = ttl_ms
        self._files = files
        self._entries: dict[UUID, _Entry] = {}
        self._loading: dict[UUID, bool] = {}  # True: to be dropped as soon as it is there
        self._parsed: dict[UUID, int] = {}  # size by segment, least recently used first
        self._parsed_bytes = 0
        self._removals: list[tuple[int, str]] = []  # when due, path
        self._closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, segment_id: UUID) -> bool:
        return segment_id in self._entries

    def open(self, now_ms: int) -> None:
        """Make the folder, or take over what an earlier life left: whole triples; what else it left
        is removed. OSError if that cannot be."""
        files = self._files
        if files.is_link(self.folder):  # what it leads to would be emptied
            raise OSError(f"{self.folder} is a symbolic link, and none is followed")
        files.make_dirs(self.folder)
        stems: dict[str, dict[str, int]] = {}
        for name, size in files.sizes(self.folder).items():
            stem, _, ending = name.partition(".")
            if _segment_id(stem) is None:
                continue  # no broker made it
            if f".{ending}" in _ENDINGS.values():
                stems.setdefault(stem, {})[ending] = size
            else:
                files.remove(f"{self.folder}/{name}")
        for stem, sizes in stems.items():
            segment_id = _segment_id(stem)
            assert segment_id is not None
            if len(sizes) == len(_ENDINGS):
                self._add(segment_id, _Entry(stem, sum(sizes.values()), now_ms))
            else:
                for ending in sizes:
                    files.remove(f"{self.folder}/{stem}.{ending}")
        self._evict(now_ms)

    # ---- look-ups (on the loop) ---------------------------------------------------------------

    def get(self, segment_id: UUID, now_ms: int) -> RemoteIndexes | None:
        """The indexes, if they are in memory; else they are to be loaded."""
        assert not self._closed, "the index cache is closed"
        entry = self._entries.get(segment_id)
        if entry is None:
            return None
        self._touch(segment_id, entry, now_ms)
        return entry.indexes

    def begin(self, segment_id: UUID) -> None:
        """`load` is going to be called for this segment; once at a time."""
        assert not self._closed, "the index cache is closed"
        assert segment_id not in self._loading
        self._loading[segment_id] = False

    def put(self, segment: RemoteSegment, indexes: RemoteIndexes, now_ms: int) -> None:
        """What `load` gave; others go for it if there are too many."""
        segment_id = segment.segment_id
        entry = self._entries.get(segment_id)
        if entry is None:
            entry = _Entry(_stem(segment), indexes.size, now_ms)
            self._add(segment_id, entry)
        elif entry.size != indexes.size:
            self.bytes += indexes.size - entry.size
            entry.size = indexes.size
        self._touch(segment_id, entry, now_ms)
        entry.indexes = indexes
        self._parsed[segment_id] = indexes.size
        self._parsed_bytes += indexes.size
        while self._parsed_bytes > _PARSED_BYTES_MAX and len(self._parsed) > 1:
            oldest = next(iter(self._parsed))
            self._entries[oldest].indexes = None
            self._forget_parsed(oldest)
        if self._loading.pop(segment_id):
            self.remove((segment_id,), now_ms)
        self._evict(now_ms)

    def give_up(self, segment_id: UUID, now_ms: int) -> None:
        """`load` failed: nothing of the segment is kept."""
        del self._loading[segment_id]
        self.remove((segment_id,), now_ms)

    def remove(self, segment_ids: Iterable[UUID], now_ms: int) -> None:
        """Drop segments: deleted ones, or those whose files turned out to be wrong."""
        for segment_id in segment_ids:
            if segment_id in self._loading:
                self._loading[segment_id] = True
            elif segment_id in self._entries:
                self._drop(segment_id, now_ms)

    def resize(self, capacity_bytes: int, now_ms: int) -> None:
        """Follow the setting."""
        self._capacity_bytes = capacity_bytes
        self._evict(now_ms)

    def expire(self, now_ms: int) -> list[str]:
        """Drop what was not used for so long; paths of files whose time to be removed has come."""
        if self._ttl_ms >= 0:
            for segment_id, entry in list(self._entries.items()):
                if now_ms - entry.used_ms < self._ttl_ms:
                    break  # the rest was used later
                self.remove((segment_id,), now_ms)
        due = [path for when_ms, path in self._removals if when_ms <= now_ms]
        self._removals = [removal for removal in self._removals if removal[0] > now_ms]
        return due

    @property
    def has_removals(self) -> bool:
        """Whether there are files that wait to be removed."""
        return bool(self._removals)

    def close(self) -> None:
        """Let go of memory; the files stay for the next life. Closing twice is allowed."""
        self._closed = True
        self._entries.clear()
        self._parsed.clear()
        self.bytes = self._parsed_bytes = 0

    def _add(self, segment_id: UUID, entry: _Entry) -> None:
        self._entries[segment_id] = entry
        self.bytes += entry.size

    def _touch(self, segment_id: UUID, entry: _Entry, now_ms: int) -> None:
        entry.used_ms = now_ms
        self._entries[segment_id] = self._entries.pop(segment_id)
        if segment_id in self._parsed:
            self._parsed[segment_id] = self._parsed.pop(segment_id)

    def _evict(self, now_ms: int) -> None:
        if self.bytes <= self._capacity_bytes:
            return
        newest = next(reversed(self._entries))
        for segment_id in list(self._entries):
            if segment_id != newest and segment_id not in self._loading:
                self._drop(segment_id, now_ms)
                if self.bytes <= self._capacity_bytes:
                    return

    def _drop(self, segment_id: UUID, now_ms: int) -> None:
        """Rename the files; they are removed later, as in Kafka."""
        entry = self._entries.pop(segment_id)
        self.bytes -= entry.size
        if segment_id in self._parsed:
            self._forget_parsed(segment_id)
        for ending in _ENDINGS.values():
            path = f"{self.folder}/{entry.stem}{ending}"
            try:
                self._files.rename(path, path + _DELETED)
            except FileNotFoundError:
                continue  # already removed by another thread
            self._removals.append((now_ms + REMOVE_DELAY_MS, path + _DELETED))

    def _forget_parsed(self, segment_id: UUID) -> None:
        self._parsed_bytes -= self._parsed.pop(segment_id)

    # ---- files (on worker threads) ------------------------------------------------------------

    def load(
        self, segment: RemoteSegment, store: RemoteStorage, *, with_times: bool = False
    ) -> RemoteIndexes:
        """Read the indexes from the disk, or fetch them if they are not there or not right.

        RemoteStorageError; CorruptRemoteDataError for an answer that cannot be right.
        """
        path = f"{self.folder}/{_stem(segment)}"
        try:
            try:
                return self._read(segment, path, "", with_times=with_times)
            except (FileNotFoundError, CorruptIndexError):
                return self._fetch_all(segment, store, path, with_times=with_times)
        except CorruptIndexError as error:
            raise CorruptRemoteDataError(f"invalid answer of the remote store: {error}") from error
        except OSError as error:
            raise RemoteStorageError(f"index cache: {error}") from error

    def _fetch_all(
        self, segment: RemoteSegment, store: RemoteStorage, path: str, *, with_times: bool
    ) -> RemoteIndexes:
        """Fetch beside the names, check, rename."""
        try:
            for kind, ending in _ENDINGS.items():
                self._fetch(segment, store, kind, path + ending + _TEMPORARY)
            indexes = self._read(segment, path, _TEMPORARY, with_times=with_times)
            for ending in _ENDINGS.values():
                self._files.rename(path + ending + _TEMPORARY, path + ending)
        finally:
            for ending in _ENDINGS.values():
                self._files.remove(path + ending + _TEMPORARY)
        return indexes

    def remove_files(self, paths: Iterable[str]) -> None:
        """Remove what `expire` gave."""
        for path in paths:
            self._files.remove(path)

    def _read(
        self, segment: RemoteSegment, path: str, behind: str, *, with_times: bool
    ) -> RemoteIndexes:
        """The three files, whose names end in `behind`, parsed and checked."""
        files = self._files
        start = segment.start_offset
        offsets = OffsetIndex(files, path + _ENDINGS[IndexKind.OFFSET] + behind, start)
        offsets.load(segment.size)
        if offsets.offsets and offsets.offsets[-1] > segment.end_offset - start:
            raise CorruptIndexError(f"{path}: offsets past the end of the segment")
        transactions, size = self._read_transactions(
            segment, path + _ENDINGS[IndexKind.TRANSACTION] + behind
        )
        size += OffsetIndex.ENTRY_BYTES * len(offsets)
        path += _ENDINGS[IndexKind.TIMESTAMP] + behind
        times: TimeIndex | None = TimeIndex(files, path, start)
        if with_times:
            assert times is not None
            times.load()
            size += TimeIndex.ENTRY_BYTES * len(times)
        else:
            times_size = len(files.read_bytes(path))
            if times_size % TimeIndex.ENTRY_BYTES:
                raise CorruptIndexError(f"{path}: a time index of {times_size} bytes")
            size += times_size
            times = None
        return RemoteIndexes(offsets, transactions, size, times)

    def _read_transactions(
        self, segment: RemoteSegment, path: str
    ) -> tuple[tuple[AbortedEntry, ...], int]:
        """Entries and size of a transaction index."""
        index = TransactionIndex(self._files, path)
        index.load()
        size = len(self._files.read_bytes(path))
        if size != _ENTRY_BYTES[IndexKind.TRANSACTION] * len(index.entries):
            raise CorruptIndexError(f"{path}: a torn transaction index")
        for entry in index.entries:
            inside = segment.start_offset <= entry.last_offset <= segment.end_offset
            if not inside or entry.first_offset > entry.last_offset:
                raise CorruptIndexError(f"{path}: an aborted transaction outside the segment")
        return tuple(index.entries), size

    def _fetch(
        self, segment: RemoteSegment, store: RemoteStorage, kind: IndexKind, path: str
    ) -> None:
        """Write one index to a file; an empty one for a transaction index that there is not."""
        # No index has more entries than its segment has batches.
        bytes_max = (segment.size // HEADER_BYTES + 2) * _ENTRY_BYTES[kind]
        data = b""
        if kind is not IndexKind.TRANSACTION or not segment.txn_index_empty:
            try:
                with store.fetch_index(segment, kind) as stream:
                    data = read_exactly(stream, bytes_max + 1)
            except RemoteResourceNotFound:
                if kind is not IndexKind.TRANSACTION:
                    raise
        if len(data) > bytes_max:
            raise CorruptIndexError(f"{path}: larger than its segment allows")
        self._files.remove(path)  # a crash may have left it
        file = self._files.open(path, create=True)
        try:
            if data:
                file.append((data,))
                if kind is IndexKind.TRANSACTION:
                    file.fsync()  # zeros after a power failure would be a transaction of producer 0
        finally:
            file.close()


def _stem(segment: RemoteSegment) -> str:
    return f"{segment.start_offset}_{uuid_to_str(segment.segment_id.bytes)}"


def _segment_id(stem: str) -> UUID | None:
    """The segment's id in a file's name; None if it is none of ours."""
    start, separator, text = stem.partition("_")
    if not separator or not start.isdigit():
        return None
    try:
        return UUID(bytes=uuid_from_str(text))
    except ValueError:
        return None
