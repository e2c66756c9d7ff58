"""Sequences, epochs, duplicates, transactions and snapshots of one log's producers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    build_end_transaction_marker,
    iter_batches,
    read_header,
    set_offset_and_epoch,
)
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.producer_state import (
    CompletedTransaction,
    ProducerStateManager,
)
from tidelog_storage.types import StorageError, TopicPartition

KAFKA = Path(__file__).parent / "vectors" / "kafka-4.3.1"
LOGS = Path(__file__).parent.parent / "protocol" / "vectors" / "kafka-4.3.1"
NOW = 1_700_000_000_000
MAX = 2147483647


@pytest.fixture
def producers(tmp_path: Path) -> ProducerStateManager:
    return manager(tmp_path)


def manager(folder: Path, **options: int) -> ProducerStateManager:
    stems = [each.stem for each in folder.glob("*.snapshot")]
    options.setdefault("snapshot_offsets", [int(stem) for stem in stems if stem.isdigit()])
    return ProducerStateManager(OsFileSystem(), str(folder), TopicPartition("topic", 0), **options)


def header(
    offset: int,
    sequence: int,
    *,
    count: int = 1,
    producer_id: int = 1,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = NOW,
) -> BatchHeader:
    return read_header(
        build_batch(
            [Record(offset, timestamp, b"k", b"v")],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )._replace(last_offset_delta=count - 1, records_count=count)


def append(producers: ProducerStateManager, batch: BatchHeader) -> None:
    assert producers.check(batch, batch.base_offset) is None
    producers.update(batch)
    producers.map_end_offset = batch.next_offset


def marker(
    offset: int, kind: ControlType = ControlType.COMMIT, *, producer_id: int = 1, epoch: int = 0,
    coordinator_epoch: int = 0,
) -> bytes:  # fmt: skip
    built = build_end_transaction_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW,
    )
    batch = bytearray(built)
    set_offset_and_epoch(batch, 0, offset, -1)
    return bytes(batch)


def refused(producers: ProducerStateManager, batch: BatchHeader, **options: bool) -> StorageError:
    with pytest.raises(StorageError) as caught:
        producers.check(batch, batch.base_offset, **options)
    return caught.value


class TestSequences:
    def test_in_order(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, count=5))
        append(producers, header(5, 5))
        append(producers, header(6, 6, count=3))
        assert producers.producers[1].last_sequence == 8

    def test_an_unknown_producer_may_start_anywhere(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 1234))
        append(producers, header(1, 1235))

    @pytest.mark.parametrize("sequence", [5, 7, 0, MAX])
    def test_a_gap_or_step_back(self, producers: ProducerStateManager, sequence: int) -> None:
        append(producers, header(0, 0, count=6))
        error = refused(producers, header(6, sequence))
        assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert error.message == (
            f"Out of order sequence number for producer 1 at offset 6 in partition topic-0:"
            f" {sequence} (incoming seq. number), 5 (current end sequence number)"
        )

    def test_sequences_wrap(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, MAX - 1, count=2))
        append(producers, header(2, 0))
        append(producers, header(3, 1))

    def test_a_batch_across_the_wrap(self, producers: ProducerStateManager) -> None:
        across = header(0, MAX, count=3)
        append(producers, across)
        assert producers.producers[1].last_sequence == 1
        duplicate = producers.check(across, 3)
        assert duplicate is not None
        assert duplicate.first_offset == 0
        append(producers, header(3, 2))

    def test_a_new_epoch_starts_at_zero(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, count=3))
        error = refused(producers, header(3, 3, epoch=1))
        assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "Invalid sequence number for new epoch of producer 1" in str(error)
        append(producers, header(3, 0, epoch=1))
        append(producers, header(4, 1, epoch=1))

    def test_an_old_epoch_is_fenced(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, epoch=3))
        for from_client in (True, False):
            error = refused(producers, header(1, 1, epoch=2), from_client=from_client)
            assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert error.message == (
                "Epoch of producer 1 at offset 1 in topic-0 is 2, which is smaller than the last"
                " seen epoch 3"
            )

    def test_coordinators_have_no_sequences(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0))
        assert producers.check(header(1, -1), 1, from_client=False) is None


class TestDuplicates:
    def test_the_last_five_batches_are_known(self, producers: ProducerStateManager) -> None:
        batches = [header(2 * i, 2 * i, count=2, timestamp=NOW + i) for i in range(7)]
        for batch in batches:
            append(producers, batch)
        for batch in batches[2:]:
            found = producers.check(batch, 14)
            assert found is not None
            assert found.duplicate
            assert (found.first_offset, found.last_offset) == (batch.base_offset, batch.last_offset)
            assert found.log_append_time == batch.max_timestamp
        for batch in batches[:2]:
            error = refused(producers, batch)
            assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_the_range_must_be_the_same(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, count=4))
        for sequence, count in ((0, 3), (1, 3), (0, 5), (3, 1)):
            refused(producers, header(4, sequence, count=count))

    def test_the_epoch_must_be_the_same(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0))
        append(producers, header(1, 0, epoch=1))
        error = refused(producers, header(2, 0, epoch=0))
        assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_repeated_check_changes_nothing(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0))
        before = producers.snapshot_content()
        producers.check(header(1, 1), 1)
        producers.check(header(0, 0), 1)
        assert producers.snapshot_content() == before


class TestTransactions:
    def test_open_transactions_hold_the_stable_offset(
        self, producers: ProducerStateManager
    ) -> None:
        assert producers.first_unstable_offset is None
        append(producers, header(0, 0, transactional=True))
        append(producers, header(1, 0, producer_id=2, transactional=True))
        append(producers, header(2, 1, transactional=True))
        assert producers.first_unstable_offset == producers.first_undecided_offset == 0

        batch = marker(3)
        completed = producers.update(read_header(batch), batch)
        assert completed == CompletedTransaction(1, 0, 3, is_aborted=False)
        assert producers.last_stable_offset(completed) == 1
        producers.complete_transaction(completed)
        assert producers.first_undecided_offset == 1
        # Decided, but the marker is not replicated yet.
        assert producers.first_unstable_offset == 0
        producers.on_high_watermark_updated(3)
        assert producers.first_unstable_offset == 0
        producers.on_high_watermark_updated(4)
        assert producers.first_unstable_offset == 1

        batch = marker(4, ControlType.ABORT, producer_id=2)
        completed = producers.update(read_header(batch), batch)
        assert completed == CompletedTransaction(2, 1, 4, is_aborted=True)
        assert producers.last_stable_offset(completed) == 5
        producers.complete_transaction(completed)
        producers.on_high_watermark_updated(5)
        assert producers.first_unstable_offset is None

    def test_plain_records_inside_a_transaction(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, transactional=True))
        assert refused(producers, header(1, 1)).code == ErrorCode.INVALID_TXN_STATE

    def test_a_marker_may_raise_the_epoch(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, transactional=True))
        batch = marker(1, epoch=1, coordinator_epoch=7)
        assert producers.update(read_header(batch), batch) is not None
        entry = producers.producers[1]
        assert (entry.producer_epoch, entry.coordinator_epoch) == (1, 7)
        assert list(entry.batches) == []
        assert producers.check(header(2, 0, epoch=1), 2) is None

    def test_a_marker_without_a_transaction(self, producers: ProducerStateManager) -> None:
        batch = marker(0)
        assert producers.update(read_header(batch), batch) is None
        assert producers.producers[1].producer_epoch == 0

    def test_markers_of_older_epochs_are_refused(self, producers: ProducerStateManager) -> None:
        batch = marker(0, epoch=2, coordinator_epoch=5)
        producers.check_marker(read_header(batch), 5, 0)  # an unknown producer
        producers.update(read_header(batch), batch)
        producers.check_marker(read_header(batch), 5, 1)
        with pytest.raises(StorageError) as caught:
            producers.check_marker(read_header(marker(1, epoch=1)), 5, 1)
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(StorageError) as caught:
            producers.check_marker(read_header(batch), 4, 1)
        assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TestExpiry:
    def test_idle_producers_go(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, producer_id=1))
        append(producers, header(1, 0, producer_id=2, timestamp=NOW + 1))
        append(producers, header(2, 0, producer_id=3, transactional=True))
        producers.expire(NOW + 86_400_000 - 1)
        assert set(producers.producers) == {1, 2, 3}
        producers.expire(NOW + 86_400_000)
        assert set(producers.producers) == {2, 3}
        producers.expire(NOW * 2)
        assert set(producers.producers) == {3}  # never within a transaction

    def test_one_is_forgotten_on_request(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0, producer_id=1))
        append(producers, header(1, 0, producer_id=2, transactional=True))
        assert [producers.forget(producer_id) for producer_id in (1, 1, 2)] == [True, False, False]
        assert set(producers.producers) == {2}
        append(producers, header(2, 77, producer_id=1))

    def test_an_expired_one_may_start_anywhere(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0))
        producers.expire(NOW * 2)
        append(producers, header(1, 77))


class TestSnapshots:
    def test_taken_once_per_offset_and_loaded(self, tmp_path: Path) -> None:
        producers = manager(tmp_path)
        assert producers.take_snapshot() is None  # nothing there yet
        append(producers, header(0, 0, count=4))
        append(producers, header(4, 0, producer_id=2, transactional=True))
        assert producers.take_snapshot() == 5
        assert producers.take_snapshot() is None
        assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000005.snapshot"]

        again = manager(tmp_path)
        again.truncate_and_reload(0, 9, NOW)
        assert again.map_end_offset == 5
        assert again.snapshot_content() == producers.snapshot_content()
        assert again.first_unstable_offset == 4
        assert again.check(header(9, 4), 9) is None
        assert again.check(header(0, 0, count=4), 9) is not None  # the newest batch is kept

    def test_a_torn_snapshot_is_dropped_for_an_older_one(self, tmp_path: Path) -> None:
        producers = manager(tmp_path)
        append(producers, header(0, 0))
        producers.take_snapshot()
        append(producers, header(1, 1))
        producers.take_snapshot()
        newest = tmp_path / f"{2:020d}.snapshot"
        newest.write_bytes(newest.read_bytes()[:-1])
        again = manager(tmp_path)
        again.truncate_and_reload(0, 2, NOW)
        assert again.map_end_offset == 1
        assert again.snapshots == [1]
        assert not newest.exists()

    def test_truncation_goes_back_to_a_snapshot(self, tmp_path: Path) -> None:
        producers = manager(tmp_path)
        for offset in range(6):
            append(producers, header(offset, offset))
            if offset % 2:
                producers.take_snapshot()
        assert producers.snapshots == [2, 4, 6]
        producers.truncate_and_reload(0, 5, NOW)
        assert (producers.snapshots, producers.map_end_offset) == ([2, 4], 4)
        assert producers.producers[1].last_sequence == 3
        producers.truncate_and_reload(4, 5, NOW)
        assert producers.snapshots == []
        assert (producers.map_end_offset, producers.producers) == (4, {})

    def test_nothing_is_read_when_the_end_is_the_same(
        self, producers: ProducerStateManager
    ) -> None:
        append(producers, header(0, 0, count=5))
        producers.truncate_and_reload(3, 5, NOW)
        assert producers.producers[1].last_sequence == 4

    def test_expired_entries_are_not_loaded(self, tmp_path: Path) -> None:
        producers = manager(tmp_path, expiration_ms=1000)
        append(producers, header(0, 0))
        append(producers, header(1, 0, producer_id=2, timestamp=NOW + 500))
        producers.take_snapshot()
        again = manager(tmp_path, expiration_ms=1000)
        again.truncate_and_reload(0, 2, NOW + 1000)
        assert set(again.producers) == {2}

    def test_truncated_fully(self, tmp_path: Path) -> None:
        producers = manager(tmp_path)
        append(producers, header(0, 0, transactional=True))
        producers.take_snapshot()
        producers.truncate_fully_and_start_at(40)
        assert (producers.producers, producers.map_end_offset) == ({}, 40)
        assert producers.first_unstable_offset is None
        assert list(tmp_path.iterdir()) == []

    def test_strays_go_except_the_one_of_the_last_stop(self, tmp_path: Path) -> None:
        for offset in (0, 5, 10, 15, 20, 30):
            (tmp_path / f"{offset:020d}.snapshot").write_bytes(b"")
        (tmp_path / "other.snapshot").write_bytes(b"")
        producers = manager(tmp_path)
        producers.remove_stray_snapshots([5, 15])
        assert producers.snapshots == [5, 15, 30]
        producers.remove_stray_snapshots([5, 15, 40])
        assert producers.snapshots == [5, 15]
        producers.remove_snapshot(5)
        assert producers.latest_snapshot_offset == 15
        producers.remove_snapshot(15)
        assert producers.latest_snapshot_offset is None

    def test_log_start_moves_past_everything(self, producers: ProducerStateManager) -> None:
        append(producers, header(0, 0))
        producers.on_log_start_incremented(8)
        assert producers.map_end_offset == 8
        assert set(producers.producers) == {1}  # until it expires
        assert producers.take_snapshot() is None


def replay(producers: ProducerStateManager, data: bytes) -> list[CompletedTransaction]:
    done = []
    for position, batch in iter_batches(data):
        if batch.has_producer_id:
            completed = producers.update(batch, data, position)
            if completed is not None:
                producers.complete_transaction(completed)
                done.append(completed)
        producers.map_end_offset = batch.next_offset
    return done


def test_replaying_kafkas_log_gives_kafkas_snapshots(tmp_path: Path) -> None:
    producers = manager(tmp_path)
    assert replay(producers, (LOGS / "ftxn-0.log").read_bytes()) == []
    assert producers.snapshot_content() == (KAFKA / "ftxn-10.snapshot").read_bytes()
    assert producers.first_unstable_offset == 5
    done = replay(producers, (LOGS / "ftxn-10.log").read_bytes())
    assert producers.snapshot_content() == (KAFKA / "ftxn-33.snapshot").read_bytes()
    assert [(c.first_offset, c.last_offset, c.is_aborted) for c in done] == [
        (5, 10, False),
        (11, 16, True),
        (17, 22, False),
        (23, 28, True),
        (29, 32, False),
    ]
    producers.on_high_watermark_updated(33)
    assert producers.first_unstable_offset is None


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    start=st.integers(0, MAX),
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=12),
    retries=st.lists(st.integers(0, 11), max_size=12),
)
def test_whatever_is_retried_lands_once(
    tmp_path_factory: pytest.TempPathFactory, start: int, sizes: list[int], retries: list[int]
) -> None:
    producers = manager(tmp_path_factory.getbasetemp())
    offset, sequence, batches = 0, start, []
    for size in sizes:
        batch = header(offset, sequence, count=size)
        append(producers, batch)
        batches.append(batch)
        offset += size
        sequence = (sequence + size) & MAX
    for index in retries:
        if index < len(batches):
            known = index >= len(batches) - 5
            if known:
                found = producers.check(batches[index], offset)
                assert found is not None
                assert found.first_offset == batches[index].base_offset
            else:
                refused(producers, batches[index])
    append(producers, header(offset, sequence))
