"""Loading a folder: leftovers, checkpoints that disagree with the files, unclean stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, check_indexes, config, offsets, open_log
from tidelog.simulation.disk_files import SimFile
from tidelog_storage.checkpoints import CheckpointError, write_partition_metadata
from tidelog_storage.segment import file_name

if TYPE_CHECKING:
    from tidelog.simulation.disk import SimDisk, SimFiles

FOLDER = "data/t-0"
SETTINGS = config(internal_segment_bytes=600, index_interval_bytes=200)


def build(files, folder=FOLDER, count=10):
    """Closed; batches of two records in several segments."""
    log = open_log(files, folder, SETTINGS)
    for _ in range(count):
        append(log, 2)
    bases = log.segments.base_offsets
    log.close()
    return bases


ALL = [(base, base + 1) for base in range(0, 20, 2)]


def put(files, name, data=b"x"):
    files.open(f"{FOLDER}/{name}", create=True).append((data,))


def test_a_missing_folder_is_made(files: SimFiles) -> None:
    log = open_log(files, "data/new-0", SETTINGS, log_start_offset=7, high_watermark=99)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 7, 7)
    assert files.list("data/new-0") == [file_name(7, ".log")]
    assert log.topic_id is None


def test_the_topic_id_is_read(files: SimFiles) -> None:
    build(files)
    write_partition_metadata(files, FOLDER, b"i" * 16)
    assert open_log(files).topic_id == b"i" * 16
    files.write_atomic(f"{FOLDER}/partition.metadata", b"version: 9\n")
    with pytest.raises(CheckpointError, match="unknown version"):
        open_log(files)


def test_leftovers_go(files: SimFiles) -> None:
    build(files)
    for name in (
        file_name(0, ".log.deleted"),
        file_name(0, ".index.deleted"),
        file_name(4, ".log.cleaned"),
        file_name(4, ".txnindex.cleaned"),
        "leader-epoch-checkpoint.tmp",
        "leader-epoch-checkpoint.3.tmp",
        file_name(9999, ".index"),
        file_name(9999, ".timeindex"),
        file_name(5, ".snapshot"),
    ):
        put(files, name)
    put(files, "README")
    before = files.list(FOLDER)
    log = open_log(files, settings=SETTINGS)
    assert offsets(log) == ALL
    left = files.list(FOLDER)
    assert len(before) - len(left) == 9
    assert "README" in left


def swap_in(files, base, end):
    """A compacted segment [base, end) as it lies before it takes its place."""
    log = open_log(files, "data/swap-0", config(), clean=False)
    log.truncate_fully_and_start_at(base, now_ms=NOW)
    append(log, 1)
    while log.log_end_offset < end:
        append(log, min(9, end - log.log_end_offset))
    data = files.read_bytes(f"data/swap-0/{file_name(base, '.log')}")
    put(files, file_name(base, ".log.swap"), data)
    put(files, file_name(base, ".index.swap"))
    return offsets(log)


@pytest.mark.parametrize("clean", [True, False])
def test_a_complete_swap_takes_the_place_of_what_it_covers(files: SimFiles, clean: bool) -> None:
    bases = build(files)
    compacted = swap_in(files, bases[1], bases[3])
    log = open_log(files, settings=SETTINGS, clean=clean)
    assert offsets(log) == (
        [pair for pair in ALL if pair[1] < bases[1]]
        + compacted
        + [pair for pair in ALL if pair[0] >= bases[3]]
    )
    assert log.segments.base_offsets == [bases[0], bases[1], bases[3]]
    check_indexes(log)
    assert not [name for name in files.list(FOLDER) if "swap" in name]


def test_a_swap_beside_unfinished_cleaning_is_dropped(files: SimFiles) -> None:
    bases = build(files)
    swap_in(files, bases[1], bases[3])
    put(files, file_name(bases[1], ".log.cleaned"))
    assert offsets(open_log(files, settings=SETTINGS)) == ALL


def test_index_files_of_a_swap_that_was_nearly_done_follow(files: SimFiles) -> None:
    """Kafka takes the suffix from the records first."""
    bases = build(files)
    name = file_name(bases[1], ".txnindex")
    put(files, name + ".swap", bytes(34))
    index = file_name(bases[1], ".index")
    content = files.read_bytes(f"{FOLDER}/{index}")
    files.rename(f"{FOLDER}/{index}", f"{FOLDER}/{index}.swap")
    log = open_log(files, settings=SETTINGS)
    assert offsets(log) == ALL
    assert files.read_bytes(f"{FOLDER}/{name}") == bytes(34)
    assert files.read_bytes(f"{FOLDER}/{index}") == content


def test_an_empty_compacted_segment_takes_the_place_of_its_first_one(files: SimFiles) -> None:
    """Those behind it may be left: what they hold is superseded."""
    bases = build(files)
    put(files, file_name(bases[1], ".log.swap"), b"")
    put(files, file_name(bases[1], ".txnindex"), bytes(34))
    log = open_log(files, settings=SETTINGS)
    assert offsets(log) == [pair for pair in ALL if not bases[1] <= pair[0] < bases[2]]
    assert log.segments.base_offsets == bases
    assert not files.exists(f"{FOLDER}/{file_name(bases[1], '.txnindex')}")
    check_indexes(log)


def test_index_files_of_a_sealed_segment_are_made_again_when_needed(files: SimFiles) -> None:
    bases = build(files)
    for suffix in (".index", ".timeindex"):
        files.remove(f"{FOLDER}/{file_name(bases[1], suffix)}")
    log = open_log(files, settings=SETTINGS)
    assert not files.exists(f"{FOLDER}/{file_name(bases[1], '.index')}"), "not before"
    assert offsets(log, start=bases[1] + 2)
    check_indexes(log)
    assert files.exists(f"{FOLDER}/{file_name(bases[1], '.index')}")


@pytest.mark.parametrize("is_rolled", [False, True])
def test_what_is_appended_to_a_segment_found_empty_is_indexed(
    files: SimFiles, is_rolled: bool
) -> None:
    """A crash took all that it had: its index files are there, and nothing is in them."""
    open_log(files, settings=SETTINGS).release()
    open_log(files, settings=SETTINGS, clean=False).close()
    log = open_log(files, settings=SETTINGS)
    log.delete_old_segments(NOW)  # asks for timestamps, when there are none yet
    for _ in range(5):
        append(log, 1)
    if is_rolled:
        log.roll(NOW)
        copied = log.sealed_files(log.segments.first)
        assert copied.max_timestamp == NOW
        assert files.sizes(FOLDER)[file_name(0, ".timeindex")]
    log.close()
    reports = []
    again = open_log(files, settings=SETTINGS, report=reports.append)
    assert offsets(again) == [(offset, offset) for offset in range(5)]
    check_indexes(again)
    assert again.segments.first.index_fault is None
    assert reports == []


def test_a_clean_start_opens_nothing_it_does_not_need(
    files: SimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases = build(files)
    opened = []
    original = type(files).open

    def watch(self, path, **options):
        opened.append(path.rpartition("/")[2])
        return original(self, path, **options)

    def watch_bytes(self, path):
        opened.append(path.rpartition("/")[2])
        return original_bytes(self, path)

    original_bytes = type(files).read_bytes
    monkeypatch.setattr(type(files), "open", watch)
    monkeypatch.setattr(type(files), "read_bytes", watch_bytes)
    open_log(files, settings=SETTINGS)
    assert {name[:20] for name in opened if name[0].isdigit()} == {
        f"{bases[-1]:020d}",
        f"{20:020d}",  # the snapshot
    }


def test_recovery_begins_at_the_recovery_point(files: SimFiles) -> None:
    """What is below was flushed: a flipped bit there is not looked for."""
    bases = build(files)
    for base in bases[:2]:
        files.open(f"{FOLDER}/{file_name(base, '.log')}").inode.data[-1] ^= 1
    log = open_log(files, settings=SETTINGS, clean=False, recovery_point=bases[2])
    assert offsets(log, max_bytes=1, start=bases[2])[-1] == ALL[-1]
    assert log.recovery_point == bases[2]
    log = open_log(files, settings=SETTINGS, clean=False, recovery_point=bases[1] + 2)
    assert log.log_end_offset < bases[2]
    assert log.segments.base_offsets == bases[:2]


def test_everything_below_the_log_start_is_dropped(files: SimFiles) -> None:
    build(files)
    heard = []
    log = open_log(files, settings=SETTINGS, log_start_offset=50, report=heard.append)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.segments.base_offsets == [50]
    assert "below the log start" in heard[0]
    assert append(log, 1).first_offset == 50


def test_checkpoints_are_clamped(files: SimFiles) -> None:
    build(files)
    log = open_log(
        files, settings=SETTINGS, log_start_offset=3, high_watermark=999, recovery_point=999
    )
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (3, 20, 20)
    log = open_log(files, settings=SETTINGS, log_start_offset=3, high_watermark=1)
    assert log.high_watermark == 3


def test_epochs_without_records_go(files: SimFiles) -> None:
    log = open_log(files, settings=SETTINGS)
    append(log, 2, leader_epoch=1)
    log.assign_epoch(4)
    log.close()
    assert [tuple(entry) for entry in open_log(files).epochs.entries] == [(1, 0)]


def test_epochs_beyond_the_checkpoint_come_from_the_batches(files: SimFiles) -> None:
    log = open_log(files, settings=SETTINGS)
    append(log, 2, leader_epoch=1)
    log.flush()
    before = files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint")
    append(log, 2, leader_epoch=3)
    assert files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint") == before == b"0\n1\n1 0\n"
    log = open_log(files, settings=SETTINGS, clean=False, recovery_point=2)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (3, 2)]
    log.flush()
    assert files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n2\n1 0\n3 2\n"


def crash(log, files):
    """The log after a crash, with the recovery point that its directory's checkpoint holds."""
    return open_log(files, settings=SETTINGS, clean=False, recovery_point=log.recovery_point)


