"""The feature levels in a metadata directory, read before anything in it is opened or recovered.

A start that is refused for a level or a record that a newer Kafka wrote has then changed no file:
that Kafka finds its own clean shutdown. Damage of the log ends the reading: its recovery judges it.
"""

from __future__ import annotations

import bisect
import struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.records import levels_after
from tidelog.cluster.metadata.settings import BOOTSTRAP_CHECKPOINT, METADATA_PARTITION
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import HEADER_BYTES, crc_is_valid, iter_batches, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.snapshots import SnapshotId
    from tidelog_storage.seams import FileSystem

__all__ = ["OnDisk", "ReadSnapshot", "levels_on_disk"]

_ENTRY = struct.Struct(">II")  # of an offset index: the offset above the base, and the position


class ReadSnapshot(NamedTuple):
    """A snapshot that was read, so that the log need not read it again."""

    snapshot: SnapshotId
    image: ClusterImage


class OnDisk(NamedTuple):
    """What a metadata directory says before it is opened."""

    levels: dict[str, int]
    newest: ReadSnapshot | None
    """The newest snapshot, if there is any."""


def levels_on_disk(
    files: FileSystem, directory: str, cluster_id: str = "", listener: str = ""
) -> OnDisk:
    """Return the levels at the end of the metadata log, committed or not, as far as it is whole.

    ProtocolError for an unknown record, or a snapshot that is damaged. `cluster_id` and `listener`
    are those of its image.
    """
    folder, first = f"{directory}/{METADATA_PARTITION}", f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    newest = _newest_snapshot(files, folder, cluster_id, listener)
    levels: dict[str, int] = {}
    since = 0
    if newest is not None:
        levels, since = dict(newest.image.features), newest.snapshot.end_offset
    elif files.exists(first):
        levels = levels_after(levels, _batches(memoryview(files.read_bytes(first)), 0))
    for view in _segments(files, folder, since):
        levels = levels_after(levels, _batches(view, since))
    return OnDisk(levels, newest)


def _newest_snapshot(
    files: FileSystem, folder: str, cluster_id: str, listener: str
) -> ReadSnapshot | None:
    names = files.list(folder) if files.exists(folder) else []
    if not any(name.endswith(".checkpoint") for name in names):
        return None
    from tidelog.cluster.metadata.snapshots import (  # noqa: PLC0415 - with the first snapshot
        list_snapshots,
        read_snapshot,
    )

    snapshots = list_snapshots(files, folder)
    if not snapshots:
        return None
    image = read_snapshot(files, folder, snapshots[-1], cluster_id, listener)
    return ReadSnapshot(snapshots[-1], image)


def _segments(files: FileSystem, folder: str, since: int) -> Iterator[memoryview]:
    """Yield the parts of the log's files with this offset and those after it."""
    names = files.list(folder) if files.exists(folder) else []
    stems = [name.removesuffix(".log") for name in names if name.endswith(".log")]
    bases = sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())
    first = max(0, bisect.bisect_right(bases, since) - 1)
    for base in bases[first:]:
        file = files.open(f"{folder}/{base:020d}.log")
        try:
            size = file.size()
            start = _position(files, f"{folder}/{base:020d}.index", since - base)
            if start and not _is_batch(file.pread(start, HEADER_BYTES), since):
                start = 0
            if size > start:
                yield file.view(start, size - start)
        finally:
            file.close()


def _position(files: FileSystem, path: str, relative: int) -> int:
    """Return where the last batch in an offset index is that is not above an offset, or 0."""
    if relative <= 0 or not files.exists(path):
        return 0
    index = files.read_bytes(path)
    found, low, high = 0, 0, len(index) // _ENTRY.size
    while low < high:  # zeros follow what is written, up to megabytes of them after a kill
        middle = (low + high) // 2
        offset, position = _ENTRY.unpack_from(index, middle * _ENTRY.size)
        if position and offset <= relative:
            found, low = position, middle + 1
        else:
            high = middle
    return found


def _is_batch(header: bytes, since: int) -> bool:
    """Return whether a batch begins here that is not above an offset."""
    try:
        return len(header) == HEADER_BYTES and read_header(header).base_offset <= since
    except ProtocolError:
        return False


def _batches(view: memoryview, since: int) -> Iterator[memoryview]:
    """Yield the batches of records from an offset on, up to the first that is damaged."""
    batches = iter_batches(view)
    while True:
        try:
            position, header = next(batches, (0, None))
        except ProtocolError:
            return
        if header is None or not crc_is_valid(view, header, position):
            return
        if not header.is_control and header.next_offset > since:
            yield view[position : position + header.size_in_bytes]
