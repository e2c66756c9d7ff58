"""Index files that are damaged, cut short or gone: found when first used, and built anew."""

from __future__ import annotations

import struct

import pytest

from support.compaction import end_transaction
from support.logs import NOW, append, check_indexes, config, offsets, open_log
from tidelog.simulation.disk import SimDisk
from tidelog_storage import log as log_module
from tidelog_storage import transaction_proof
from tidelog_storage.indexes import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY
from tidelog_storage.types import StorageError

SETTINGS = config(internal_segment_bytes=4000, index_interval_bytes=200)
FOLDER = "data/t-0"


def build(batches=60):
    """A closed log of several segments: producer 1 aborts every third transaction, and between them
    are plain records."""
    disk = SimDisk(0)
    files = disk.files()
    files.make_dirs("data")
    log = open_log(files, settings=SETTINGS)
    sequence = 0
    for number in range(batches):
        append(log, timestamp=NOW + number)
        transactional = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
        append(log, 2, timestamp=NOW + number, transactional=True, **transactional)
        sequence += 2
        end_transaction(log, 1, commit=number % 3 > 0, timestamp=NOW + number)
        log.set_high_watermark(log.log_end_offset)
    log.close()
    assert len(log.segments) > 3
    return files, log


def reopened(files, log):
    return open_log(files, settings=SETTINGS, high_watermark=log.log_end_offset)


def file_of(files, suffix, number=1):
    """Path of the index of one of the segments that have one."""
    names = [name for name in files.list(FOLDER) if name.endswith(suffix)]
    return f"{FOLDER}/{names[number]}"


def put(files, path, data):
    file = files.open(path, create=True)
    file.truncate(0)
    file.append((data,))


def flipped(data, at, bit):
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def found_by_time(log):
    return [log.offset_for_timestamp(NOW + number) for number in range(0, 60, 7)]


def aborted(log):
    return [log.aborted_transactions(start, start + 40) for start in range(0, 240, 20)]


