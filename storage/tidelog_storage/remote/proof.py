"""A copy that is looked at: on a store's word alone that it has copied nothing local is deleted.

The end of the `.log` is asked for again in the same call, as its bytes are: what is not there, was
cut short or is of another segment is found without reading all of it. Kafka takes the store's word.
Runs on worker threads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.api import RetriableRemoteStorageError
from tidelog_storage.remote.chunks import read_exactly

if TYPE_CHECKING:
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage, SegmentFiles
    from tidelog_storage.seams import FileSystem

__all__ = ["Copied", "copy_and_look", "look"]

TAIL_BYTES = 1024


class Copied(NamedTuple):
    """What a store has answered to a copy, and how it was found then.

    `tail` is the local segment's end. `doubt` says what is wrong with the store's, None for
    nothing.
    """

    custom_metadata: bytes | None
    tail: bytes
    doubt: str | None


def copy_and_look(
    store: RemoteStorage, segment: RemoteSegment, data: SegmentFiles, files: FileSystem
) -> Copied:
    """Have a segment copied, whose files are local in `files`, and look whether it is there.

    What the store raises by `copy_segment`; RetriableRemoteStorageError if the local file can't be
    read.
    """
    tail = _local_tail(files, data.log, segment.size)  # now: the log may be cut meanwhile
    custom_metadata = store.copy_segment(segment, data)
    there = replace(segment, custom_metadata=custom_metadata)
    return Copied(custom_metadata, tail, look(store, there, tail))


def look(store: RemoteStorage, segment: RemoteSegment, tail: bytes) -> str | None:
    """Whether a remote segment ends with `tail` and nothing else: None, or what is wrong."""
    try:
        with store.fetch_segment(segment, segment.size - len(tail)) as stream:
            answer = read_exactly(stream, len(tail) + 1)
    except Exception as error:  # noqa: BLE001 - plug-ins raise what they like
        return f"{type(error).__name__}: {error}"
    if len(answer) < len(tail):
        return f"{len(tail) - len(answer)} of the last {len(tail)} bytes are missing"
    return None if answer == tail else "it ends with other bytes"


def _local_tail(files: FileSystem, path: str, size: int) -> bytes:
    wanted = min(size, TAIL_BYTES)
    try:
        file = files.open(path)
        try:
            tail = file.pread(size - wanted, wanted)
        finally:
            file.close()
    except OSError as error:
        raise RetriableRemoteStorageError(f"{path}: {error}") from error
    if len(tail) < wanted:
        raise RetriableRemoteStorageError(f"{path} was truncated")
    return tail
