"""Checkpoint files that are lost, emptied or damaged while the broker is down, after a clean stop.

A log with a remote part must not begin later than it did: what is below its start is deleted from
the remote tier.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, PARTITION, append, batch, config, offsets
from support.tiered_log import PLAIN, TIERED, Broker, copied, starts
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_storage.checkpoints import CheckpointError

if TYPE_CHECKING:
    from tidelog_storage.config import LogConfig

LOG_STARTS = "data/log-start-offset-checkpoint"
EPOCHS = f"data/{PARTITION}/leader-epoch-checkpoint"
NO_ENTRY = b"0\n0\n"
DAMAGES = [None, b"", b"0", b"\xff\xfe", b"0\n2\nt 0 3\n", b"0\n1\nt 0 x\n", b"7\n0\n"]


@pytest.fixture
def broker():
    return Broker()


def damage(broker, path, content):
    """Stop in order, and leave this in the file's place; None: nothing."""
    broker.logs.shutdown(NOW)
    broker.files.remove(path)
    if content is not None:
        broker.files.write_atomic(path, content)


def has_been_emptied(log):
    """All records are copied, and gone locally."""
    log.roll(NOW)
    log.config = config(remote_storage_enable=True, local_retention_ms=1)
    log.set_highest_remote_offset(log.log_end_offset - 1)
    log.delete_old_segments(NOW + 60_000)
    assert log.segments.first is log.segments.active
    assert not log.segments.active.size


@pytest.mark.parametrize(
    ("content", "moved_to"),
    [*itertools.product(DAMAGES, (0, 3, 8, 15)), (NO_ENTRY, 0), (NO_ENTRY, 3), (NO_ENTRY, 8)],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_the_log_start_of_a_tiered_log_survives(
    broker: Broker, content: bytes | None, moved_to: int, is_empty: bool
) -> None:
    log = broker.create(12)
    copied(log, 12)
    if is_empty:
        has_been_emptied(log)
    log.maybe_increment_log_start(moved_to, "DeleteRecords")
    before = starts(log)
    assert before[0] == moved_to
    for _ in range(2):
        damage(broker, LOG_STARTS, content)
        log = broker.reopen()
        assert starts(log) == before
        assert log.epochs.earliest_entry.start_offset == moved_to


@pytest.mark.parametrize("written", [7, 13, 19, 400])
def test_a_log_start_with_a_wrong_digit_hides_and_deletes_nothing(
    broker: Broker, written: int
) -> None:
    log = broker.create(12)
    copied(log, 12)
    log.maybe_increment_log_start(3, "DeleteRecords")
    before = (*starts(log), log.log_end_offset, offsets(log, start=14))
    damage(broker, LOG_STARTS, b"0\n1\nt 0 %d\n" % written)
    log = broker.reopen()
    assert before == (*starts(log), log.log_end_offset, offsets(log, start=14))


@pytest.mark.parametrize("content", DAMAGES)
def test_what_was_deleted_from_a_plain_log_does_not_come_back(
    broker: Broker, content: bytes | None
) -> None:
    log = broker.create(12, PLAIN)
    log.maybe_increment_log_start(3, "DeleteRecords")
    damage(broker, LOG_STARTS, content)
    assert starts(broker.reopen(PLAIN)) == (3, 3)


@pytest.mark.parametrize("settings", [PLAIN, TIERED])
def test_records_stay_deleted_if_no_other_is_left(broker: Broker, settings: LogConfig) -> None:
    broker.create(12, settings)
    log = broker.restart(settings)  # its epochs are on disk
    end = log.log_end_offset
    log.maybe_increment_log_start(end, "DeleteRecords")
    for _ in range(2):
        log = broker.restart(settings)
        assert (*starts(log), log.log_end_offset) == (end, end, end)


@pytest.mark.parametrize("content", DAMAGES)
def test_a_plain_log_whose_segments_were_deleted_begins_with_its_first(
    broker: Broker, content: bytes | None
) -> None:
    settings = config(internal_segment_bytes=500, retention_bytes=700)
    log = broker.create(12, settings)
    log.delete_old_segments(NOW)
    first = log.log_start_offset
    assert first > 0
    damage(broker, LOG_STARTS, content)
    assert starts(broker.reopen(settings)) == (first, first)


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n0"])
@pytest.mark.parametrize("loses_start", [False, True])
@pytest.mark.parametrize("is_empty", [False, True])
def test_without_its_epochs_a_tiered_log_is_refused(
    broker: Broker, content: bytes | None, loses_start: bool, is_empty: bool
) -> None:
    """Nothing says then which remote segments are its own."""
    log = broker.create(12)
    copied(log, 12)
    if is_empty:
        has_been_emptied(log)
    damage(broker, EPOCHS, content)
    if loses_start:
        broker.files.remove(LOG_STARTS)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="leader-epoch-checkpoint"):
            broker.reopen()
        broker.logs.shutdown(NOW)


