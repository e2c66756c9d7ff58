"""The files of a remote segment, made again from its records and what the tier still has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, batch, open_log
from support.remote import copy_candidates
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.config import LogConfig
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound
from tidelog_storage.remote.copier import candidates, epochs_of
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.rebuilding import (
    SegmentContent,
    check_records,
    clean,
    producers_known,
    rebuild,
)
from tidelog_storage.segment import SegmentOptions

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_storage.log import Log

SETTINGS = LogConfig({"internal.segment.bytes": 1 << 20, "index.interval.bytes": 200})
FILES = OsFileSystem()


@pytest.fixture
def log(tmp_path):
    """A transaction that begins in the first of three segments and is aborted in the second."""
    log = open_log(FILES, tmp_path / "t-0", SETTINGS)

    def send(sequence):
        log.append_as_leader(
            batch(
                producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True, size=90
            ),
            leader_epoch=1,
            now_ms=NOW,
        )

    def end(kind):
        marker = build_end_transaction_marker(
            kind, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
        )
        log.append_as_leader(
            memoryview(bytearray(marker)), leader_epoch=1, now_ms=NOW, from_client=False
        )

    for sequence in range(6):
        append(log, leader_epoch=1, size=100)
        send(sequence)
        if sequence == 3:
            end(ControlType.ABORT)
        if sequence % 2:
            log.roll(NOW)
    end(ControlType.COMMIT)
    append(log, leader_epoch=2)
    log.set_high_watermark(log.log_end_offset)
    log.roll(NOW)
    return log


def contents(files):
    return [
        None if path is None else FILES.read_bytes(path)
        for path in (
            files.log,
            files.offset_index,
            files.time_index,
            files.transaction_index,
            files.producer_snapshot,
        )
    ] + [files.leader_epoch_checkpoint]


def read(store, segment):
    with store.fetch_segment(segment, 0) as stream:
        return memoryview(stream.read())


def again(log, store, segment, previous, folder):
    known = producers_known(store, segment, previous)
    return rebuild(
        FILES,
        folder,
        segment,
        SegmentContent(read(store, segment), known, epochs_of(log, segment)),
        SegmentOptions.of(SETTINGS),
    )


def test_all_files_are_as_they_were(log: Log, tmp_path: Path) -> None:
    store = DirectoryStore(FILES, str(tmp_path / "store"))
    segments = copy_candidates(log, store)
    folder = str(tmp_path / "again")
    for slot, candidate in enumerate(candidates(log, -1, NOW)):
        for previous in {None, segments[slot - 1] if slot else None}:
            files = again(log, store, segments[slot], previous, folder)
            assert contents(files) == contents(candidate.files)
        clean(FILES, folder)
    assert not FILES.exists(folder)
    assert [each.txn_index_empty for each in segments] == [True, False, True, True]


def test_the_segment_before_restores_an_aborted_transaction_whose_index_is_gone(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(FILES, str(tmp_path / "store"))
    first, second, *_ = copy_candidates(log, store)
    fetch = store.fetch_index

    def fetch_index(segment, kind):
        if segment is second and kind in (IndexKind.TRANSACTION, IndexKind.PRODUCER_SNAPSHOT):
            raise RemoteResourceNotFound("gone")
        return fetch(segment, kind)

    monkeypatch.setattr(store, "fetch_index", fetch_index)
    candidate = candidates(log, -1, NOW)[1]
    files = again(log, store, second, first, str(tmp_path / "again"))
    assert contents(files) == contents(candidate.files)
    files = again(log, store, second, None, str(tmp_path / "again"))
    assert contents(files)[:3] == contents(candidate.files)[:3]


def test_an_earlier_segment_that_does_not_end_where_this_one_begins(
    log: Log, tmp_path: Path
) -> None:
    """As after a change of leader: the records between are fed to the producers first."""
    store = DirectoryStore(FILES, str(tmp_path / "store"))
    first, second, third, _ = copy_candidates(log, store)
    known = producers_known(store, third, first, read(store, second))
    assert known.before_offset == second.start_offset
    known = replace(known, snapshot=None, aborted=())
    files = rebuild(
        FILES,
        str(tmp_path / "again"),
        third,
        SegmentContent(read(store, third), known, epochs_of(log, third)),
        SegmentOptions.of(SETTINGS),
    )
    assert contents(files) == contents(candidates(log, -1, NOW)[2].files)


def test_epochs_below_the_log_start_come_from_the_metadata(log: Log, tmp_path: Path) -> None:
    store = DirectoryStore(FILES, str(tmp_path / "store"))
    segments = copy_candidates(log, store)
    before = [epochs_of(log, each) for each in segments]
    log.maybe_increment_log_start(segments[-1].end_offset, "test")
    log.maybe_increment_log_start(log.log_end_offset, "test")
    assert [each.start_offset for each in log.epochs.entries] == [log.log_end_offset]
    assert epochs_of(log, segments[0]) == before[0]
    assert epochs_of(log, segments[-1]).startswith(b"0\n2\n1 ")


def test_other_records_are_refused(log: Log, tmp_path: Path) -> None:
    store = DirectoryStore(FILES, str(tmp_path / "store"))
    first, second, *_ = copy_candidates(log, store)
    records = read(store, second)
    assert check_records(second, records) == ""
    assert "bytes, not" in check_records(second, records[:-1])
    flipped = memoryview(bytearray(records))
    flipped[70] ^= 1
    assert "checksum" in check_records(second, flipped)
    other = replace(second, epochs=((3, second.start_offset),))
    assert "epoch 1, not 3" in check_records(other, records)
    moved = replace(second, start_offset=first.start_offset)
    assert check_records(replace(moved, size=len(records)), records) == ""  # a gap: compacted once
    assert check_records(replace(first, size=len(records)), records)
