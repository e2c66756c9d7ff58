"""Plans over random histories: no hole, no record of a dead branch, the tier before the brokers."""

from __future__ import annotations

from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from support.remote import PARTITION, remote_segment
from tidelog_pipeline.history.planner import (
    LATER_MAX,
    LogView,
    Piece,
    Split,
    cut,
    live_parts,
    pieces_of,
)
from tidelog_storage.remote.api import SegmentState
from tidelog_storage.remote.lineage import clipped

COPYING = SegmentState.COPY_SEGMENT_STARTED


def view(epochs, end: int, *segments, log_start: int = 0, local_start: int = 0) -> LogView:
    return LogView(
        "t", PARTITION.topic_id.bytes, 0, tuple(epochs), log_start, local_start, end, -1, segments
    )


def shape(pieces: list[Piece]) -> list[tuple[int, int, int]]:
    """(start, end, segment's number, 0 for the brokers)."""
    return [
        (one.start, one.end, one.part.segment.segment_id.int if one.part else 0) for one in pieces
    ]


def test_remote_first_then_the_brokers() -> None:
    one, two = remote_segment(1, 0, 9), remote_segment(2, 10, 19)
    log = view([(0, 0)], 30, one, two, local_start=10)
    assert shape(pieces_of(log, 0, 30)) == [(0, 10, 1), (10, 20, 2), (20, 30, 0)]
    assert shape(pieces_of(log, 5, 12)) == [(5, 10, 1), (10, 12, 2)]


def test_what_is_being_copied_or_missing_comes_from_the_brokers() -> None:
    one, two = remote_segment(1, 0, 9, state=COPYING), remote_segment(2, 15, 19)
    log = view([(0, 0)], 20, one, two)
    assert shape(pieces_of(log, 0, 20)) == [(0, 15, 0), (15, 20, 2)]


def test_a_dead_branch_is_clipped_where_the_lineage_leaves_its_epoch() -> None:
    dead = remote_segment(1, 0, 9, epochs=((0, 0), (1, 6)))
    live = remote_segment(2, 4, 11, epochs=((0, 4), (2, 5)))
    log = view([(0, 0), (2, 5)], 12, dead, live)
    assert shape(pieces_of(log, 0, 12)) == [(0, 5, 1), (5, 12, 2)]


def test_later_transaction_indexes_are_named_but_those_that_are_empty() -> None:
    segments = [
        remote_segment(n, 10 * n, 10 * n + 9, txn_index_empty=n % 2 == 0, epochs=((0, 10 * n),))
        for n in range(1, 14)
    ]
    log = view([(0, 0)], 200, *segments, log_start=10)
    first, *_, last, brokers = pieces_of(log, 10, 200)
    assert [part.segment.segment_id.int for part in first.later] == [3, 5, 7, 9]
    assert len(first.later) == LATER_MAX
    assert not first.later_is_whole
    assert last.later == ()
    assert last.later_is_whole
    assert brokers.part is None


# ---- random histories ----------------------------------------------------------------------------


class History(NamedTuple):
    """The log as it is: the epoch of each offset. Segments: those of any branch, by number."""

    live: list[int]
    branches: dict[int, list[int]]
    log: LogView


def epochs_of(records: list[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for offset, epoch in enumerate(records):
        if not found or found[-1][0] != epoch:
            found.append((epoch, offset))
    return tuple(found)


@st.composite
def histories(draw) -> History:
    """A log that unclean elections cut now and then; each branch copied segments before that."""
    live: list[int] = []
    epoch = 0
    segments, branches = [], {}
    for _ in range(draw(st.integers(1, 6))):
        live += [epoch] * draw(st.integers(0, 12))
        for _ in range(draw(st.integers(0, 4)) if live else 0):
            start = draw(st.integers(0, len(live) - 1))
            end = draw(st.integers(start, len(live) - 1))
            number = len(segments) + 1
            branches[number] = list(live)
            segments.append(
                remote_segment(
                    number,
                    start,
                    end,
                    epochs=clipped(epochs_of(live), start, end + 1),
                    state=draw(
                        st.sampled_from([SegmentState.COPY_SEGMENT_FINISHED] * 4 + [COPYING])
                    ),
                )
            )
        if draw(st.booleans()):
            del live[draw(st.integers(0, len(live))) :]
        epoch += draw(st.integers(1, 2))
    live += [epoch] * draw(st.integers(1, 5))
    log_start = draw(st.integers(0, len(live) - 1))
    kept = [(one, first) for one, first in epochs_of(live)]
    kept = [
        each
        for slot, each in enumerate(kept)
        if kept[slot + 1 : slot + 2] == [] or kept[slot + 1][1] > log_start
    ]
    kept = [(one, max(first, log_start)) for one, first in kept]
    log = view(kept, len(live), *draw(st.permutations(segments)), log_start=log_start)
    return History(live, branches, log)


@settings(deadline=None)
@given(histories(), st.data())
def test_pieces_have_each_offset_once_and_of_the_live_branch(history: History, data) -> None:
    log = history.log
    start = data.draw(st.integers(log.log_start, log.end))
    end = data.draw(st.integers(start, log.end))
    pieces = pieces_of(log, start, end)
    assert [n for one in pieces for n in range(one.start, one.end)] == list(range(start, end))
    covered = {n for part in live_parts(log) for n in range(part.start, part.end)}
    for one in pieces:
        for offset in range(one.start, one.end):
            if one.part is None:
                assert offset not in covered
            else:
                segment = one.part.segment
                assert segment.start_offset <= offset <= segment.end_offset
                branch = history.branches[segment.segment_id.int]
                assert branch[offset] == history.live[offset]


@settings(deadline=None)
@given(histories())
def test_all_of_the_live_branch_that_is_in_the_tier_is_found(history: History) -> None:
    parts = live_parts(history.log)
    found = {(part.segment.segment_id, n) for part in parts for n in range(part.start, part.end)}
    for segment in history.log.segments:
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            branch = history.branches[segment.segment_id.int]
            for offset in range(segment.start_offset, segment.end_offset + 1):
                is_live = offset < history.log.end and branch[offset] == history.live[offset]
                if offset >= history.log.log_start:
                    assert ((segment.segment_id, offset) in found) == is_live


@settings(deadline=None)
@given(histories(), st.integers(1, 40))
def test_splits_have_each_offset_once(history: History, count: int) -> None:
    log = history.log
    whole = Split("t", log.topic_id, 0, tuple(pieces_of(log, log.log_start, log.end)))
    parts = cut(whole, count)
    assert len(parts) <= count
    offsets = [n for part in parts for one in part.pieces for n in range(one.start, one.end)]
    assert offsets == list(range(log.log_start, log.end))


def test_splits_are_of_about_the_same_bytes() -> None:
    segments = [remote_segment(n, 100 * n, 100 * n + 99, size=1000) for n in range(8)]
    log = view([(0, 0)], 800, *segments)
    parts = cut(Split("t", b"", 0, tuple(pieces_of(log, 0, 800))), 16)
    assert [part.size for part in parts] == [500] * 16