def test_a_tiered_log_that_lost_no_part_of_itself_does_without_its_epochs(broker: Broker) -> None:
    """Its records name all epochs."""
    broker.create(12)
    damage(broker, EPOCHS, b"")
    log = broker.reopen(TIERED)
    assert starts(log) == (0, 0)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 8), (2, 16)]


@pytest.mark.parametrize("content", DAMAGES)
def test_the_high_watermark_may_be_lost(broker: Broker, content: bytes | None) -> None:
    """It begins with the local log start: a leader hears of its followers what is committed."""
    log = broker.create(12)
    copied(log, 12)
    before = (*starts(log), log.log_end_offset)
    damage(broker, "data/replication-offset-checkpoint", content)
    log = broker.reopen()
    assert before == (*starts(log), log.log_end_offset)
    assert log.high_watermark == log.local_log_start_offset
    assert log.delete_old_segments(NOW) == 0


@pytest.mark.parametrize("content", [None, b"", b"0\n0\n"])
def test_the_recovery_point_is_not_needed_after_an_orderly_stop(
    broker: Broker, content: bytes | None
) -> None:
    log = broker.create(12)
    copied(log, 12)
    before = (*starts(log), log.log_end_offset, offsets(log, start=14))
    damage(broker, "data/recovery-point-offset-checkpoint", content)
    log = broker.reopen()
    assert before == (*starts(log), log.log_end_offset, offsets(log, start=14))
    assert log.recovery_point == log.log_end_offset


def test_a_new_directory_has_lost_nothing(broker: Broker) -> None:
    append(broker.create(1, PLAIN))
    assert not broker.logs.directories[0].checkpointed(PARTITION).log_starts_are_lost


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_directory_without_its_recovery_points_is_not_taken_for_a_new_one(
    broker: Broker, is_orderly: bool
) -> None:
    """Else topics that were created while the broker was away would count as lost with it."""
    assert broker.logs.has_new_directory
    append(broker.create(1, PLAIN))
    broker.logs.upkeep.prepare_checkpoints()()
    if is_orderly:
        broker.logs.shutdown(NOW)
    else:
        broker.disk.kill()
        broker.files = broker.disk.files()
    broker.files.remove("data/recovery-point-offset-checkpoint")
    broker.reopen(PLAIN)
    assert not broker.logs.has_new_directory


@pytest.mark.parametrize("content", [None, b""])
def test_without_recovery_points_gaps_of_compaction_stay(
    broker: Broker, content: bytes | None
) -> None:
    """Else all records behind the first gap go, which compaction left and no crash."""
    log = broker.create(2, PLAIN)
    log.roll(NOW, base_offset=10)
    log.append_as_follower(batch(2, base_offset=10), leader_epoch=0, now_ms=NOW)
    log.flush()
    before = offsets(log)
    assert before[-1] == (10, 11)
    broker.logs.upkeep.prepare_checkpoints()()
    broker.disk.kill()
    broker.files = broker.disk.files()
    broker.files.remove("data/recovery-point-offset-checkpoint")
    if content is not None:
        broker.files.write_atomic("data/recovery-point-offset-checkpoint", content)
    assert offsets(broker.reopen(PLAIN)) == before
    broker.logs.upkeep.prepare_checkpoints()()
    assert offsets(broker.crash(PLAIN)) == before


