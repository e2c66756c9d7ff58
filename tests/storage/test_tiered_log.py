"""A log with a remote part: what it still has, what it tells of the rest, beginning behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, PARTITION, append, batch, config, offsets, read_all
from support.tiered_log import ID, LOCAL, NO_COPY, PLAIN, TIERED, Broker, copied, starts
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.manager import LogManager
from tidelog_storage.producer_snapshot import format_snapshot, parse_snapshot
from tidelog_storage.producer_state import ProducerEntry
from tidelog_storage.types import (
    InRemoteTier,
    OutOfRange,
    Records,
    StorageError,
    TopicPartition,
)

if TYPE_CHECKING:
    from tidelog_storage.config import LogConfig
    from tidelog_storage.log import Log


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def log(broker):
    """24 records in epochs 0, 1 and 2, local from the segment behind offset 12 on."""
    log = broker.create(12)
    assert copied(log, 12) > 0
    return log


# -- reading


def test_what_is_local_and_what_is_not(log: Log) -> None:
    local = log.local_log_start_offset
    assert 0 == log.log_start_offset < local <= 13 < log.log_end_offset == 24
    assert local == log.segments.first.base_offset
    end = log.log_end_offset
    for offset in range(local):
        outcome = log.read(offset, 99, upper_bound=end)
        assert outcome == InRemoteTier(offset, offset // 8, local)
    assert isinstance(log.read(local, 99, upper_bound=end), Records)
    assert log.read(end, 99, upper_bound=end) == Records((), 0, end)
    assert log.read(end + 1, 99, upper_bound=end) == OutOfRange(0, end)
    assert log.read(local, 99, upper_bound=local) == Records((), 0, local)
    assert log.read(3, 99, upper_bound=3) == Records((), 0, 3), "not stable yet"


def test_below_the_log_start_is_nothing(log: Log) -> None:
    log.maybe_increment_log_start(3, "DeleteRecords")
    assert log.read(2, 99, upper_bound=24) == OutOfRange(3, 24)
    assert log.read(3, 99, upper_bound=24).leader_epoch == 0
    assert log.epochs.entries == [(0, 3), (1, 8), (2, 16)]


def test_the_log_start_may_pass_the_local_one(log: Log) -> None:
    local = log.local_log_start_offset
    log.maybe_increment_log_start(local + 1, "DeleteRecords")
    assert starts(log) == (local + 1, local + 1)
    assert log.read(local, 99, upper_bound=24) == OutOfRange(local + 1, 24)


def test_the_epoch_cache_begins_at_the_log_start(log: Log) -> None:
    assert log.epochs.entries == [(0, 0), (1, 8), (2, 16)]
    assert log.end_offset_for_epoch(0) == (8, 0)


def test_only_local_records_are_found_by_time(log: Log) -> None:
    local = log.local_log_start_offset
    assert log.offset_for_timestamp(0).offset == local
    assert log.max_timestamp_offset().offset >= local


def test_committed_is_what_is_not_local_any_more(log: Log) -> None:
    local = log.local_log_start_offset
    assert log.set_high_watermark(3) == local
    assert log.set_high_watermark(99) == 24


@pytest.mark.parametrize(
    ("topic", "settings", "enable", "is_tiered"),
    [
        ("t", TIERED, True, True),
        ("t", TIERED, False, False),
        ("t", PLAIN, True, False),
        ("t", config(remote_storage_enable=True, cleanup_policy=["compact"]), True, False),
        ("t", config(remote_storage_enable=True, cleanup_policy=[]), True, True),
        ("__consumer_offsets", TIERED, True, False),
        ("__remote_log_metadata", TIERED, True, False),
    ],
)
def test_which_logs_are_tiered(
    topic: str, settings: LogConfig, enable: bool, is_tiered: bool
) -> None:
    broker = Broker(enable=enable)
    log = broker.logs.create(TopicPartition(topic, 0), ID, settings)
    assert log.is_tiered is is_tiered
    log.set_highest_remote_offset(5)
    assert log.highest_remote_offset == (5 if is_tiered else -1)


def test_a_log_becomes_tiered_and_is_no_more(broker: Broker) -> None:
    log = broker.create(12, PLAIN)
    assert not log.is_tiered
    assert log.delete_old_segments(NOW) == 0
    log.config = TIERED
    assert copied(log, 12) > 0
    local = log.local_log_start_offset
    log.config = PLAIN
    assert starts(log) == (local, local)
    assert log.highest_remote_offset == -1
    assert log.epochs.earliest_entry.start_offset == local
    assert log.read(local - 1, 99, upper_bound=24) == OutOfRange(local, 24)
    log.config = TIERED
    assert log.delete_old_segments(NOW) == 0, "what was copied before is not there any more"


# -- deleting


def test_highest_remote_offset_only_grows_until_the_log_is_cut(log: Log) -> None:
    log.set_highest_remote_offset(3)
    assert log.highest_remote_offset == 12
    log.truncate_to(20, NOW)
    assert log.highest_remote_offset == 12
    log.set_highest_remote_offset(17)
    log.truncate_to(16, NOW)
    assert log.highest_remote_offset == 15
    append(log, 2, leader_epoch=9)
    log.roll(NOW)
    log.delete_old_segments(NOW)
    assert log.local_log_start_offset <= 16, "what took the place of copied records is not copied"
    log.truncate_fully_and_start_at(2)
    assert log.highest_remote_offset == 1


def test_a_cut_below_the_local_start_keeps_the_remote_part(broker: Broker, log: Log) -> None:
    log.maybe_increment_log_start(3, "DeleteRecords")
    log.truncate_to(10, NOW)
    for _ in range(2):
        assert (*starts(log), log.high_watermark, log.log_end_offset) == (3, 10, 10, 10)
        assert log.epochs.entries == [(0, 3), (1, 8)]
        assert log.read(9, 99, upper_bound=10) == InRemoteTier(9, 1, 10)
        log = broker.crash()
    log.truncate_to(2, NOW)
    assert (*starts(log), log.log_end_offset) == (2, 2, 2)
    assert log.epochs.entries == []


def test_without_copies_the_log_start_follows(log: Log) -> None:
    local = log.local_log_start_offset
    log.config = config(
        remote_storage_enable=True,
        remote_log_copy_disable=True,
        retention_bytes=1,
        **LOCAL,
    )
    assert log.delete_old_segments(NOW) > 0
    assert local < log.log_start_offset == log.local_log_start_offset
    log.config = NO_COPY
    assert log.is_tiered


def test_a_crash_restores_no_log_start_of_what_was_never_copied(broker: Broker, log: Log) -> None:
    """It would send readers to the remote tier (seed 140 of three brokers)."""
    broker.logs.upkeep.prepare_checkpoints()()  # of the log start as it is before
    log.config = config(
        remote_storage_enable=True, remote_log_copy_disable=True, retention_bytes=1, **LOCAL
    )
    assert log.delete_old_segments(NOW) > 0
    start = log.local_log_start_offset
    assert starts(broker.crash()) == (start, start)


def test_every_roll_is_reported(broker: Broker) -> None:
    told = []
    broker.logs.on_roll = lambda log: told.append(log.segments.active.base_offset)
    log = broker.create(12)
    assert told == log.segments.base_offsets[1:]


# -- sealed segments


def sealed(log):
    return [log.sealed_files(segment) for segment in list(log.segments)[:-1]]


def check_sealed(broker, log):
    for files, following in zip(sealed(log), log.segments.base_offsets[1:], strict=True):
        assert files.next_base_offset == following
        data = {
            path: broker.files.read_bytes(path)
            for path in (files.log, files.offset_index, files.time_index, files.producer_snapshot)
        }
        assert len(data[files.log]) == files.size
        assert len(data[files.time_index]) % 12 == len(data[files.offset_index]) % 8 == 0
        assert data[files.time_index]
        entries = {
            entry.producer_id: entry for entry in parse_snapshot(data[files.producer_snapshot])
        }
        assert sorted(entries) == [7 + epoch for epoch in range((following - 1) // 8 + 1)]
        assert max(one.batches[-1].last_offset for one in entries.values()) == following - 1
        assert files.producer_snapshot.endswith(f"/{following:020d}.snapshot")
        assert files.max_timestamp == NOW + 1
        assert files.transaction_index is None


def test_files_of_sealed_segments(broker: Broker) -> None:
    log = broker.create(12)
    assert len(sealed(log)) >= 3
    check_sealed(broker, log)


@pytest.mark.parametrize("power", [False, True])
def test_they_are_whole_after_a_crash(power: bool) -> None:
    for seed in range(10):
        broker = Broker(SimDisk(seed))
        log = broker.create(12)
        broker.logs.upkeep.prepare_checkpoints()()
        if seed % 2:
            log.flush()
        check_sealed(broker, broker.crash(power=power))


def test_what_is_missing_is_built(broker: Broker) -> None:
    log = broker.create(12)
    log = broker.restart()
    first, second, *_ = sealed(log)
    for path in (first.offset_index, first.time_index, first.producer_snapshot):
        broker.files.remove(path)
    broker.files.open(second.producer_snapshot).truncate(9)
    check_sealed(broker, log)


def test_the_transaction_index_is_named_if_there_is_one(broker: Broker) -> None:
    log = broker.create(1)
    append(log, 1, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_end_transaction_marker(
        ControlType.ABORT, producer_id=3, producer_epoch=0, timestamp=NOW, coordinator_epoch=0
    )
    log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW, from_client=False
    )
    log.roll(NOW)
    (files,) = sealed(log)
    assert len(broker.files.read_bytes(files.transaction_index)) == 34


def test_a_snapshot_stays_until_the_segment_before_it_is_gone(broker: Broker) -> None:
    log = broker.create(12)
    bases = log.segments.base_offsets
    copied(log, bases[2] - 1)
    assert log.segments.base_offsets == bases[2:]
    assert [base for base in bases[1:] if base in log.producers.snapshots] == bases[2:]


# -- starts


@pytest.mark.parametrize("power", [None, False, True])
def test_the_remote_part_outlives_every_stop(power: bool | None) -> None:
    broker = Broker()
    log = broker.create(12)
    log.maybe_increment_log_start(3, "DeleteRecords")
    copied(log, 12)
    log.flush()
    before = (*starts(log), log.log_end_offset, log.epochs.entries, offsets(log, start=14))
    broker.logs.upkeep.prepare_checkpoints()()
    log = broker.restart() if power is None else broker.crash(power=power)
    assert before == (*starts(log), log.log_end_offset, log.epochs.entries, offsets(log, start=14))
    assert log.highest_remote_offset == -1, "the tier tells it anew"
    assert log.delete_old_segments(NOW) == 0


def test_only_the_log_start_checkpoint_is_needed(broker: Broker) -> None:
    """Kafka's FetchFromLeaderWithCorruptedCheckpoint."""
    log = broker.create(12)
    copied(log, 12)
    local = log.local_log_start_offset
    broker.logs.shutdown(NOW)
    for name in (
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        ".kafka_cleanshutdown",
    ):
        broker.files.remove(f"data/{name}")
    log = broker.reopen()
    assert (*starts(log), log.high_watermark, log.log_end_offset) == (0, local, local, 24)
    assert broker.files.read_bytes("data/log-start-offset-checkpoint") == b"0\n1\nt 0 0\n"


