"""A remote store in a directory: the embedded default, or any file system that brokers share.

Durable and all or nothing: every file is written beside its name, synced, renamed; the manifest
comes last and makes the segment visible, goes first and makes it invisible. Whatever a crash leaves
without one is not there for readers, is written again by a copy of the same id and removed by its
deletion. Calls block and come from several threads: nothing is shared but the file system.
"""

from __future__ import annotations

import errno
import io
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from tidelog_protocol.checksum import crc32c
from tidelog_storage.folders import make_durable_folder
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.layout import (
    INDEX_ENDINGS,
    LOG_ENDING,
    MANIFEST_ENDING,
    checked_parts,
    facts_of,
    folder_name,
    manifest,
    object_name,
    sources,
    views_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import BinaryIO

    from tidelog_storage.remote.api import IndexKind, OpenSegment, RemoteSegment, SegmentFiles
    from tidelog_storage.remote.layout import ObjectFacts, Source
    from tidelog_storage.seams import Buffer, File, FileSystem

__all__ = ["DirectoryStore"]

_COPY_BYTES = 1 << 20  # at a time: what a processor's cache holds
# A retry does not help: an operator has to change something first.
_LASTING = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR})
_IN_THE_WAY = frozenset({errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ELOOP})
_TRIAL = ".tidelog-writable"  # brokers that share the directory may write and remove it together


class DirectoryStore:
    """`RemoteStorage` in a directory; see `layout.py` for what lies where.

    Property `dir` names the directory.
    """

    def __init__(self, files: FileSystem | None = None, directory: str | None = None) -> None:
        """Either both are given, or `configure` names the directory on the machine's own disks."""
        self._files = files
        self._directory = directory

    def configure(self, config: Mapping[str, str]) -> None:
        """Take `dir`; the directory is made by `prepare` or the first copy."""
        if self._files is None:
            from tidelog_storage.os_files import OsFileSystem  # noqa: PLC0415 - the real one

            self._files = OsFileSystem()
        directory = config.get("dir") or self._directory
        if not directory:
            raise ValueError("dir: the directory of the remote tier is not given")
        self._directory = directory.rstrip("/") or "/"

    def prepare(self) -> None:
        """Make the directory, of a store that is to be written to: ValueError if it can't be.

        What may pass by itself, as a full disk does, is for the copies to meet.
        """
        files, directory = self._files, self._directory
        if files is None or directory is None:
            return  # a subclass has its own
        trial = f"{directory}/{_TRIAL}"
        try:
            make_durable_folder(files, directory)
            files.open(trial, create=True).close()
            files.remove(trial)
        except OSError as error:
            if error.errno in _LASTING | _IN_THE_WAY:
                reason = error.strerror or error
                raise ValueError(f"dir: {directory} cannot be written to: {reason}") from error

    # ---- copying ------------------------------------------------------------------------------

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> None:
        """Copy all files, then let the manifest appear. There is no custom metadata."""
        try:
            with _errors(segment, missing=RetriableRemoteStorageError):  # its folder may have gone
                self._copy_all(segment, data)
        except Exception:
            # The next try has another id and would never remove these files, which take space on a
            # full disk.
            with suppress(Exception):
                DirectoryStore.delete_segment(self, segment)
            raise

    def _copy_all(self, segment: RemoteSegment, data: SegmentFiles) -> None:
        files, folder = self._place(segment)
        make_durable_folder(files, folder)
        files.remove(f"{folder}/{object_name(segment, MANIFEST_ENDING)}")
        objects = {
            ending: self._copy(files, source, f"{folder}/{object_name(segment, ending)}")
            for ending, source in sources(data)
        }
        if objects[LOG_ENDING][0] != segment.size:
            raise RemoteStorageError(
                f"{data.log} has {objects[LOG_ENDING][0]} bytes, not {segment.size}"
            )
        files.fsync_dir(folder)
        target = f"{folder}/{object_name(segment, MANIFEST_ENDING)}"
        self._write(files, (manifest(segment, objects),), target)
        files.fsync_dir(folder)

    def _copy(self, files: FileSystem, source: Source, target: str) -> ObjectFacts:
        facts = [0, 0]
        self._write(files, checked_parts(views_of(files, source, _COPY_BYTES), facts), target)
        return facts[0], facts[1]

    def _write(self, files: FileSystem, parts: Iterable[Buffer], target: str) -> None:
        """Beside it, under the one name that a deletion looks for too: a crash may leave it."""
        temporary = target + ".tmp"
        files.remove(temporary)
        file = files.open(temporary, create=True)
        try:
            for part in parts:
                file.append((part,))
            file.fsync()
        finally:
            file.close()
        files.rename(temporary, target)

    # ---- reading ------------------------------------------------------------------------------

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """The bytes of the `.log`, read as they are asked for."""
        return self._open(segment, LOG_ENDING, start, end)

    def open_segment(self, segment: RemoteSegment) -> OpenSegment:
        """The `.log`, for what the page cache has of it; see `NearRemoteStorage`."""
        with _errors(segment):
            return _OpenLog(self._file(segment, LOG_ENDING), segment)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """One index, whole, and checked: Kafka's formats have no checksum of their own, and a
        transaction index cut at an entry would have aborted records served.

        CorruptRemoteDataError unless it is what was copied.
        """
        with _errors(segment):
            files, folder = self._place(segment)
            name = object_name(segment, INDEX_ENDINGS[kind])
            path = f"{folder}/{object_name(segment, MANIFEST_ENDING)}"
            try:
                facts = facts_of(files.read_bytes(path), name)
            except ValueError as error:
                raise CorruptRemoteDataError(f"{path}: {error}") from error
            if facts is None:
                raise RemoteResourceNotFound(f"there is no {name}")
            try:
                data = _whole(files, f"{folder}/{name}", facts[0])
            except FileNotFoundError:
                if not files.exists(path):
                    raise  # the segment was deleted meanwhile
                data = None
        if data is None or crc32c(data, 0) != facts[1]:
            raise CorruptRemoteDataError(f"{folder}/{name} differs from what was copied")
        return io.BytesIO(data)

    def fetch_manifest(self, segment: RemoteSegment) -> BinaryIO:
        """What was copied; see `DescribedRemoteStorage`."""
        return self._open(segment, MANIFEST_ENDING, 0, None)

    def _file(self, segment: RemoteSegment, ending: str) -> File:
        files, folder = self._place(segment)
        if not files.exists(f"{folder}/{object_name(segment, MANIFEST_ENDING)}"):
            raise RemoteResourceNotFound(f"there is no segment {_name(segment)}")
        return files.open(f"{folder}/{object_name(segment, ending)}")

    def _open(self, segment: RemoteSegment, ending: str, start: int, end: int | None) -> BinaryIO:
        if start < 0 or (end is not None and end < start):
            raise ValueError(f"invalid range of a segment: bytes {start} to {end}")
        with _errors(segment):
            file = self._file(segment, ending)
            size = file.size()
        stop = size if end is None else min(end + 1, size)
        return cast("BinaryIO", _Part(file, min(start, stop), stop, segment))

    # ---- deleting -----------------------------------------------------------------------------

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Hide the segment, then remove its files, and the partition's folder with the last.

        Each step is durable, in this order: nothing removes the files of a segment that is already
        gone.
        """
        with _errors(segment):
            files, folder = self._place(segment)
            if not files.exists(folder):
                return
            files.remove(f"{folder}/{object_name(segment, MANIFEST_ENDING)}")
            files.fsync_dir(folder)
            for ending in (LOG_ENDING, *INDEX_ENDINGS.values(), MANIFEST_ENDING):
                path = f"{folder}/{object_name(segment, ending)}"
                files.remove(path)
                files.remove(path + ".tmp")
            try:
                files.fsync_dir(folder)
            except FileNotFoundError:  # another deletion has removed the folder meanwhile
                files.fsync_dir(folder.rpartition("/")[0])
            files.remove_empty_dir(folder)

    def close(self) -> None:
        """Nothing is held."""

    def _place(self, segment: RemoteSegment) -> tuple[FileSystem, str]:
        assert self._files is not None, "configure comes first"
        assert self._directory is not None, "configure comes first"
        return self._files, f"{self._directory}/{folder_name(segment.topic_id_partition)}"


class _Part(io.RawIOBase):
    """Some bytes of an open file; what is read is read in one call."""

    fills_buffers = True  # see `chunks.load_chunk`

    def __init__(self, file: File, position: int, end: int, segment: RemoteSegment) -> None:
        self._file = file
        self._position = position
        self._end = end
        self._segment = segment

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes (all that are left without one); empty at the end."""
        left = self._end - self._position
        wanted = left if size is None or size < 0 else min(size, left)
        with _errors(self._segment):
            data = self._file.pread(self._position, wanted)
        self._position += len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:  # type: ignore[override]
        """Fill a buffer as far as there are bytes."""
        target = memoryview(buffer)[: self._end - self._position]
        with _errors(self._segment):
            size = self._file.pread_into(self._position, target)
        self._position += size
        return size

    def close(self) -> None:
        """Close the file too."""
        if not self.closed:
            self._file.close()
        super().close()