def damages(data, entry_bytes):
    """Each bit of an entry in the middle, cuts, and a file that is empty."""
    middle = len(data) // entry_bytes // 2 * entry_bytes
    for at in range(entry_bytes):
        for bit in (0, 3, 7):
            yield flipped(data, middle + at, bit)
    for at in range(len(data) - entry_bytes, len(data)):
        yield flipped(data, at, 5)
    yield from (b"", data[: len(data) // 2], data[:-entry_bytes], data[:-1], data + data[-3:])


@pytest.mark.parametrize(
    ("suffix", "entry_bytes"),
    [
        (".index", OFFSET_ENTRY.size),
        (".timeindex", TIME_ENTRY.size),
        (".txnindex", TRANSACTION_ENTRY.size),
    ],
)
def test_a_damaged_index_answers_as_a_whole_one(suffix: str, entry_bytes: int) -> None:
    files, log = build()
    expected = offsets(log), found_by_time(log), aborted(log)
    assert any(expected[2])
    path = file_of(files, suffix)
    data = files.read_bytes(path)
    assert len(data) > entry_bytes
    for damage in damages(data, entry_bytes):
        put(files, path, damage)
        again = reopened(files, log)
        assert (offsets(again, max_bytes=300), found_by_time(again), aborted(again)) == expected
        again.release()
    files.remove(path)
    again = reopened(files, log)
    assert (offsets(again), found_by_time(again), aborted(again)) == expected
    again.close()
    assert files.read_bytes(path) == data


def test_every_single_read_leads_to_its_batch_whatever_bit_of_the_offset_index_is_wrong() -> None:
    files, log = build()
    path = file_of(files, ".index")
    data = files.read_bytes(path)
    for damage in damages(data, OFFSET_ENTRY.size):
        put(files, path, damage)
        for offset in range(0, log.log_end_offset, 17):
            again = reopened(files, log)
            records = again.read(offset, 10_000, upper_bound=again.log_end_offset)
            first = int.from_bytes(bytes(records.parts[0][:8]), "big")
            assert first <= offset < first + 2
            again.release()


def test_retention_does_not_delete_by_a_rotten_timestamp() -> None:
    settings = config(internal_segment_bytes=4000, index_interval_bytes=200, retention_ms=1000)
    files, log = build()
    path = file_of(files, ".timeindex", 0)
    data = files.read_bytes(path)
    for damage in (data[:-12] + struct.pack(">qi", 5, 30), data[:12]):
        put(files, path, damage)
        again = open_log(files, settings=settings, high_watermark=log.log_end_offset)
        assert again.delete_old_segments(NOW + 900) == 0
        again.release()


def test_asking_for_timestamps_leaves_no_file_open() -> None:
    files, log = build()
    again = reopened(files, log)
    again.delete_old_segments(NOW)
    assert not any(segment.has_open_file for segment in list(again.segments)[:-1])


def test_records_that_are_damaged_do_not_cost_the_index_that_leads_behind_them() -> None:
    files, log = build()
    base = log.segments.first.base_offset
    path = f"{FOLDER}/{base:020d}"
    index = files.read_bytes(path + ".index")
    _, position = struct.unpack_from(">ii", index, 16)
    records = files.read_bytes(path + ".log")
    put(files, path + ".log", flipped(records, position + 8, 6))  # the length of a batch
    again = reopened(files, log)
    segment = again.segments.first
    offset, _ = segment.offset_index.floor(struct.unpack_from(">ii", index, 16)[0])
    with pytest.raises(StorageError, match="no record batch"):
        segment.find(offset)
    last = log.segments.after(base).base_offset - 1
    assert segment.find(last).last_offset == last
    assert files.read_bytes(path + ".index") == index


def test_an_abort_after_a_clean_start_is_noted_once_behind_a_damaged_index() -> None:
    files, log = build(50)
    path = file_of(files, ".txnindex", -1)
    whole = files.read_bytes(path)
    put(files, path, whole[:-7])
    again = reopened(files, log)
    transactional = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 100}
    begin = append(again, 2, transactional=True, **transactional).first_offset
    end_transaction(again, 1, commit=False)
    again.set_high_watermark(again.log_end_offset)
    assert again.aborted_transactions(begin, begin + 2) == [(1, begin)]
    again.close()
    assert len(files.read_bytes(path)) == len(whole) + TRANSACTION_ENTRY.size


def test_an_orderly_stop_does_not_need_the_transaction_indexes() -> None:
    files, log = build()
    for name in files.list(FOLDER):
        if name.endswith(".txnindex"):
            put(files, f"{FOLDER}/{name}", b"\xff" * 34)
    again = reopened(files, log)
    append(again)
    again.close()
    assert again.recovery_point == again.log_end_offset


def test_the_entry_of_a_transaction_whose_beginning_was_deleted_is_kept() -> None:
    files, log = build()
    bases = log.segments.base_offsets
    last = open_log(files, settings=SETTINGS, high_watermark=log.log_end_offset)
    before = last.aborted_transactions(bases[-1], log.log_end_offset)
    assert before
    last.release()
    for base in bases[:-1]:
        for name in files.list(FOLDER):
            if name.startswith(f"{base:020d}"):
                files.remove(f"{FOLDER}/{name}")
    for name in files.list(FOLDER):
        if name.endswith(".snapshot"):
            files.remove(f"{FOLDER}/{name}")
    again = reopened(files, log)
    assert again.aborted_transactions(bases[-1], log.log_end_offset) == before
    check_indexes(again)


def test_a_read_looks_at_no_segment_behind_which_nothing_older_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the first read after a start would compare all indexes up to the log's end."""
    files, log = build()
    again = reopened(files, log)
    looked_at = []
    has_marker = transaction_proof.has_abort_marker
    monkeypatch.setattr(
        transaction_proof,
        "has_abort_marker",
        lambda records, end: looked_at.append(end) or has_marker(records, end),
    )
    assert again.aborted_transactions(0, 10) == log.aborted_transactions(0, 10)
    assert len(looked_at) == 1


def test_a_transaction_that_is_aborted_many_segments_later_is_found() -> None:
    disk = SimDisk(0)
    files = disk.files()
    files.make_dirs("data")
    log = open_log(files, settings=SETTINGS)
    append(log, 2, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(200):
        append(log)
    end_transaction(log, 1, commit=False)
    append(log)
    log.set_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3
    assert log.aborted_transactions(0, 2) == [(1, 0)]
    log.close()
    again = reopened(files, log)
    assert again.aborted_transactions(0, 2) == [(1, 0)]
    snapshot = file_of(files, ".snapshot", 0)
    put(files, snapshot, flipped(files.read_bytes(snapshot), 12, 1))
    assert reopened(files, log).aborted_transactions(0, 2) == [(1, 0)]


def test_an_abort_does_not_compare_the_whole_active_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, log = build()
    again = reopened(files, log)
    append(again, 2, transactional=True, producer_id=2, producer_epoch=0, base_sequence=0)
    with monkeypatch.context() as patched:
        patched.setattr(log_module, "TransactionProof", None)
        end_transaction(again, 2, commit=False)
    again.set_high_watermark(again.log_end_offset)
    end = again.log_end_offset
    assert again.aborted_transactions(0, end)[-1].producer_id == 2
