"""The feature levels in a metadata directory, read before anything in it is opened or recovered.

A start that is refused for a level or a record that a newer Kafka wrote has then changed no file:
that Kafka finds its own clean shutdown. Damage ends the reading: the recovery of the log judges it.
"""

from __future__ import annotations

import bisect
import struct
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.records import levels_after
from tidelog.cluster.metadata.settings import METADATA_PARTITION
from tidelog.cluster.metadata.snapshots import list_snapshots
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import HEADER_BYTES, crc_is_valid, iter_batches, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_storage.seams import FileSystem

__all__ = ["levels_on_disk"]

_BOOTSTRAP = "bootstrap.checkpoint"
_ENTRY = struct.Struct(">II")  # of an offset index: the offset above the base, and the position


def levels_on_disk(files: FileSystem, directory: str) -> dict[str, int]:
    """Return the levels at the end of the metadata log, committed or not, as far as it is whole.

    ProtocolError for an unknown record.
    """
    folder = f"{directory}/{METADATA_PARTITION}"
    snapshots = list_snapshots(files, folder)
    path = f"{folder}/{snapshots[-1].file_name}" if snapshots else f"{directory}/{_BOOTSTRAP}"
    levels: dict[str, int] = {}
    if files.exists(path):
        levels = levels_after(levels, _batches(memoryview(files.read_bytes(path)), 0))
    since = snapshots[-1].end_offset if snapshots else 0
    for view in _segments(files, folder, since):
        levels = levels_after(levels, _batches(view, since))
    return levels


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
