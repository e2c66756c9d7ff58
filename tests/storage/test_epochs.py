"""The leader epoch cache: the vectors of the specification, its file, its invariants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.vectors import load_yaml
from tidelog_storage.checkpoints import (
    CheckpointError,
    EpochEntry,
    LeaderEpochCheckpoint,
    format_epochs,
    parse_epochs,
)
from tidelog_storage.epochs import LeaderEpochCache
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import OffsetAndEpoch

VECTORS = Path(__file__).parent / "vectors"


def cases(file: str) -> list[Any]:
    document = load_yaml(VECTORS / file)
    return [
        pytest.param(
            case.get("function", document.get("function")),
            {**document["given"], **case["in"]},
            case["out"],
            id=case["name"],
        )
        for case in document["cases"]
    ]


def cache_of(entries: list[list[int]]) -> LeaderEpochCache:
    return LeaderEpochCache(None, [EpochEntry(*entry) for entry in entries])


def entries_of(cache: LeaderEpochCache) -> list[list[int]]:
    return [list(entry) for entry in cache.entries]


@pytest.mark.parametrize(("function", "given_", "out"), cases("offset-for-leader-epoch.yaml"))
def test_questions(function: str, given_: dict[str, Any], out: Any) -> None:
    cache = cache_of(given_["entries"])
    if function == "end_offset_for_epoch":
        found = cache.end_offset_for(given_["epoch"], given_["log_end"])
        assert [found.leader_epoch, found.offset] == out
    else:
        assert function == "epoch_for_offset"
        assert cache.epoch_for_offset(given_["offset"]) == out


@pytest.mark.parametrize(("function", "given_", "out"), cases("leader-epoch-cache.yaml"))
def test_changes(function: str, given_: dict[str, Any], out: Any) -> None:
    if function == "checkpoint_file":
        check_file(given_, out)
        return
    cache = cache_of(given_["entries"])
    if out is None:
        with pytest.raises(ValueError, match="0 or more"):
            cache.assign(given_["epoch"], given_["start"])
        assert entries_of(cache) == given_["entries"]
        return
    if function == "epoch_cache_assign":
        assert cache.assign(given_["epoch"], given_["start"]) == (out != given_["entries"])
    elif function == "epoch_cache_truncate_start":
        cache.truncate_from_start(given_["start"])
    elif function == "epoch_cache_truncate_end":
        cache.truncate_from_end(given_["end"])
    else:
        assert function == "epoch_entries_in_range"
        found = cache.entries_in_range(given_["start"], given_["end"])
        assert [list(entry) for entry in found] == out
        assert entries_of(cache) == given_["entries"]
        return
    assert entries_of(cache) == out


def check_file(given_: dict[str, Any], out: Any) -> None:
    if "text" in out:
        entries = [EpochEntry(*entry) for entry in given_["entries"]]
        assert format_epochs(entries).decode() == out["text"]
        assert parse_epochs(out["text"].encode()) == entries
    elif "entries" in out:
        assert [list(entry) for entry in parse_epochs(given_["text"].encode())] == out["entries"]
    else:
        unknown = out["error"] == "unknown_version"
        with pytest.raises(CheckpointError, match="unknown version" if unknown else None):
            parse_epochs(given_["text"].encode())


def test_ends() -> None:
    cache = cache_of([[1, 20], [3, 80], [7, 120]])
    assert cache.latest_epoch == 7
    assert (cache.earliest_entry, cache.entries[-1]) == (EpochEntry(1, 20), EpochEntry(7, 120))
    assert len(cache) == 3


def test_empty() -> None:
    cache = LeaderEpochCache()
    assert (cache.latest_epoch, cache.entries, cache.earliest_entry) == (-1, [], None)
    assert cache.end_offset_for(0, 10) == OffsetAndEpoch(-1, -1)
    cache.truncate_from_start(5)
    cache.truncate_from_end(5)
    cache.clear()
    assert cache.entries == []


class TestFile:
    def test_a_flush_writes_the_epochs_below_the_log_end(self, tmp_path: Path) -> None:
        checkpoint = LeaderEpochCheckpoint(OsFileSystem(), str(tmp_path))
        cache = LeaderEpochCache.load(checkpoint)
        cache.assign(0, 0)
        cache.assign(2, 17)
        cache.assign(3, 20)
        assert not (tmp_path / "leader-epoch-checkpoint").exists()
        cache.flush(20)  # epoch 3 has no records
        assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 17\n"
        assert LeaderEpochCache.load(checkpoint).entries == cache.entries[:2]
        cache.flush(21)
        assert LeaderEpochCache.load(checkpoint).entries == cache.entries

    def test_a_file_that_holds_the_epochs_is_not_written(self, tmp_path: Path) -> None:
        checkpoint = LeaderEpochCheckpoint(OsFileSystem(), str(tmp_path))
        cache = LeaderEpochCache(checkpoint)
        cache.assign(0, 0)
        cache.flush(1)
        loaded = LeaderEpochCache.load(checkpoint)
        (tmp_path / "leader-epoch-checkpoint").unlink()
        for one in (cache, loaded):
            assert not one.assign(0, 5)
            one.flush(9)
        assert list(tmp_path.iterdir()) == []

    def test_a_file_without_entries_is_a_file(self, tmp_path: Path) -> None:
        checkpoint = LeaderEpochCheckpoint(OsFileSystem(), str(tmp_path))
        cache = LeaderEpochCache.load(checkpoint)
        assert not cache.has_file
        cache.flush(0)
        assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"
        assert cache.has_file
        assert LeaderEpochCache.load(checkpoint).has_file
        (tmp_path / "leader-epoch-checkpoint").write_text("")
        assert not LeaderEpochCache.load(checkpoint).has_file

    def test_truncation_reaches_the_file_with_the_next_flush(self, tmp_path: Path) -> None:
        checkpoint = LeaderEpochCheckpoint(OsFileSystem(), str(tmp_path))
        cache = LeaderEpochCache(checkpoint)
        cache.assign(0, 0)
        cache.assign(1, 10)
        cache.flush(20)
        cache.truncate_from_end(10)
        assert checkpoint.read() == [EpochEntry(0, 0), EpochEntry(1, 10)]
        cache.flush(10)
        assert checkpoint.read() == [EpochEntry(0, 0)]

    def test_a_write_on_a_thread_does_not_undo_a_newer_one(self, tmp_path: Path) -> None:
        checkpoint = LeaderEpochCheckpoint(OsFileSystem(), str(tmp_path))
        cache = LeaderEpochCache(checkpoint, [(0, 0), (1, 8)])
        late = cache.prepare(20)
        assert late is not None
        cache.truncate_from_start(12)
        assert cache.has_below(12), "nothing is written yet"
        cache.flush(20)
        late()
        assert checkpoint.read() == [EpochEntry(1, 12)]
        assert not cache.has_below(12)
        assert cache.prepare(20) is None

    def test_the_log_start_is_written_without_records_too(self, tmp_path: Path) -> None:
        checkpoint = LeaderEpochCheckpoint(OsFileSystem(), str(tmp_path))
        cache = LeaderEpochCache(checkpoint, [(0, 0), (1, 8)])
        cache.truncate_from_start(20)
        cache.flush(20)
        assert checkpoint.read() == [EpochEntry(1, 20)]

    def test_kafkas_own_file(self) -> None:
        data = (VECTORS / "kafka-4.3.1" / "leader-epoch-checkpoint").read_bytes()
        assert parse_epochs(data) == [EpochEntry(0, 0)]
        assert format_epochs(parse_epochs(data)) == data


steps = st.lists(
    st.tuples(
        st.sampled_from(["assign", "start", "end", "clear"]),
        st.integers(0, 12),
        st.integers(0, 40),
    ),
    max_size=30,
)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(steps)
def test_invariants_hold_whatever_happens(todo: list[tuple[str, int, int]]) -> None:
    cache = LeaderEpochCache()
    for verb, epoch, offset in todo:
        if verb == "assign":
            cache.assign(epoch, offset)
            assert cache.latest_epoch == epoch
            assert cache.entries[-1].start_offset <= offset
        elif verb == "start":
            covering = cache.epoch_for_offset(offset)
            cache.truncate_from_start(offset)
            assert cache.epoch_for_offset(offset) == covering
        elif verb == "end":
            cache.truncate_from_end(offset)
            assert all(entry.start_offset < offset for entry in cache.entries)
        else:
            cache.clear()
        epochs = [entry.epoch for entry in cache.entries]
        starts = [entry.start_offset for entry in cache.entries]
        assert epochs == sorted(set(epochs))
        assert starts == sorted(set(starts))
        check_end_offsets(cache)


def check_end_offsets(cache: LeaderEpochCache, log_end: int = 50) -> None:
    """End offsets rise with the epoch and never pass the log's end."""
    last = OffsetAndEpoch(0, -1)
    for epoch in range(cache.latest_epoch + 1):
        found = cache.end_offset_for(epoch, log_end)
        assert 0 <= last.offset <= found.offset <= log_end
        assert last.leader_epoch <= found.leader_epoch <= epoch
        last = found