def test_a_crash_before_any_checkpoint(broker: Broker) -> None:
    """Nothing is on disk about the log start: that of the epochs is not above it."""
    log = broker.create(12)
    log.maybe_increment_log_start(3, "DeleteRecords")
    copied(log, 12)
    local = log.local_log_start_offset
    log.flush()
    log = broker.crash()
    assert starts(log) == (3, local)


def test_a_plain_log_begins_with_its_first_segment(broker: Broker) -> None:
    settings = config(internal_segment_bytes=500, retention_bytes=700)
    log = broker.create(12, settings)
    log.delete_old_segments(NOW)
    first = log.log_start_offset
    assert first == log.segments.first.base_offset > 0
    for stop in (broker.crash, broker.restart):
        log = stop(settings)
        assert starts(log) == (first, first)
        assert log.epochs.earliest_entry.start_offset == first


def test_nothing_is_deleted_before_the_topics_configuration_is_known(broker: Broker) -> None:
    broker.create(12, PLAIN)
    broker.disk.kill()
    broker.files = broker.disk.files()
    broker.logs = LogManager(broker.files, ["data"], config(retention_ms=1, retention_bytes=1))
    broker.logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)
    log = broker.logs.get(PARTITION)
    log.set_high_watermark(log.log_end_offset)
    assert sum(broker.logs.upkeep.retention(NOW + 10**12)) == 0
    log.config = config(retention_ms=1)
    assert sum(broker.logs.upkeep.retention(NOW + 10**12)) > 0


