"""The lineage of a log against its remote segments: the specification's table, edges of our own."""

from __future__ import annotations

from typing import Any

import pytest

from support.remote_vectors import metadata_of, pairs, segment_of, symbol, table
from tidelog_storage.remote import lineage
from tidelog_storage.types import OffsetAndEpoch

FILE = "remote-lineage.yaml"


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "segment_in_lineage"))
def test_in_lineage(_: str, given: dict[str, Any], out: bool) -> None:
    segment = segment_of(given["segment"])
    assert lineage.in_lineage(segment, pairs(given["lineage"]), given["log_end"]) is out


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "filter_empty_epochs"))
def test_without_empty(_: str, given: dict[str, Any], out: Any) -> None:
    assert lineage.without_empty(pairs(given["epochs"])) == pairs(out)


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "remote_lookup"))
def test_look_ups(_: str, given: dict[str, Any], out: Any) -> None:
    metadata = metadata_of([segment_of(facts) for facts in given["finished"]])
    found = metadata.segment_for(given["epoch"], given["offset"])
    wanted = out["segment"] if isinstance(out["segment"], list) else [out["segment"]]
    assert (None if found is None else symbol(found)) in wanted


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "highest_remote_offset"))
def test_highest_offsets(_: str, given: dict[str, Any], out: Any) -> None:
    metadata = metadata_of([segment_of(facts) for facts in given["finished"]])
    assert metadata.highest_offset(given["epoch"]) == out["offset"]


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "copied_offset"))
def test_copied_up_to(_: str, given: dict[str, Any], out: Any) -> None:
    highest = dict(given["highest"])
    found = lineage.copied_up_to(pairs(given["lineage"]), given["log_end"], highest.get)
    assert found == OffsetAndEpoch(out["offset"], out["epoch"])


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "remote_log_start"))
def test_find_log_start(_: str, given: dict[str, Any], out: Any) -> None:
    metadata = metadata_of(
        [
            segment_of({"id": f"s{number}", **facts})
            for number, facts in enumerate(given["segments"])
        ]
    )
    epochs = pairs(given["lineage"])
    found = lineage.find_log_start(epochs, given["local_start"], metadata.segments)
    assert found == out["offset"]


@pytest.mark.parametrize(("_", "given", "out"), table(FILE, "aux_target_epoch"))
def test_target_epoch(_: str, given: dict[str, Any], out: Any) -> None:
    start, epoch = given["local_start"], given["local_start_epoch"]
    asks = epoch - 1 if epoch else None
    assert asks == out["asks_epoch"]
    answer = given["answer"] and tuple(given["answer"])
    assert lineage.target_epoch(start, epoch, answer) == out["epoch"]
    assert start - 1 == out["offset"]


# Kafka's own numbers (RemoteLogManagerTest): copied up to, and the log start found.
KAFKAS = [
    ([(0, 0), (1, 500)], {0: 200}, (200, 0)),
    ([(0, 0), (1, 150), (2, 300)], {0: 200}, (149, 0)),
    ([(0, 0), (1, 150), (2, 300)], {}, (-1, -1)),
]


@pytest.mark.parametrize(("epochs", "highest", "copied"), KAFKAS)
def test_kafkas_copied_offsets(
    epochs: list[tuple[int, int]], highest: dict[int, int], copied: tuple[int, int]
) -> None:
    assert lineage.copied_up_to(epochs, 700, highest.get) == copied


def test_the_newest_epoch_ends_with_the_log() -> None:
    # The log was cut to 30 after a copy up to 49 in the same epoch.
    assert lineage.copied_up_to([(4, 0)], 30, {4: 49}.get) == (29, 4)


def test_a_log_without_epochs_has_no_lineage() -> None:
    segment = segment_of({"start": 0, "end": 9, "epochs": [[0, 0]]})
    assert not lineage.in_lineage(segment, (), 100)
    assert lineage.copied_up_to((), 100, {0: 9}.get) == (-1, -1)
    assert lineage.find_log_start((), 17, lambda epoch: [segment]) == 17


def test_a_log_start_is_found_only_where_a_reader_finds_something() -> None:
    metadata = metadata_of(
        [
            segment_of({"id": "going", "start": 0, "end": 9, "epochs": [[0, 0]]} | GOING),
            segment_of({"id": "coming", "start": 5, "end": 19, "epochs": [[0, 5]]} | COMING),
            segment_of({"id": "there", "start": 20, "end": 29, "epochs": [[0, 20]]}),
        ]
    )
    assert lineage.find_log_start([(0, 0)], 25, metadata.segments) == 20


GOING = {"state": "DELETE_SEGMENT_STARTED"}
COMING = {"state": "COPY_SEGMENT_STARTED"}


def test_a_log_start_is_not_found_on_another_branch() -> None:
    """The former leader of epoch 0 went on to 99 and expired its beginning; ours left it at 40."""
    metadata = metadata_of([segment_of({"start": 50, "end": 99, "epochs": [[0, 50]]})])
    assert lineage.find_log_start([(0, 0), (1, 40)], 0, metadata.segments) == 0
    assert lineage.find_log_start([(0, 0), (1, 51)], 0, metadata.segments) == 50
    assert lineage.find_log_start([(0, 70), (1, 90)], 80, metadata.segments) == 70