@pytest.mark.parametrize("newer", [2, 9])
def test_epochs_in_the_file_above_the_recovery_point_are_not_trusted(
    files: SimFiles, newer: int
) -> None:
    """The file holds epoch 5 at an offset where the log was cut and goes on in another epoch."""
    log = open_log(files, settings=SETTINGS)
    append(log, 4, leader_epoch=1)
    append(log, 4, leader_epoch=5)
    log.flush()
    log.truncate_to(4, NOW)
    append(log, 2, leader_epoch=newer)
    log = crash(log, files)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (newer, 4)]
    assert log.end_offset_for_epoch(1).offset == 4
    log.truncate_to(4, NOW)
    log = crash(log, files)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]


def test_epochs_below_the_recovery_point_are_in_the_file_whatever_was_flushed(
    files: SimFiles,
) -> None:
    log = open_log(files, settings=SETTINGS)
    for epoch in range(6):
        append(log, 2, leader_epoch=epoch)
        if epoch % 2:
            log.flush()
    log.assign_epoch(7)
    expected = [(epoch, 2 * epoch) for epoch in range(6)]
    for _ in range(2):
        log = crash(log, files)
        assert [tuple(entry) for entry in log.epochs.entries] == expected


def test_a_log_without_records_gets_no_epoch_file(files: SimFiles) -> None:
    log = open_log(files, settings=SETTINGS)
    log.assign_epoch(3)
    log.close()
    assert not files.exists(f"{FOLDER}/leader-epoch-checkpoint")
    assert open_log(files, settings=SETTINGS).epochs.entries == []


