"""Remote segments for tests: made by hand, or copied from a real log."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog_storage.checkpoints import format_epochs
from tidelog_storage.remote.api import (
    RemoteSegment,
    SegmentFiles,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tidelog_storage.remote.copier import candidates
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.types import AbortedTransaction

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_storage.log import Log
    from tidelog_storage.seams import FileSystem

PARTITION = TopicIdPartition(UUID(bytes=b"topic-id-16bytes"), "t", 0)
NOW = 1_700_000_000_000
ENDINGS = (".index", ".log", ".timeindex", ".txnindex", ".snapshot")


def remote_segment(number: int = 1, start: int = 0, end: int = 99, **options) -> RemoteSegment:
    """A finished segment with the id `number`; `epochs` default to epoch 0 from the start."""
    facts = {
        "topic_id_partition": PARTITION,
        "segment_id": UUID(int=number),
        "start_offset": start,
        "end_offset": end,
        "broker_id": 1,
        "max_timestamp": NOW,
        "event_timestamp": NOW,
        "epochs": ((0, start),),
        "size": 1000,
        "state": SegmentState.COPY_SEGMENT_FINISHED,
    }
    return RemoteSegment(**{**facts, **options})


def segment_files(
    folder: Path, content: bytes, *, txn_index: bytes | None = b"x" * 34, write=None
) -> SegmentFiles:
    """Local files of a segment whose log is `content`; the others only have to be told apart."""
    content_of = {
        ".log": content,
        ".index": b"offset" + content[:10],
        ".timeindex": b"time",
        ".snapshot": b"",
        ".txnindex": txn_index,
    }
    paths = {}
    for ending, data in content_of.items():
        path = paths[ending] = f"{folder}/00000000000000000000{ending}"
        if data is None:
            paths[ending] = None
        elif write is None:
            with open(path, "wb") as file:
                file.write(data)
        else:
            write(path, data)
    return SegmentFiles(
        log=paths[".log"],
        offset_index=paths[".index"],
        time_index=paths[".timeindex"],
        transaction_index=paths[".txnindex"],
        producer_snapshot=paths[".snapshot"],
        leader_epoch_checkpoint=b"0\n1\n0 0\n",
    )


def copy_candidates(log: Log, store) -> list[RemoteSegment]:
    """All that may be copied, as a leader does it."""
    log.flush()
    found = []
    for number, candidate in enumerate(candidates(log, -1, NOW), 1):
        segment = candidate.started(PARTITION, UUID(int=number), 1, NOW)
        store.copy_segment(segment, candidate.files)
        found.append(replace(segment, state=SegmentState.COPY_SEGMENT_FINISHED))
    return found


def copy_log(
    log: Log,
    store,
    files: FileSystem,
    *,
    first_id: int = 1,
    epochs=None,
    above: int = -1,
    partition: TopicIdPartition = PARTITION,
) -> list[RemoteSegment]:
    """Copy all segments of a log but the active one to a store; what their metadata says.

    `epochs` are the log's own, unless others are to be told; segments that end at or below `above`
    are left out.
    """
    entries = [tuple(entry) for entry in (epochs or log.epochs.entries)]
    copied = []
    sealed = list(log.segments)
    log.flush()
    for number, (segment, following) in enumerate(pairwise(sealed)):
        end = following.base_offset
        if end <= above + 1:
            continue
        segment.know_timestamps()
        inside = [(epoch, start) for epoch, start in entries if segment.base_offset < start < end]
        before = [epoch for epoch, start in entries if start <= segment.base_offset]
        first = [(before[-1], segment.base_offset)] if before else []
        base = f"{log.folder}/{segment.base_offset:020d}"
        has_aborted = bool(segment.transaction_index.entries)
        snapshot = f"{log.folder}/{end:020d}.snapshot"
        if not files.exists(snapshot):
            files.write_atomic(snapshot, b"")
        remote = remote_segment(
            first_id + number,
            segment.base_offset,
            end - 1,
            topic_id_partition=partition,
            max_timestamp=segment.max_timestamp,
            epochs=(*first, *inside),
            size=segment.size,
            txn_index_empty=not has_aborted,
        )
        store.copy_segment(
            remote,
            SegmentFiles(
                log=f"{base}.log",
                offset_index=f"{base}.index",
                time_index=f"{base}.timeindex",
                transaction_index=f"{base}.txnindex" if has_aborted else None,
                producer_snapshot=snapshot,
                leader_epoch_checkpoint=format_epochs(
                    [entry for entry in log.epochs.entries if entry[1] < end]
                ),
            ),
        )
        copied.append(remote)
    return copied


class WatchedStore:
    """A store in front of another: counts what is fetched, and fails as a test wants it."""

    def __init__(self, store) -> None:
        self.store = store
        self.fetched: list[tuple[bytes, object, int]] = []  # segment id, start or kind, bytes
        self.error: Exception | None = None
        self.change = lambda data: data  # of what a fetch answers

    def configure(self, config) -> None:
        self.store.configure(config)

    def copy_segment(self, segment, data):
        return self.store.copy_segment(segment, data)

    def fetch_segment(self, segment, start, end=None):
        return self._answer(segment, start, lambda: self.store.fetch_segment(segment, start, end))

    def fetch_index(self, segment, kind):
        return self._answer(segment, kind, lambda: self.store.fetch_index(segment, kind))

    def _answer(self, segment, what, fetch):
        if self.error is not None:
            raise self.error
        with fetch() as stream:
            data = stream.read()
        self.fetched.append((segment.segment_id, what, len(data)))
        return io.BytesIO(self.change(data))

    def delete_segment(self, segment) -> None:
        self.store.delete_segment(segment)

    def close(self) -> None:
        self.store.close()

    def bytes_fetched(self, *, of_log=None) -> int:
        return sum(
            size
            for _, what, size in self.fetched
            if of_log is None or of_log is isinstance(what, int)
        )


class NearStore(WatchedStore):
    """One whose segments are near; `cold` are those of which nothing is in memory."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self.bytes_read = 0
        self.opened: list[bytes] = []
        self.open = 0
        self.cold: set[bytes] = set()

    def open_segment(self, segment):
        if self.error is not None:
            raise self.error
        self.opened.append(segment.segment_id)
        self.open += 1
        return _NearHandle(self, segment, self.store.open_segment(segment))


