"""Remote segments for tests: made by hand, or copied from a real log."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tidelog_storage.checkpoints import format_epochs
from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, SegmentState, TopicIdPartition

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_storage.log import Log
    from tidelog_storage.seams import FileSystem

PARTITION = TopicIdPartition(b"topic-id-16bytes", "t", 0)
NOW = 1_700_000_000_000
ENDINGS = (".index", ".log", ".timeindex", ".txnindex", ".snapshot")


def remote_segment(number: int = 1, start: int = 0, end: int = 99, **options) -> RemoteSegment:
    """A finished segment with the id `number`; `epochs` default to epoch 0 from the start."""
    facts = {
        "partition": PARTITION,
        "segment_id": number.to_bytes(16, "big"),
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


def copy_log(
    log: Log, store, files: FileSystem, *, first_id: int = 1, epochs=None
) -> list[RemoteSegment]:
    """Copy all segments of a log but the active one to a store; what their metadata says.

    `epochs` are the log's own, unless others are to be told.
    """
    entries = [tuple(entry) for entry in (epochs or log.epochs.entries)]
    copied = []
    sealed = list(log.segments)
    log.flush()
    for number, (segment, following) in enumerate(pairwise(sealed)):
        segment.know_timestamps()
        end = following.base_offset
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
