"""The last known durable end of the metadata log: below it nothing may be missing.

A torn end of the log is normal after a crash and is cut off, but only above the durable end.
Flushed records have counted for a majority, so a log that is damaged or too short below that must
not pass as a shorter log: this voter would help to elect a leader without committed records.

A small file of pairs, the offset and its complement; the last whole pair is valid. It is written
after the log was synced and not synced itself: killing the process loses nothing of it, and a power
failure may only make it older, which is weaker and never wrong.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.scan import batch_headers
from tidelog_storage.segment import LOG_SUFFIX
from tidelog_storage.types import damage_below

if TYPE_CHECKING:
    from tidelog.seams import Executor
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.log import Log
    from tidelog_storage.seams import File, FileSystem

DURABLE_END = "durable-end-offset"

_PAIR = struct.Struct(">QQ")
_MASK = (1 << 64) - 1
_BYTES_MAX = 4096
_FLUSH_AGAIN_S = 0.1


async def flush_log(log: Log, executor: Executor, end: int) -> bool:
    """Make the log durable up to `end`; return whether that took a flush. OSError if the disk
    fails.

    A process without descriptors is no failure of the disk: this waits until it has some.
    """
    while True:
        try:
            task = log.prepare_flush(end)
            if task is None:
                return False
            await executor.run(task)
        except OSError as error:
            if not lacks_descriptors(error):
                raise
            await asyncio.sleep(_FLUSH_AGAIN_S)
        else:
            log.flushed(task)
            return True


def check_order(log: Log, promised: int, now_ms: int) -> None:
    """Cut the log at the first batch that does not follow the one before it; StorageError if that
    was below `promised`, the offset below which all was on disk.

    Offset and leader epoch of a batch are outside of its checksum. A voter that believes a rotten
    epoch disturbs all elections, or takes committed records for another leader's.
    """
    before: BatchHeader | None = None
    for segment in log.segments:
        for _, header in batch_headers(segment.records, 0, segment.size):
            if before is not None and not _follows(before, header):
                end = before.next_offset
                if end < promised:
                    raise damage_below(segment.path(LOG_SUFFIX), end, promised)
                log.truncate_to(end, now_ms)
                return
            before = header


def _follows(before: BatchHeader, header: BatchHeader) -> bool:
    """No offset is missing in this log, and an epoch begins with the control batch that names its
    leader (KafkaRaftClient.onBecomeLeader)."""
    epoch = header.leader_epoch
    is_next = epoch == before.leader_epoch or (epoch > before.leader_epoch and header.is_control)
    return is_next and header.base_offset == before.next_offset


class DurableEnd:
    """The file of one metadata log."""

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._path = f"{folder}/{DURABLE_END}"
        self._file: File | None = None
        self._size = 0

    def read(self) -> int:
        """Return the offset below which the log was on disk; 0 if unknown."""
        try:
            data = self._files.read_bytes(self._path)
        except FileNotFoundError:
            return 0
        for position in range(len(data) // _PAIR.size * _PAIR.size, 0, -_PAIR.size):
            offset, complement = _PAIR.unpack_from(data, position - _PAIR.size)
            if offset ^ complement == _MASK:
                return int(offset)
        return 0

    def advance(self, offset: int) -> None:
        """Record that everything below `offset` is on disk. A full disk keeps the old record."""
        try:
            if self._file is None:
                self._file = self._files.open(self._path, create=True)
                self._size = _BYTES_MAX  # the content is replaced
            if self._size >= _BYTES_MAX:
                self._file.truncate(0)
                self._size = 0
            self._file.append([_PAIR.pack(offset, offset ^ _MASK)])
            self._size += _PAIR.size
        except OSError:
            self._size = _BYTES_MAX

    def lower(self, offset: int) -> None:
        """Record, durably, that the log will be truncated to `offset`."""
        self.close()
        self._files.write_atomic(self._path, _PAIR.pack(offset, offset ^ _MASK))

    def close(self) -> None:
        """Close the handle."""
        if self._file is not None:
            self._file.close()
            self._file = None