class _OpenLog:
    """An `OpenSegment`."""

    def __init__(self, file: File, segment: RemoteSegment) -> None:
        self._file: File | None = file
        self._segment = segment

    def read_now(self, position: int, buffer: memoryview) -> int:
        """What the page cache has."""
        assert self._file is not None, "it is closed"
        try:
            return self._file.pread_cached_into(position, buffer)
        except OSError as error:
            raise RetriableRemoteStorageError(f"{_name(self._segment)}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        """Close it if its reader was cancelled while a thread opened it."""
        self.close()


def _whole(files: FileSystem, path: str, size: int) -> bytes | None:
    """All of a file, None if it has another size."""
    file = files.open(path)
    try:
        return file.pread(0, size) if file.size() == size else None
    finally:
        file.close()


@contextmanager
def _errors(
    segment: RemoteSegment, missing: type[RemoteStorageError] = RemoteResourceNotFound
) -> Iterator[None]:
    """The operating system's errors as the remote tier's; `missing` if there is no such file."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(f"{_name(segment)}: {error}") from error
    except OSError as error:
        kind = RemoteStorageError if error.errno in _LASTING else RetriableRemoteStorageError
        raise kind(f"{_name(segment)}: {error}") from error


def _name(segment: RemoteSegment) -> str:
    return f"{folder_name(segment.topic_id_partition)}/{object_name(segment, '')}"