def test_a_tiered_log_that_began_anew_has_lost_no_epochs_in_a_crash(files: SimFiles) -> None:
    """Its older log start is in the checkpoint; the epoch of its first records is in no file."""
    settings = config(remote_storage_enable=True)
    options = {"settings": settings, "remote_storage_system_enable": True}
    log = open_log(files, **options)
    append(log, 2)
    log.truncate_fully_and_start_at(7)
    append(log, 2, leader_epoch=4)
    log = open_log(files, **options, clean=False, log_start_offset=1)
    assert [tuple(entry) for entry in log.epochs.entries] == [(4, 7)]
    assert (log.log_start_offset, log.log_end_offset) == (7, 9)


def test_snapshots_above_the_recovered_segments_are_not_trusted(files: SimFiles) -> None:
    """The records they speak of may be others now."""
    log = open_log(files, settings=SETTINGS)
    options = {"producer_id": 3, "producer_epoch": 0}
    append(log, 1, base_sequence=0, **options)
    log.close()
    snapshot = f"{FOLDER}/{file_name(1, '.snapshot')}"
    stale = files.read_bytes(snapshot)
    log = open_log(files, settings=SETTINGS)
    log.truncate_to(0, NOW)
    append(log, 1)
    assert not files.exists(snapshot)
    put(files, file_name(1, ".snapshot"), stale)  # its removal was not durable
    assert open_log(files, settings=SETTINGS, clean=False).producers.producers == {}


def test_an_old_snapshot_is_brought_up_to_date(files: SimFiles) -> None:
    log = open_log(files, settings=SETTINGS)
    options = {"producer_id": 3, "producer_epoch": 0}
    for sequence in range(20):
        append(log, 1, base_sequence=sequence, **options)
    log.close()
    files.remove(f"{FOLDER}/{file_name(20, '.snapshot')}")
    for clean in (True, False):
        again = open_log(files, settings=SETTINGS, clean=clean)
        entry = again.producers.producers[3]
        assert entry.last_sequence == 19
        assert again.producers.map_end_offset == 20
        assert append(again, 1, base_sequence=19, **options).duplicate


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_cut_that_a_kill_left_unsynced_does_not_come_back(
    disk: SimDisk, files: SimFiles, monkeypatch: pytest.MonkeyPatch, is_flushed: bool
) -> None:
    """The next start finds nothing to cut, and the segment was never synced again."""

    class KilledError(BaseException):
        pass

    def killed(_):
        raise KilledError

    log = open_log(files, settings=SETTINGS)
    append(log, 4)
    log.flush(closing=True)
    whole = log.segments.active.size
    records = log.segments.active.records
    records.append([b"\0" * 50])
    records.fsync()
    points = [4]
    options = {"recovery_point": 4, "on_recovery_point_lowered": points.append}
    monkeypatch.setattr(SimFile, "fsync", killed)
    with pytest.raises(KilledError):
        open_log(files, settings=SETTINGS, clean=False, **options)
    monkeypatch.undo()
    assert points == [4, 0]
    log = open_log(files, settings=SETTINGS, clean=False, recovery_point=points[-1])
    log.roll(NOW)
    append(log, 1)
    if is_flushed:
        log.flush()
        points.append(log.recovery_point)
    files.fsync_dir(FOLDER)
    disk.power_failure()
    log = open_log(disk.files(), settings=SETTINGS, clean=False, recovery_point=points[-1])
    assert log.segments.first.size == whole
    assert offsets(log)[0] == (0, 3)