class _NearHandle:
    def __init__(self, store: NearStore, segment, handle) -> None:
        self.store = store
        self.segment = segment
        self.handle = handle
        self.is_closed = False

    def read_now(self, position, buffer) -> int:
        if self.store.error is not None:
            raise self.store.error
        if self.segment.segment_id in self.store.cold:
            return 0
        size = self.handle.read_now(position, buffer)
        data = self.store.change(bytes(buffer[:size]))
        buffer[: len(data)] = data
        self.store.bytes_read += len(data)
        return len(data)

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True
        self.store.open -= 1
        self.handle.close()


class LogView:
    """A log as remote reads see it, whose local part begins where a test wants it."""

    def __init__(self, log, local_log_start_offset: int, log_start_offset: int = 0) -> None:
        self.log = log
        self.epochs = log.epochs
        self.local_log_start_offset = local_log_start_offset
        self.log_start_offset = log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.log_end_offset

    def aborted_transactions(self, offset: int, upper_bound: int):
        found = []
        for segment in self.log.segments:
            if segment.base_offset >= self.local_log_start_offset:
                segment.transaction_index.collect(offset, upper_bound, found)
        return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]


class KnownSegments:
    """The look-ups of `RemoteLogMetadata` over segments that are finished at once."""

    def __init__(self, segments=()) -> None:
        self.of: dict[TopicIdPartition, PartitionMetadata] = {}
        self.error: Exception | None = None
        self.add(*segments)

    def add(self, *segments: RemoteSegment) -> None:
        for segment in segments:
            known = self.of.setdefault(
                segment.topic_id_partition, PartitionMetadata(segment.topic_id_partition)
            )
            assert known.apply(replace(segment, state=SegmentState.COPY_SEGMENT_STARTED))
            self.update(segment, SegmentState.COPY_SEGMENT_FINISHED)

    def update(self, segment: RemoteSegment, state: SegmentState) -> None:
        update = SegmentUpdate(segment.topic_id_partition, segment.segment_id, 1, NOW, state)
        assert self.of[segment.topic_id_partition].apply(update)

    def segment_for(self, partition, epoch, offset):
        if self.error is not None:
            raise self.error
        known = self.of.get(partition)
        return None if known is None else known.segment_for(epoch, offset)

    def next_segment_with_txn_index(self, partition, epoch, offset):
        return self.of[partition].next_segment_with_txn_index(epoch, offset)