def test_the_switch_alone_makes_nothing_forgotten(broker: Broker) -> None:
    """A broker that is started without its remote tier, which it then refuses."""
    log = broker.create(12)
    copied(log, 12)
    before = starts(log)
    broker.enable = False
    log = broker.restart()
    assert not log.is_tiered
    assert isinstance(log.read(0, 99, upper_bound=24), OutOfRange)
    broker.enable = True
    log = broker.restart()
    assert starts(log) == before
    broker.enable = False
    broker.crash()
    broker.enable = True
    assert starts(broker.crash()) == before


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n0", b"0\n0\n"])
def test_a_remote_part_without_its_epochs_is_refused(broker: Broker, content: bytes | None) -> None:
    log = broker.create(12)
    copied(log, 12)
    broker.logs.shutdown(NOW)
    path = f"data/{PARTITION}/leader-epoch-checkpoint"
    broker.files.remove(path)
    if content is not None:
        broker.files.write_atomic(path, content)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="leader-epoch-checkpoint"):
            broker.reopen()
        broker.logs.shutdown(NOW)
    log = broker.reopen(PLAIN)
    assert log.log_start_offset == log.epochs.earliest_entry.start_offset > 0


# -- beginning behind the remote part

EPOCHS = [(0, 0), (3, 30), (4, 45), (6, 50)]
SNAPSHOT = format_snapshot([ProducerEntry(5, producer_epoch=2, last_timestamp=NOW)])


