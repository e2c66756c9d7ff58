"""State batches of a share partition: where they overlap, the later delivery counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinators.share.batches import merge
from tidelog.coordinators.share.values import UNINITIALIZED, StateBatch

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4

CASES = {
    "equal batches are one": ([(100, 110, 0, 1)], [(100, 110, 0, 1)], [(100, 110, 0, 1)]),
    "equal neighbours are one": ([(100, 110, 0, 1)], [(111, 119, 0, 1)], [(100, 119, 0, 1)]),
    "a gap stays": ([(100, 110, 0, 1)], [(112, 119, 0, 1)], [(100, 110, 0, 1), (112, 119, 0, 1)]),
    "neighbours of other counts stay": (
        [(100, 110, 0, 1)],
        [(111, 119, 0, 2)],
        [(100, 110, 0, 1), (111, 119, 0, 2)],
    ),
    "a higher count splits": (
        [(100, 120, 0, 1)],
        [(105, 110, 0, 2)],
        [(100, 104, 0, 1), (105, 110, 0, 2), (111, 120, 0, 1)],
    ),
    "a lower count is late": ([(100, 120, 2, 3)], [(105, 110, 0, 2)], [(100, 120, 2, 3)]),
    "a higher state counts at the same delivery": (
        [(100, 120, 0, 1)],
        [(110, 130, 4, 1)],
        [(100, 109, 0, 1), (110, 130, 4, 1)],
    ),
    "the end of a late batch is new": (
        [(100, 110, 2, 2)],
        [(105, 115, 0, 1)],
        [(100, 110, 2, 2), (111, 115, 0, 1)],
    ),
}


VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-share-batches.jsonl"


def test_batches_are_merged_as_kafkas_class_merges_them() -> None:
    """Cases that PersisterStateBatchCombiner of Kafka 4.3.1 was given, with its results."""
    cases = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    assert len(cases) == 100
    for case in cases:
        current, changes, merged = (
            [StateBatch(*each) for each in case[key]] for key in ("current", "changes", "merged")
        )
        assert merge(current, changes, case["start_offset"]) == tuple(merged), case


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    current, changes, merged = ([StateBatch(*each) for each in part] for part in CASES[case])
    assert merge(current, changes, UNINITIALIZED) == tuple(merged)


def test_what_lies_before_the_start_offset_is_dropped() -> None:
    batches = [StateBatch(0, 9, 2, 1), StateBatch(10, 19, 0, 1), StateBatch(20, 29, 2, 1)]
    assert merge(batches, (), 15) == (StateBatch(15, 19, 0, 1), StateBatch(20, 29, 2, 1))
    assert merge(batches, (), 30) == ()


def test_a_lone_batch_stays_as_it_is() -> None:
    assert merge((), [StateBatch(3, 5, 0, 1)], UNINITIALIZED) == (StateBatch(3, 5, 0, 1),)


@st.composite
def batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 30))
    last = first + draw(st.integers(0, 12))
    state = draw(st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]))
    return StateBatch(first, last, state, draw(st.integers(1, 3)))


@given(st.lists(batch(), max_size=6), st.lists(batch(), max_size=6), st.integers(-1, 40))
def test_every_offset_has_its_latest_delivery(
    current: list[StateBatch], changes: list[StateBatch], start_offset: int
) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for each in (*current, *changes):
        for offset in range(max(each.first_offset, start_offset), each.last_offset + 1):
            delivery = each.delivery_count, each.delivery_state
            expected[offset] = max(delivery, expected.get(offset, delivery))
    merged = merge(current, changes, start_offset)
    found = {
        offset: (each.delivery_count, each.delivery_state)
        for each in merged
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    assert found == expected
    ends = [(each.first_offset, each.last_offset) for each in merged]
    assert ends == sorted(ends)
    assert sum(last - first + 1 for first, last in ends) == len(found), "no overlaps"
