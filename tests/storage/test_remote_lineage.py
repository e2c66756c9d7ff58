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


def test_a_log_start_found_gives_up_no_local_record() -> None:
    """A leader out of an unclean election may have what the remote tier has given up already."""
    metadata = metadata_of([segment_of({"start": 50, "end": 99, "epochs": [[0, 50]]})])
    assert lineage.find_log_start([(0, 0), (1, 40)], 0, metadata.segments) == 0


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


def test_a_read_is_cut_where_its_epoch_ends() -> None:
    ends = [lineage.readable_end(EPOCHS, epoch, 33) for epoch in (0, 2, 3)]
    assert ends == [10, 20, 33]


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
