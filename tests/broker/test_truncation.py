"""Where followers cut and go on: the specification's tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.data_path import DataPath, batch
from support.vectors import load_yaml
from tidelog.replication.truncation import (
    StartOffset,
    Truncation,
    batch_boundary,
    follower_truncation,
    start_offset,
)
from tidelog_storage.epochs import LeaderEpochCache
from tidelog_storage.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterator

VECTORS = Path(__file__).parent / "vectors"


def cases(file: str, function: str) -> list[Any]:
    table = load_yaml(VECTORS / file)
    return [
        pytest.param(case["in"], case["out"], id=case["name"])
        for case in table["cases"]
        if case.get("function", table["function"]) == function
    ]


def truncation(
    entries: list[tuple[int, int]], log_end: int, high_watermark: int, answer: tuple[int, int]
) -> Truncation:
    epoch, end = answer
    return follower_truncation(
        OffsetAndEpoch(end, epoch),
        LeaderEpochCache(None, entries).end_offset_for(epoch, log_end),
        log_end_offset=log_end,
        high_watermark=high_watermark,
    )


@pytest.mark.parametrize(("given", "out"), cases("diverging-epoch.yaml", "follower_truncation"))
def test_truncation(given: dict[str, Any], out: dict[str, Any]) -> None:
    entries = [tuple(entry) for entry in given["entries"]]
    found = truncation(entries, given["log_end"], given["hw"], given["leader_answer"])
    assert found == Truncation(out["truncate_to"], out["done"])


def test_a_leader_that_names_no_epoch() -> None:
    assert truncation([(0, 0)], 6, 2, (-1, 4)) == Truncation(4, done=True)
    assert truncation([(0, 0)], 6, 2, (-1, 9)) == Truncation(6, done=True)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    """Entries of an epoch cache and the log's end."""
    epochs = sorted(draw(st.sets(st.integers(0, 8), min_size=1, max_size=5)))
    starts = sorted(draw(st.sets(st.integers(0, 20), min_size=len(epochs), max_size=len(epochs))))
    return [*zip(epochs, [0, *starts[1:]], strict=True)], starts[-1] + draw(st.integers(1, 5))


@given(histories(), histories())
def test_rounds_end_where_both_have_the_same_epochs(
    leader: tuple[list[tuple[int, int]], int], follower: tuple[list[tuple[int, int]], int]
) -> None:
    """KIP-279's loop, with the leader's rule (7.1): it ends, and what is left of the follower's
    epochs is what the leader has, as far as two logs can tell from epochs."""
    theirs, their_end = LeaderEpochCache(None, leader[0]), leader[1]
    ours, end = LeaderEpochCache(None, follower[0]), follower[1]
    for _ in range(20):
        last = ours.latest_epoch
        if last == -1:
            assert end == 0
            return
        answer = theirs.end_offset_for(last, their_end)
        if answer.offset == -1:
            return  # out of range: the leader is the one that is behind
        if answer.leader_epoch >= last and answer.offset >= end:
            return
        before = (end, last)
        decision = follower_truncation(
            answer,
            ours.end_offset_for(answer.leader_epoch, end),
            log_end_offset=end,
            high_watermark=0,
        )
        end = min(end, decision.offset)
        ours.truncate_from_end(end)
        assert (end, ours.latest_epoch) < before, "each round cuts something"
    pytest.fail("no end")


def untiered(given: dict[str, Any]) -> bool:
    """Cases that a follower meets without a remote tier."""
    leader = given["leader"]
    return given.get("event") == "OFFSET_OUT_OF_RANGE" and not (
        given["replica_log_end"] == 0 and leader["local_start"] > leader["log_start"]
    )


@pytest.mark.parametrize(
    ("given", "out"),
    [
        case
        for case in cases("follower-start-offset.yaml", "follower_start_offset")
        if untiered(case.values[0])
    ],
)
def test_start_offset(given: dict[str, Any], out: dict[str, Any]) -> None:
    leader = given["leader"]
    own_end = given["replica_log_end"]
    first = start_offset(own_end, leader_log_end=leader["log_end"])
    found = first or start_offset(
        own_end, leader_log_end=leader["log_end"], leader_log_start=leader["log_start"]
    )
    assert (first is None) is ("truncate_to" not in out)
    assert found == StartOffset(
        out["start"], out.get("truncate_to"), restart=out.get("truncate_fully", False)
    )


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    yield path
    path.logs.abandon()


def test_batches_are_cut_whole(path: DataPath) -> None:
    path.create("foo")
    for _ in range(3):
        path.produce("foo", 0, batch(4))
    log = path.partition("foo").log
    assert [batch_boundary(log, offset) for offset in (0, 3, 4, 5, 11, 12, 99)] == [
        0, 0, 4, 4, 8, 12, 99,
    ]  # fmt: skip
    log.maybe_increment_log_start(5, "test")
    assert [batch_boundary(log, offset) for offset in (4, 6, 9)] == [4, 5, 8]