# -- after a kill: the epochs on disk are cut before a higher log start is noted


def killed(broker, settings, content=None):
    """Kill it, and leave this as the log starts; None: what is there."""
    broker.disk.kill()
    broker.files = broker.disk.files()
    if content is not None:
        broker.files.write_atomic(LOG_STARTS, content)
    return broker.reopen(settings)


@pytest.mark.parametrize("settings", [PLAIN, TIERED])
@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize(
    ("moved_to", "written"),
    [(0, 7), (0, 28), (0, 400), (3, 7), (3, 19), (8, 13), (8, 26), (24, 26), (24, 28), (24, 400)],
)
def test_a_wrong_log_start_hides_nothing_after_a_kill(
    broker: Broker, settings: LogConfig, moved_to: int, is_flushed: bool, written: int
) -> None:
    log = broker.create(12, settings)
    if is_flushed:
        log.flush()
    log.maybe_increment_log_start(moved_to, "DeleteRecords")
    broker.logs.upkeep.prepare_checkpoints()()
    append(log, 2, leader_epoch=2)
    append(log, 2, leader_epoch=3)
    before = (log.log_start_offset, log.log_end_offset, offsets(log))
    for _ in range(2):
        log = killed(broker, settings, b"0\n1\nt 0 %d\n" % written)
        assert before == (log.log_start_offset, log.log_end_offset, offsets(log))
        assert log.lost_start is None


@pytest.mark.parametrize("settings", [PLAIN, TIERED])
@pytest.mark.parametrize("moved_to", [3, 8, 15, 24])
@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("power", [False, True])
def test_a_log_start_that_was_noted_outlives_a_crash(
    broker: Broker, settings: LogConfig, moved_to: int, is_flushed: bool, power: bool
) -> None:
    log = broker.create(12, settings)
    if is_flushed:
        log.flush()
    log.maybe_increment_log_start(moved_to, "DeleteRecords")
    broker.logs.upkeep.prepare_checkpoints()()
    for _ in range(2):
        log = broker.crash(settings, power=power)
        assert log.log_start_offset == moved_to
        broker.logs.upkeep.prepare_checkpoints()()


@pytest.mark.parametrize("settings", [PLAIN, TIERED])
@pytest.mark.parametrize("moved_to", [3, 24])
def test_a_crash_while_it_is_noted_leaves_the_old_or_the_new_log_start(
    settings: LogConfig, moved_to: int
) -> None:
    found = set()
    for step in range(1, 25):
        broker = Broker(SimDisk(step))
        log = broker.create(12, settings)
        log.flush()
        broker.logs.upkeep.prepare_checkpoints()()
        log.maybe_increment_log_start(moved_to, "DeleteRecords")
        broker.disk.die_at = broker.disk.operations + step
        with contextlib.suppress(MachineDiedError):
            broker.logs.upkeep.prepare_checkpoints()()
        broker.disk.calm()
        log = broker.crash(settings, power=bool(step % 2))
        assert log.log_start_offset in {0, moved_to}
        assert log.log_end_offset == 24
        found.add(log.log_start_offset)
    assert found == {0, moved_to}


def test_only_partitions_whose_log_start_rose_cost_a_sync(broker: Broker) -> None:
    log = broker.create(12)
    log.flush()
    broker.logs.upkeep.prepare_checkpoints()()

    def syncs():
        before = broker.disk.syncs
        broker.logs.upkeep.prepare_checkpoints()()
        return broker.disk.syncs - before

    idle = syncs()
    log.maybe_increment_log_start(3, "DeleteRecords")
    assert syncs() == idle + 1
    assert syncs() == idle


def test_a_partition_that_is_deleted_meanwhile_does_not_stop_the_checkpoints(
    broker: Broker,
) -> None:
    log = broker.create(12)
    log.maybe_increment_log_start(3, "DeleteRecords")
    write = broker.logs.upkeep.prepare_checkpoints()
    broker.files.remove_tree(log.folder)
    write()
    assert broker.logs.directories[0].failure is None
