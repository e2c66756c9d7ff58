"""What an audit makes of batches and places: gaps, duplicates, losses."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from hypothesis import given
from hypothesis import strategies as st

from support.remote import PARTITION, remote_segment
from tidelog_pipeline.history.planner import LogView
from tidelog_pipeline.operations.lineage import places_of, without
from tidelog_pipeline.operations.scan import Scan, merged
from tidelog_protocol.batch import BatchHeader, read_header
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.remote.api import SegmentState


def batch(offset: int, count: int = 1, *, producer: int = -1, sequence: int = -1) -> BatchHeader:
    records = [Record(offset + number, 1000, None, b"v") for number in range(count)]
    return read_header(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
    )


def scanned(start: int, end: int, batches: list[BatchHeader]) -> Scan:
    scan = Scan(start, end)
    for each in batches:
        scan.add(each)
    scan.finish()
    return scan


def test_gaps_are_named_at_both_ends_and_between() -> None:
    scan = scanned(10, 40, [batch(8, 4), batch(15, 5), batch(20, 3)])
    assert scan.gaps == [(12, 15), (23, 40)]
    assert (scan.batches, scan.records, scan.missing) == (3, 12, 20)
    assert scanned(0, 5, []).gaps == [(0, 5)]
    assert scanned(0, 8, [batch(0, 8)]).gaps == []


def test_a_batch_that_comes_again_is_a_fault() -> None:
    assert scanned(0, 8, [batch(0, 4), batch(2, 6)]).faults


def test_sequences_that_come_again_are_duplicates_and_jumps_are_counted() -> None:
    one = [batch(0, 5, producer=1, sequence=0), batch(5, 5, producer=1, sequence=5)]
    assert not scanned(0, 10, one).duplicates
    again = scanned(0, 15, [*one, batch(10, 5, producer=1, sequence=5)])
    assert again.duplicates == [
        "producer 1 epoch 0: the sequences from 5 at offset 10 were there before"
    ]
    ahead = scanned(0, 15, [*one, batch(10, 5, producer=1, sequence=50)])
    assert (ahead.jumps, ahead.duplicates) == (1, [])
    wrapped = [batch(0, 5, producer=1, sequence=(1 << 31) - 5), batch(5, 5, producer=1, sequence=0)]
    assert not scanned(0, 10, wrapped).duplicates


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.booleans()), min_size=1),
    st.lists(st.integers(0, 60)),
)
def test_cuts_between_tasks_change_nothing(steps, cuts: list[int]) -> None:
    batches, offset, sequences = [], 0, {0: 0, 1: 0, 2: 0}
    for count, producer, again in steps:
        sequence = max(0, sequences[producer] - 1) if again else sequences[producer]
        batches.append(batch(offset, count, producer=producer, sequence=sequence))
        sequences[producer] = sequence + count
        offset += count
    whole = scanned(0, offset, batches)
    bounds = sorted(
        {0, offset, *(each.base_offset for each in batches if each.base_offset in cuts)}
    )
    parts = [
        scanned(start, end, [each for each in batches if start <= each.base_offset < end])
        for start, end in pairwise(bounds)
    ]
    found = merged(reversed(parts))
    assert found is not None
    for name in ("records", "size", "jumps", "gaps", "timestamps", "end"):
        assert getattr(found, name) == getattr(whole, name), name
    assert sorted(found.duplicates) == sorted(whole.duplicates)


def test_places_of_a_log() -> None:
    dead = remote_segment(1, 0, 9, epochs=((1, 0),))
    parts = [remote_segment(2, 0, 9), remote_segment(3, 8, 14), remote_segment(4, 20, 29)]
    copying = remote_segment(5, 30, 34, state=SegmentState.COPY_SEGMENT_STARTED)
    log = LogView(
        "t", PARTITION.topic_id.bytes, 0, ((0, 0),), 5, 25, 40, -1, (dead, *parts, copying)
    )
    places = places_of(log)
    assert places.lost == ((15, 20),)
    assert places.only_local == ((30, 40),)
    assert places.twice == ((8, 10),)
    assert [each.segment_id.int for each in places.off_lineage] == [1]
    assert [each.segment_id.int for each in places.unfinished] == [5]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda one: one[0] < one[1]))
)
def test_what_is_without_spans_has_the_rest_once(spans: list[tuple[int, int]]) -> None:
    left = [n for start, end in without((3, 25), spans) for n in range(start, end)]
    assert left == [n for n in range(3, 25) if not any(start <= n < end for start, end in spans)]
