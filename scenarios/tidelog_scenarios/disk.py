"""A replica's files: read them, and cut them as a power failure does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.checkpoints import OffsetCheckpoint
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_storage.seams import Buffer, FileSystem

__all__ = ["checkpointed", "cut", "records_in", "rows_of", "values_in"]

_HIGH_WATERMARKS = "replication-offset-checkpoint"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_NAME_DIGITS = 20


def rows_of(data: Buffer) -> list[list[Any]]:
    """Return [offset, value, leader epoch] of each record in whole batches."""
    return [
        [record.offset, bytes(record.value or b"").decode(), header.leader_epoch]
        for position, header in iter_batches(data)
        for record in iter_records(data, position)
    ]


def records_in(files: FileSystem, folder: str) -> list[list[Any]]:
    """Return the records in a log's files; its broker may run."""
    rows: list[list[Any]] = []
    for name, size in _segments(files, folder):
        rows += rows_of(_content(files, f"{folder}/{name}", size))
    return rows


def values_in(files: FileSystem, folder: str) -> Iterator[bytes]:
    """Yield the values of a log's records."""
    for name, size in _segments(files, folder):
        data = _content(files, f"{folder}/{name}", size)
        for position, _ in iter_batches(data):
            for record in iter_records(data, position):
                yield bytes(record.value or b"")


def _segments(files: FileSystem, folder: str) -> Iterator[tuple[str, int]]:
    if files.exists(folder):
        for name, size in files.sizes(folder).items():
            if name.endswith(".log"):
                yield name, size


def _content(files: FileSystem, path: str, size: int) -> bytes:
    file = files.open(path)
    try:
        return file.pread(0, size)
    finally:
        file.close()


def checkpointed(files: FileSystem, data_folder: str, topic: str) -> int:
    """Return the high watermark in a broker's checkpoint, or -1."""
    offsets = OffsetCheckpoint(files, f"{data_folder}/{_HIGH_WATERMARKS}").read()
    return offsets.get(TopicPartition(topic, 0), -1)


def cut(files: FileSystem, data_folder: str, topic: str, offset: int) -> None:
    """Cut a partition to what the disk has if nothing from `offset` on was synced.

    Indexes and snapshots are removed: the broker rebuilds them, as after any power failure. The
    recovery point is at most `offset`.
    """
    folder = f"{data_folder}/{topic}-0"
    for name in files.list(folder):
        base = name[:_NAME_DIGITS]
        if base.isdigit() and name.endswith(".log"):
            _cut_segment(files, f"{folder}/{name}", int(base), offset)
        elif base.isdigit() and (not name.endswith(".snapshot") or int(base) > offset):
            files.remove(f"{folder}/{name}")
    points = OffsetCheckpoint(files, f"{data_folder}/{_RECOVERY_POINTS}")
    known = points.read()
    partition = TopicPartition(topic, 0)
    if known.get(partition, 0) > offset:
        points.write({**known, partition: offset})


def _cut_segment(files: FileSystem, path: str, base_offset: int, offset: int) -> None:
    if base_offset >= offset and base_offset > 0:
        files.remove(path)
        return
    file = files.open(path)
    try:
        for position, header in iter_batches(file.pread(0, file.size())):
            if header.base_offset >= offset:
                file.truncate(position)
                return
    finally:
        file.close()
