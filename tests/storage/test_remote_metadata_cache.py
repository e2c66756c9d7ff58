"""One partition's remote metadata: legal states, who sees what, look-ups against a plain search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.remote_vectors import (
    NOW,
    PARTITION,
    VECTORS,
    metadata_of,
    segment_of,
    started,
    symbol,
    table,
    update_of,
)
from support.vectors import load_yaml
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    is_legal,
)
from tidelog_storage.remote.lineage import epoch_parts
from tidelog_storage.remote.metadata_cache import PartitionMetadata

if TYPE_CHECKING:
    from uuid import UUID

FILE = "segment-lifecycle.yaml"
STARTED, FINISHED, DELETING, DELETED = SegmentState
SEGMENT = segment_of({"id": "uuid-1", "start": 0, "end": 9, "epochs": [[0, 0]]})
PATHS = {
    None: [],
    STARTED: [STARTED],
    FINISHED: [STARTED, FINISHED],
    DELETING: [STARTED, DELETING],
    DELETED: [STARTED, DELETING, DELETED],
}


def put(metadata: PartitionMetadata, state: SegmentState) -> bool:
    return metadata.apply(
        started(SEGMENT) if state is STARTED else update_of(SEGMENT, state, broker_id=2)
    )


def delete_event(state: PartitionDeleteState) -> PartitionDelete:
    return PartitionDelete(PARTITION, 3, NOW, state)


# ---- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "segment_transition"))
def test_segment_transitions(_: str, given: dict[str, Any], out: Any) -> None:
    source = SegmentState[given["from"]] if given["from"] else None
    target = SegmentState[given["to"]]
    assert is_legal(source, target) is out["legal"]
    metadata = PartitionMetadata(PARTITION)
    for state in PATHS[source]:
        assert put(metadata, state)
    before = metadata.snapshot()
    accepted = put(metadata, target)
    if source is DELETED:
        # It is forgotten, and cannot be told from one that never was: a late repeat of its end is
        # dropped, a repeat of its beginning begins it anew.
        assert accepted is (target is STARTED)
    else:
        assert accepted is out["legal"]
    if not accepted:
        assert metadata.snapshot() == before


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "partition_transition"))
def test_partition_transitions(_: str, given: dict[str, Any], out: Any) -> None:
    metadata = PartitionMetadata(PARTITION)
    source = PartitionDeleteState[given["from"]] if given["from"] else None
    for state in PartitionDeleteState if source is not None else ():
        if state <= source:
            assert metadata.apply(delete_event(state))
    assert metadata.delete_state is source
    target = PartitionDeleteState[given["to"]]
    assert metadata.apply(delete_event(target)) is out["legal"]
    assert metadata.delete_state is (target if out["legal"] else source)


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "segment_visibility"))
def test_each_segment_state_is_visible_where_kafka_shows_it(
    _: str, given: dict[str, Any], out: Any
) -> None:
    metadata = PartitionMetadata(PARTITION)
    for state in given["events"]:
        assert put(metadata, SegmentState[state])
    assert (metadata.segment_for(0, 5) is not None) is out["lookup"]
    assert bool(metadata.segments(0)) is bool(metadata.segments()) is out["list"]
    assert (metadata.segment(SEGMENT.segment_id) is not None) is out["list"]
    assert (metadata.highest_offset(0) == 9) is out["counts_for_highest_offset"]


def test_only_a_first_event_adds_and_only_later_ones_update() -> None:
    metadata = PartitionMetadata(PARTITION)
    for state in (FINISHED, DELETING, DELETED):
        assert not metadata.apply(replace(SEGMENT, state=state))
    assert metadata.apply(started(SEGMENT))
    assert not metadata.apply(replace(SEGMENT, state=FINISHED))
    assert not metadata.apply(update_of(SEGMENT, STARTED))
    assert metadata.segments() == [started(SEGMENT)]


def test_an_update_brings_its_broker_time_and_custom_metadata() -> None:
    metadata = metadata_of([started(SEGMENT)])
    finished = update_of(
        SEGMENT, FINISHED, broker_id=7, event_timestamp=NOW + 5, custom_metadata=b"where"
    )
    assert metadata.apply(finished)
    assert metadata.apply(update_of(SEGMENT, FINISHED, broker_id=8, event_timestamp=NOW + 6))
    assert metadata.segment_for(0, 0) == replace(
        SEGMENT, broker_id=8, event_timestamp=NOW + 6, custom_metadata=b"where"
    )


def test_a_repeated_beginning_may_say_more() -> None:
    metadata = metadata_of([started(SEGMENT)])
    other = replace(started(SEGMENT), end_offset=12, epochs=((0, 0), (3, 10)))
    assert metadata.apply(other)
    assert metadata.segments() == metadata.segments(0) == metadata.segments(3) == [other]
    assert metadata.apply(started(SEGMENT))
    assert metadata.segments(3) == []


def test_the_deletion_of_a_topic_as_its_scenario_has_it() -> None:
    scenario = load_yaml(VECTORS / "topic-deletion.yaml")
    segments = {facts["id"]: segment_of(facts) for facts in scenario["given"]["rlmm"]}
    metadata = metadata_of(list(segments.values()))
    log: list[str] = []
    for step in scenario["steps"]:
        expected = step.get("expect", {})
        for entry in expected.get("metadata_log", [])[len(log) :]:
            *of, state = entry.split()
            log.append(entry)
            if of:
                assert metadata.apply(update_of(segments[of[0]], SegmentState[state]))
            else:
                assert metadata.apply(delete_event(PartitionDeleteState[state]))
        if step["do"]["action"] == "partition_event":
            state = PartitionDeleteState[step["do"]["state"]]
            assert metadata.apply(delete_event(state)) is step["do"]["accepted"]
        if "rlmm" in expected:
            found = {symbol(each): each.state.name for each in metadata.segments()}
            assert found == {facts["id"]: facts["state"] for facts in expected["rlmm"]}
    assert metadata.delete_state is PartitionDeleteState.DELETE_PARTITION_FINISHED


# ---- Kafka's numbers (RemoteLogMetadataCacheTest, RemoteLogSegmentLifecycleTest) -----------------

LIFE = [
    {"id": "s0", "start": 0, "end": 100, "epochs": [[0, 0], [1, 20], [2, 80]]},
    {"id": "s1", "start": 101, "end": 200, "epochs": [[2, 101]]},
    {"id": "s2", "start": 201, "end": 300, "epochs": [[2, 201], [3, 240]]},
    {"id": "s3", "start": 250, "end": 400, "epochs": [[3, 250], [4, 370]]},
]


def test_a_life() -> None:
    segments = [segment_of(facts) for facts in LIFE]
    metadata = metadata_of([started(segment) for segment in segments])
    assert metadata.segment_for(1, 40) is None
    assert metadata.highest_offset(1) is None
    for segment in segments:
        assert metadata.apply(update_of(segment, FINISHED))
    asked = [(1, 40), (2, 110), (3, 240), (3, 250), (4, 375)]
    found = [metadata.segment_for(*each) for each in asked]
    assert found == [segments[0], segments[1], segments[2], segments[3], segments[3]]
    assert [metadata.segment_for(*each) for each in [(1, 110), (4, 401), (5, 301)]] == [None] * 3
    highest = [metadata.highest_offset(epoch) for epoch in range(6)]
    assert highest == [19, 79, 239, 369, 400, None]
    assert [symbol(each) for each in metadata.segments(2)] == ["s0", "s1", "s2"]
    assert [metadata.size(epoch) for epoch in range(6)] == [1024, 1024, 3072, 2048, 1024, 0]
    assert metadata.apply(update_of(segments[0], DELETING))
    assert metadata.segment_for(1, 40) is None
    assert [symbol(each) for each in metadata.segments(1)] == ["s0"]
    assert metadata.apply(update_of(segments[0], DELETED))
    assert [metadata.highest_offset(epoch) for epoch in range(6)] == highest
    assert len(metadata) == 3
    assert metadata.segments(1) == []


def test_of_several_the_furthest_then_the_last_finished() -> None:
    narrow = segment_of({"id": "narrow", "start": 10, "end": 100, "epochs": [[0, 10]]})
    wide = segment_of({"id": "wide", "start": 5, "end": 150, "epochs": [[0, 5]]})
    metadata = metadata_of([narrow, wide])
    assert metadata.segment_for(0, 11) == wide
    assert metadata.highest_offset(0) == 150
    again = segment_of({"id": "again", "start": 7, "end": 150, "epochs": [[0, 7]]})
    late = started(segment_of({"id": "late", "start": 0, "end": 150, "epochs": [[0, 0]]}))
    assert metadata.apply(late)  # begun before the last, finished after it
    assert metadata.apply(started(again))
    assert metadata.apply(update_of(again, FINISHED))
    assert metadata.segment_for(0, 11) == again
    assert metadata.apply(update_of(late, FINISHED))
    found = metadata.segment_for(0, 11)
    assert found is not None
    assert symbol(found) == "late"


def test_segments_without_aborts_are_stepped_over() -> None:
    quiet = {"txn_index_empty": True}
    metadata = metadata_of(
        [
            segment_of({"id": "s0", "start": 0, "end": 9, "epochs": [[0, 0]]} | quiet),
            segment_of({"id": "s1", "start": 10, "end": 19, "epochs": [[0, 10]]}),
            segment_of({"id": "s2", "start": 20, "end": 29, "epochs": [[0, 20]]} | quiet),
            segment_of({"id": "s3", "start": 40, "end": 49, "epochs": [[0, 40]]}),
        ]
    )
    for offset, wanted in [(0, "s1"), (15, "s1"), (20, "s3"), (33, "s3"), (49, "s3")]:
        found = metadata.next_segment_with_txn_index(0, offset)
        assert found is not None
        assert symbol(found) == wanted
    assert metadata.next_segment_with_txn_index(0, 50) is None
    assert metadata.next_segment_with_txn_index(1, 0) is None


# ---- against a plain search ----------------------------------------------------------------------


class Naive:
    """The same by going through everything."""

    def __init__(self) -> None:
        self.segments: dict[UUID, RemoteSegment] = {}
        self.finished: list[UUID] = []
        self.highest: dict[int, int] = {}

    def apply(self, event: Any) -> bool:
        known = self.segments.get(event.segment_id)
        if isinstance(event, RemoteSegment):
            if event.state is not STARTED or (known is not None and known.state is not STARTED):
                return False
            self.segments[event.segment_id] = event
            return True
        if known is None or event.state is STARTED or not is_legal(known.state, event.state):
            return False
        self.segments[event.segment_id] = known.updated(event)
        if event.state is FINISHED and known.state is STARTED:
            self.finished.append(event.segment_id)
            for epoch, start, end in epoch_parts(known):
                if start <= end:
                    self.highest[epoch] = max(end, self.highest.get(epoch, end))
        elif event.state is DELETED:
            del self.segments[event.segment_id]
        return True

    def segment_for(self, epoch: int, offset: int) -> RemoteSegment | None:
        found: tuple[int, int, RemoteSegment | None] = (-1, -1, None)
        for number, segment_id in enumerate(self.finished):
            segment = self.segments.get(segment_id)
            if segment is not None and segment.state is FINISHED:
                for part_epoch, start, end in epoch_parts(segment):
                    if part_epoch == epoch and start <= offset <= end:
                        found = max(found, (end, number, segment), key=lambda each: each[:2])
        return found[2]


@st.composite
def segments(draw: st.DrawFn, number: int) -> RemoteSegment:
    start = draw(st.integers(0, 20))
    end = draw(st.integers(start, 30))
    epochs = sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)))
    starts = sorted(draw(st.lists(st.integers(start, end), min_size=2, max_size=2)))
    return segment_of(
        {
            "id": f"s{number}",
            "start": start,
            "end": end,
            "epochs": list(zip(epochs, [start, *starts], strict=False)),
            "size": draw(st.integers(1, 9)),
            "txn_index_empty": draw(st.booleans()),
        }
    )


COUNT = 10
STEPS = st.tuples(
    st.integers(0, COUNT - 1), st.sampled_from(["next", "next", "next", *SegmentState])
)


@settings(derandomize=True, database=None, deadline=None, max_examples=150)
@given(
    st.tuples(*[segments(number) for number in range(COUNT)]),
    st.lists(STEPS, min_size=25, max_size=40),
)
def test_as_a_plain_search(
    drawn: tuple[RemoteSegment, ...], steps: list[tuple[int, SegmentState | str]]
) -> None:
    metadata, naive = PartitionMetadata(PARTITION), Naive()
    for number, step in steps:
        segment = drawn[number]
        if not isinstance(step, SegmentState):
            known = naive.segments.get(segment.segment_id)
            step = STARTED if known is None else SegmentState(known.state + 1)
        event = started(segment) if step is STARTED else update_of(segment, step)
        assert metadata.apply(event) is naive.apply(event)
    for known in (metadata, PartitionMetadata.restore(metadata.snapshot())):
        assert known.snapshot() == metadata.snapshot()
        assert sorted(naive.segments.values(), key=str) == sorted(known.segments(), key=str)
        for epoch in range(4):
            assert known.highest_offset(epoch) == naive.highest.get(epoch)
            listed = [each for each in known.segments() if epoch in dict(each.epochs)]
            assert known.segments(epoch) == listed
            assert known.size(epoch) == sum(each.size for each in listed)
            answers = [naive.segment_for(epoch, offset) for offset in range(32)]
            assert [known.segment_for(epoch, offset) for offset in range(32)] == answers
            indexed = [each if each and not each.txn_index_empty else None for each in answers]
            for offset in range(32):
                found = known.next_segment_with_txn_index(epoch, offset)
                assert found == next(filter(None, indexed[offset:]), None)