def test_a_log_start_is_found_behind_what_is_nowhere() -> None:
    """A dead branch holds what the former leader has expired, but not all up to the local start."""
    dead = {"id": "dead", "start": 20, "end": 34, "epochs": [[8, 20]]}
    live = {"id": "live", "start": 40, "end": 49, "epochs": [[9, 40]]}
    epochs = [(8, 20), (9, 30)]

    def found(local_start: int, *facts: dict[str, Any]) -> int:
        metadata = metadata_of([segment_of(each) for each in facts])
        return lineage.find_log_start(epochs, local_start, metadata.segments)

    assert found(30, dead, live) == 20
    assert found(36, dead, live) == 36
    assert found(45, dead, live) == 40
    assert found(60, dead, live) == 60
    assert found(50, dead, live | {"start": 30, "epochs": [[9, 30]]}) == 20


def test_what_is_local_only_again_is_not_copied() -> None:
    metadata = metadata_of(
        [
            segment_of({"id": "s0", "start": 0, "end": 19, "epochs": [[0, 0], [1, 10]]}),
            segment_of({"id": "s1", "start": 20, "end": 39, "epochs": [[1, 20]]}),
            segment_of({"id": "s2", "start": 50, "end": 59, "epochs": [[2, 50]]}),
        ]
    )
    epochs = [(0, 0), (1, 10), (2, 40)]

    def kept(copied: int, local_start: int, lineage_: list[tuple[int, int]] = epochs) -> int:
        return lineage.kept_up_to(copied, lineage_, local_start, 90, metadata.segment_for)

    assert kept(59, 0) == 39  # 40-49 was deleted, or never came
    assert kept(59, 40) == 39
    assert kept(59, 50) == 59
    assert kept(59, 60) == 59  # nothing of it is local any more
    assert kept(-1, 0) == -1
    assert kept(9, 0, [(0, 0), (3, 5)]) == 4  # the branch went elsewhere at 5
    assert kept(9, 0, [(0, 5)]) == -1  # no epoch is known there


EPOCHS = [(0, 0), (2, 10), (3, 20)]
CLIPPED = [
    (0, 5, ((0, 0),)),
    (5, 10, ((0, 5),)),
    (5, 11, ((0, 5), (2, 10))),
    (10, 20, ((2, 10),)),
    (12, 99, ((2, 12), (3, 20))),
    (30, 40, ((3, 30),)),
]


@pytest.mark.parametrize(("start", "end", "epochs"), CLIPPED)
def test_epochs_are_clipped_to_a_segment(start: int, end: int, epochs: Any) -> None:
    assert lineage.clipped(EPOCHS, start, end) == epochs


def test_the_first_segment_may_begin_below_the_log_start() -> None:
    """DeleteRecords moved the log start into it, and its epochs with it."""
    assert lineage.clipped([(2, 7), (3, 20)], 5, 30) == ((2, 7), (3, 20))


def test_each_epoch_has_its_part_of_a_segment() -> None:
    segment = segment_of({"start": 5, "end": 29, "epochs": [[0, 5], [2, 10], [3, 10], [4, 25]]})
    assert lineage.epoch_parts(segment) == [(0, 5, 9), (2, 10, 9), (3, 10, 24), (4, 25, 29)]
    assert [lineage.part_end(segment, epoch) for epoch in (0, 3, 4)] == [9, 24, 29]


def test_a_follower_begins_behind_the_segment_that_ends_soonest() -> None:
    """The others may go on with another branch, and it would begin behind that."""
    segments = [
        segment_of({"id": "long", "start": 0, "end": 29, "epochs": [[0, 0], [1, 20]]}),
        segment_of({"id": "short", "start": 5, "end": 12, "epochs": [[0, 5]]}),
        segment_of({"id": "shorter", "start": 0, "end": 9, "epochs": [[0, 0]]}),
        segment_of({"id": "coming", "start": 9, "end": 10, "epochs": [[0, 9]]} | COMING),
    ]
    found = [lineage.aux_segment(segments, *asked) for asked in [(0, 9), (0, 10), (0, 15), (1, 9)]]
    assert [each and symbol(each) for each in found] == ["shorter", "short", "long", None]


def test_offset_rules_name_every_hole() -> None:
    """The table's rules themselves: what the model test demands of every state."""
    for param in table(FILE, "offset_constraints"):
        _, given, out = param.values
        assert offsets_hold(**{key: given[key] for key in OFFSETS}) is out["holds"], param.id


OFFSETS = ("local_start", "local_end", "last_stable", "remote_start", "remote_end")


def offsets_hold(
    local_start: int,
    local_end: int,
    last_stable: int,
    remote_start: int | None,
    remote_end: int | None,
) -> bool:
    if not local_start <= last_stable <= local_end:
        return False
    if remote_start is None or remote_end is None:
        return True
    return remote_start <= remote_end < last_stable and local_start <= remote_end + 1
