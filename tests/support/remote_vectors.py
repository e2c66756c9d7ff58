"""The specification's tables about remote segments, read for tests; segments by their symbols."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support.vectors import load_yaml
from tidelog_storage.remote.api import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from tidelog_storage.remote.metadata_cache import PartitionMetadata

VECTORS = Path(__file__).parents[1] / "storage" / "vectors"
PARTITION = TopicIdPartition(UUID("0123456789abcdef0fedcba987654321"), "foo", 0)
NOW = 1_700_000_000_000


def table(file: str, *functions: str) -> list[Any]:
    """The cases of some functions: (function, in, out)."""
    document = load_yaml(VECTORS / file)
    return [
        pytest.param(function, {**document["given"], **case["in"]}, case["out"], id=case["name"])
        for case in document["cases"]
        if (function := case.get("function", document.get("function"))) in functions
    ]


def pairs(entries: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((epoch, start) for epoch, start in entries)


def segment_id(symbol: str) -> UUID:
    return UUID(bytes=symbol.encode().ljust(16, b"\0"))


def symbol(segment: RemoteSegment) -> str:
    return segment.segment_id.bytes.rstrip(b"\0").decode()


def segment_of(facts: dict[str, Any]) -> RemoteSegment:
    """A segment as a table writes it; finished unless it says otherwise."""
    return RemoteSegment(
        topic_id_partition=PARTITION,
        segment_id=segment_id(facts.get("id", "s")),
        start_offset=facts["start"],
        end_offset=facts["end"],
        broker_id=1,
        max_timestamp=facts.get("max_ts", NOW),
        event_timestamp=NOW,
        epochs=pairs(facts["epochs"]),
        size=facts.get("size", 1024),
        state=SegmentState[facts.get("state", "COPY_SEGMENT_FINISHED")],
        txn_index_empty=facts.get("txn_index_empty", False),
    )


def update_of(segment: RemoteSegment, state: SegmentState, **facts: Any) -> SegmentUpdate:
    facts = {"broker_id": 1, "event_timestamp": NOW, **facts}
    return SegmentUpdate(segment.topic_id_partition, segment.segment_id, state=state, **facts)


def started(segment: RemoteSegment) -> RemoteSegment:
    """The segment as its first event has it."""
    return segment.updated(update_of(segment, SegmentState.COPY_SEGMENT_STARTED))


PATHS = {
    SegmentState.COPY_SEGMENT_STARTED: [],
    SegmentState.COPY_SEGMENT_FINISHED: [SegmentState.COPY_SEGMENT_FINISHED],
    SegmentState.DELETE_SEGMENT_STARTED: [
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    ],
}
"""By which states a segment gets to one."""


def metadata_of(segments: list[RemoteSegment]) -> PartitionMetadata:
    """A cache that has met these segments one after the other."""
    metadata = PartitionMetadata(PARTITION)
    for segment in segments:
        assert metadata.apply(started(segment))
        for state in PATHS[segment.state]:
            assert metadata.apply(update_of(segment, state))
    return metadata