def restart_from_remote(log, offset=50, log_start=20, snapshot=SNAPSHOT):
    log.restart_from_remote(
        offset, log_start=log_start, epochs=EPOCHS, snapshot=snapshot, now_ms=NOW
    )


def check_restarted(log):
    assert (*starts(log), log.high_watermark, log.log_end_offset) == (20, 50, 50, 50)
    assert log.epochs.entries == [(0, 20), (3, 30), (4, 45)]
    assert list(log.producers.producers) == [5]
    assert log.producers.producers[5].producer_epoch == 2
    assert log.producers.snapshots == [50]
    assert log.segments.base_offsets == [50]
    assert log.read(49, 99, upper_bound=50) == InRemoteTier(49, 4, 50)


def test_restart_from_remote(broker: Broker) -> None:
    log = broker.create(8)
    restart_from_remote(log)
    check_restarted(log)
    assert log.highest_remote_offset == 49
    names = broker.files.list(f"data/{PARTITION}")
    assert [name for name in names if name.endswith((".log", ".snapshot"))] == [
        f"{50:020d}.log",
        f"{50:020d}.snapshot",
    ]
    fetched = batch(3, base_offset=50, leader_epoch=7)
    log.append_as_follower(fetched, leader_epoch=7, now_ms=NOW)
    log = broker.restart()
    assert offsets(log, start=50) == [(50, 52)]
    assert (starts(log), log.epochs.latest_epoch) == ((20, 50), 7)


def test_an_empty_log_restarts_as_well(broker: Broker) -> None:
    log = broker.create()
    restart_from_remote(log)
    check_restarted(log)
    check_restarted(broker.crash())


def test_a_snapshot_that_is_none_changes_nothing(broker: Broker) -> None:
    log = broker.create(8)
    before = (starts(log), log.log_end_offset, offsets(log))
    with pytest.raises(StorageError, match="wrong checksum") as refusal:
        restart_from_remote(log, snapshot=SNAPSHOT[:-1] + b"\0")
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert before == (starts(log), log.log_end_offset, offsets(log))


@pytest.mark.parametrize("batches", [0, 8])
@pytest.mark.parametrize("power", [False, True])
def test_death_in_any_operation_of_a_restart(batches: int, power: bool) -> None:
    """Afterwards the log is a beginning of what it was, or what it was to become."""
    outcomes = set()
    for number in range(1, 60):
        broker = Broker(SimDisk(number))
        log = broker.create(batches)
        log.id_file.sync()  # as before its first batch
        log.flush()
        broker.logs.upkeep.prepare_checkpoints()()
        before = [header for header, _ in read_all(log)]
        broker.disk.die_at = broker.disk.operations + number
        try:
            restart_from_remote(log)
        except MachineDiedError:
            pass
        else:
            outcomes.add("done")
        broker.disk.die_at = None
        log = broker.crash(power=power)
        if log.log_end_offset == 50:
            check_restarted(log)
            outcomes.add("new")
        else:
            headers = [header for header, _ in read_all(log, start=log.local_log_start_offset)]
            end = log.log_end_offset
            kept = [h for h in before if log.local_log_start_offset <= h.base_offset < end]
            assert headers == kept
            assert all(start < max(end, 1) for _, start in log.epochs.entries)
            assert [e for e, _ in log.epochs.entries] == list(range(len(log.epochs)))
            outcomes.add("old" if end else "empty")
        restart_from_remote(log)
        check_restarted(log)
    assert outcomes >= {"done", "new", "empty"}
