"""How our stores lay a remote segment out: names of its objects, and the manifest beside them.

    <topic>-<partition>-<topic id>/<start offset, 20 digits>-<segment id>.<kind>

Kafka's own bytes under Kafka's own endings, so that a segment is restored by copying its objects
back without the ids. Ids are in the 22 characters that Kafka prints. The manifest is JSON for
people and tools; it is written last: without it a segment is not there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from tidelog_protocol.checksum import crc32c
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.remote.api import IndexKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, TopicIdPartition
    from tidelog_storage.seams import FileSystem

__all__ = [
    "INDEX_ENDINGS",
    "LOG_ENDING",
    "MANIFEST_ENDING",
    "ObjectFacts",
    "Source",
    "facts_of",
    "folder_name",
    "manifest",
    "object_name",
    "parts_of",
    "sources",
    "views_of",
]

LOG_ENDING = ".log"
MANIFEST_ENDING = ".manifest.json"
INDEX_ENDINGS: dict[IndexKind, str] = {
    IndexKind.OFFSET: ".index",
    IndexKind.TIMESTAMP: ".timeindex",
    IndexKind.TRANSACTION: ".txnindex",
    IndexKind.PRODUCER_SNAPSHOT: ".snapshot",
    IndexKind.LEADER_EPOCH: ".leader-epoch-checkpoint",
}

ObjectFacts = tuple[int, int]
"""Size in bytes and CRC-32C of one object."""

Part = TypeVar("Part", bytes, memoryview)
Source = str | bytes
"""What becomes one object: the path of a local file, or its bytes."""


def folder_name(partition: TopicIdPartition) -> str:
    """The folder of one partition of one life of a topic."""
    return f"{partition.topic}-{partition.partition}-{uuid_to_str(partition.topic_id.bytes)}"


def object_name(segment: RemoteSegment, ending: str) -> str:
    """The name of one object of a segment, inside the partition's folder."""
    return f"{segment.start_offset:020d}-{uuid_to_str(segment.segment_id.bytes)}{ending}"


def sources(data: SegmentFiles) -> Iterator[tuple[str, Source]]:
    """(ending, what is copied) of every object of a segment but its manifest."""
    yield LOG_ENDING, data.log
    yield INDEX_ENDINGS[IndexKind.OFFSET], data.offset_index
    yield INDEX_ENDINGS[IndexKind.TIMESTAMP], data.time_index
    if data.transaction_index is not None:
        yield INDEX_ENDINGS[IndexKind.TRANSACTION], data.transaction_index
    yield INDEX_ENDINGS[IndexKind.PRODUCER_SNAPSHOT], data.producer_snapshot
    yield INDEX_ENDINGS[IndexKind.LEADER_EPOCH], data.leader_epoch_checkpoint


def parts_of(files: FileSystem, source: Source, part_bytes: int) -> Iterator[bytes]:
    """What is copied, in parts of `part_bytes` (the last one shorter; none for nothing). OSError.

    A file that is cut while it is read gives what is left of it.
    """
    if isinstance(source, bytes):
        for start in range(0, len(source), part_bytes):
            yield source[start : start + part_bytes]
        return
    file = files.open(source)
    try:
        position = 0
        while part := file.pread(position, part_bytes):
            yield part
            position += len(part)
    finally:
        file.close()


def views_of(files: FileSystem, source: Source, part_bytes: int) -> Iterator[memoryview]:
    """As `parts_of`, but each part is good until the next one alone: they share their memory, as
    fresh memory costs more than a copy from the page cache."""
    if isinstance(source, bytes):
        for start in range(0, len(source), part_bytes):
            yield memoryview(source)[start : start + part_bytes]
        return
    file = files.open(source)
    memory = memoryview(bytearray(min(part_bytes, file.size())))
    try:
        position = 0
        while size := file.pread_into(position, memory):
            yield memory[:size]
            position += size
    finally:
        file.close()


def checked_parts(parts: Iterable[Part], facts: list[int]) -> Iterator[Part]:
    """The same parts; `facts` ([0, 0] at first) become size and CRC-32C of them all."""
    for part in parts:
        facts[0] += len(part)
        facts[1] = crc32c(part, facts[1])
        yield part


def manifest(segment: RemoteSegment, objects: dict[str, ObjectFacts]) -> bytes:
    """The manifest of a segment with these objects (by ending)."""
    content = {
        "version": 1,
        "topic": segment.topic,
        "topicId": uuid_to_str(segment.topic_id.bytes),
        "partition": segment.partition,
        "segmentId": uuid_to_str(segment.segment_id.bytes),
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "brokerId": segment.broker_id,
        "maxTimestampMs": segment.max_timestamp,
        "leaderEpochs": {str(epoch): start for epoch, start in segment.epochs},
        "objects": {
            object_name(segment, ending): {"bytes": size, "crc32c": f"{crc:08x}"}
            for ending, (size, crc) in objects.items()
        },
    }
    return json.dumps(content, indent=1).encode() + b"\n"


def facts_of(manifest: bytes, name: str) -> ObjectFacts | None:
    """What a manifest says of an object of this name, None if there is no such one.

    ValueError for anything but a manifest.
    """
    try:
        facts = json.loads(manifest)["objects"].get(name)
        return None if facts is None else (int(facts["bytes"]), int(facts["crc32c"], 16))
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"invalid manifest: {error!r}") from error
