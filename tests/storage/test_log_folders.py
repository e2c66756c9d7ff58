"""Moves between log directories: the future log, and how it takes the current one's place."""

from __future__ import annotations

import errno

import pytest

from support.logs import NOW, append, batch, check_indexes, config, offsets, read_all
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.compaction.cleaner import CleanerLimits, LogCleaner
from tidelog_storage.manager import LogManager
from tidelog_storage.types import Records, TopicPartition

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
ID = bytes(range(16))
SMALL = config(internal_segment_bytes=500, file_delete_delay_ms=100, index_interval_bytes=100)
COMPACTED = config(
    internal_segment_bytes=500,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.0,
    index_interval_bytes=100,
)
UNIQUE = "0123456789abcdef0123456789abcdef"


class Broker:
    """Two directories, and what a broker does with what is in them."""

    def __init__(self, disk, settings=SMALL):
        self.disk, self.settings = disk, settings
        self.heard: list[str] = []
        self.start()

    def start(self):
        self.files = self.disk.files()
        self.logs = LogManager(self.files, ("one", "two"), self.settings, report=self.heard.append)
        ids = iter((b"1" * 16, b"2" * 16))
        self.logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: next(ids))

    def restart(self):
        self.logs.shutdown(NOW)
        self.start()

    def crash(self):
        self.disk.kill()
        self.start()

    def create(self, batches=9):
        """A partition in the first directory."""
        log = self.logs.create(A0, ID, self.settings)
        log.assign_epoch(0)
        for _ in range(batches):
            append(log, 2)
        return log

    def move(self):
        """Begin to move it to the second."""
        log = self.logs.create_future(A0, "two", UNIQUE, self.settings)
        assert self.logs.future(A0) is log
        return log

    def names(self):
        """The folders of the partition."""
        return [
            f"{directory}/{name}"
            for directory in ("one", "two")
            for name in self.files.list(directory)
            if name.startswith("a-0")
        ]

    def dirs(self):
        """Where its logs lie."""
        return self.logs.log_dir(A0), self.logs.future_log_dir(A0)


def copy(source, target, upto=None):
    """Replicate what the future log lacks."""
    upto = source.log_end_offset if upto is None else upto
    while target.log_end_offset < upto:
        outcome = source.read(target.log_end_offset, 400, upper_bound=upto)
        assert isinstance(outcome, Records)
        target.append_as_follower(memoryview(b"".join(outcome.parts)), leader_epoch=99, now_ms=NOW)
        target.set_high_watermark(min(source.high_watermark, target.log_end_offset))


def everything(log):
    return [(header, records) for header, records in read_all(log)]


@pytest.fixture
def broker():
    return Broker(SimDisk(0))


def test_a_future_log_has_kafkas_folder_and_is_not_the_current_one(broker: Broker) -> None:
    current = broker.create()
    future = broker.move()
    assert broker.names() == ["one/a-0", f"two/a-0.{UNIQUE}-future"]
    assert broker.dirs() == ("one", "two")
    assert broker.logs.is_moving(A0)
    assert broker.logs.future_partitions() == [A0]
    assert broker.logs.get(A0) is current
    assert dict(broker.logs.items()) == {A0: current}
    assert future.topic_id == ID
    assert (future.log_start_offset, future.log_end_offset) == (0, 0)
    assert not broker.logs.is_moving(B0)
    assert broker.logs.future(B0) is None
    assert broker.logs.future_log_dir(B0) is None


def test_it_takes_the_others_place(broker: Broker) -> None:
    current = broker.create()
    before = everything(current)
    future = broker.move()
    copy(current, future)
    assert broker.logs.replace_current(A0, NOW) is future
    assert broker.logs.get(A0) is future
    assert broker.dirs() == ("two", None)
    deleted, moved = broker.names()
    assert (deleted, moved) == (f"one/a-0.{ID.hex()}-delete", "two/a-0")
    assert everything(future) == before
    check_indexes(future)
    for remove in filter(None, broker.logs.upkeep.prepare_removals(NOW + 100)):
        remove()
    assert broker.names() == ["two/a-0"]


def test_a_moved_log_works_like_any_other(broker: Broker) -> None:
    current = broker.create()
    copy(current, future := broker.move())
    assert future.log_end_offset == 18
    future.read(0, 1, upper_bound=18)  # a handle of the old name
    broker.logs.replace_current(A0, NOW)
    for _ in range(9):
        append(future, 2)
    assert offsets(future) == [(base, base + 1) for base in range(0, 36, 2)]
    future.truncate_to(30)
    append(future, 3, leader_epoch=1)
    check_indexes(future)
    assert [entry.start_offset for entry in future.epochs.entries] == [0, 30]
    expected = everything(future)
    broker.restart()
    log = broker.logs.get(A0)
    assert everything(log) == expected
    assert broker.heard == []  # nothing had to be repaired
    check_indexes(log)


def test_aborted_transactions_are_found_after_a_move(broker: Broker) -> None:
    current = broker.create(1)
    records = batch(2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    current.append_as_leader(records, leader_epoch=0, now_ms=NOW)
    copy(current, future := broker.move())
    broker.logs.replace_current(A0, NOW)
    marker = build_end_transaction_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    copied = memoryview(bytearray(marker))
    future.append_as_leader(copied, leader_epoch=0, now_ms=NOW, from_client=False)
    future.set_high_watermark(future.log_end_offset)
    assert future.last_stable_offset == 5
    assert [(e.producer_id, e.first_offset) for e in future.aborted_transactions(0, 5)] == [(7, 2)]
    broker.restart()
    log = broker.logs.get(A0)
    assert [(e.producer_id, e.first_offset) for e in log.aborted_transactions(0, 5)] == [(7, 2)]


def test_there_and_back(broker: Broker) -> None:
    current = broker.create()
    copy(current, broker.move())
    log = broker.logs.replace_current(A0, NOW)
    append(log, 2)
    back = broker.logs.create_future(A0, "one", "f" * 32, SMALL)
    assert back.log_end_offset == 0
    copy(log, back)
    assert broker.logs.replace_current(A0, NOW) is back
    assert broker.dirs() == ("one", None)
    expected = everything(back)
    broker.restart()
    assert everything(broker.logs.get(A0)) == expected
    assert broker.dirs() == ("one", None)


def test_a_flush_under_way_counts_for_nothing(broker: Broker) -> None:
    current = broker.create()
    copy(current, future := broker.move())
    point = future.recovery_point
    task = future.prepare_flush()
    broker.logs.replace_current(A0, NOW)
    task()
    future.flushed(task)
    assert future.recovery_point == point
    future.flush()
    assert future.recovery_point == 18


def test_rolls_of_a_future_log_are_flushed_without_a_report(broker: Broker) -> None:
    heard = []
    broker.logs.on_roll = heard.append
    current = broker.create()
    assert heard
    assert all(log is current for log in heard)
    heard.clear()
    copy(current, future := broker.move())
    assert len(future.segments) > 2
    assert not heard
    for log, task in filter(None, broker.logs.upkeep.flush_dirty(NOW)):
        task()
        log.flushed(task)
    assert future.recovery_point == future.segments.active.base_offset
    broker.logs.replace_current(A0, NOW)
    while not heard:
        append(future, 2)
    assert heard == [future]


def test_a_stop_in_the_middle_of_a_move(broker: Broker) -> None:
    current = broker.create()
    copy(current, broker.move(), upto=8)
    broker.restart()
    assert broker.dirs() == ("one", "two")
    current, future = broker.logs.get(A0), broker.logs.future(A0)
    assert (future.log_end_offset, future.high_watermark) == (8, 8)
    assert broker.logs.future(A0) is future
    copy(current, future)
    broker.logs.replace_current(A0, NOW)
    assert broker.dirs() == ("two", None)


def test_a_log_start_moves_along(broker: Broker) -> None:
    current = broker.create()
    copy(current, future := broker.move())
    current.maybe_increment_log_start(5, "asked")
    future.maybe_increment_log_start(5, "asked")
    broker.logs.replace_current(A0, NOW)
    broker.disk.kill()
    broker.start()
    log = broker.logs.get(A0)
    assert (log.log_start_offset, log.log_end_offset) == (5, 18)


@pytest.mark.parametrize("loaded", [True, False])
def test_giving_a_move_up(broker: Broker, loaded: bool) -> None:
    broker.create()
    copy(broker.logs.get(A0), broker.move(), upto=8)
    if not loaded:
        broker.restart()
    broker.logs.delete_future(A0, NOW)
    assert broker.dirs() == ("one", None)
    assert broker.logs.future(A0) is None
    assert [name.rpartition("-")[2] for name in broker.names()] == ["0", "delete"]
    broker.logs.delete_future(A0, NOW)  # there is none
    assert broker.move().log_end_offset == 0
    broker.restart()
    assert broker.logs.future(A0).log_end_offset == 0


def test_deleting_a_partition_deletes_both(broker: Broker) -> None:
    broker.create()
    broker.move()
    broker.logs.delete(A0, NOW)
    assert broker.logs.get(A0) is None
    assert broker.logs.future(A0) is None
    assert all(name.endswith("-delete") for name in broker.names())
    broker.restart()
    assert broker.logs.get(A0) is None
    for remove in filter(None, broker.logs.upkeep.prepare_removals(NOW)):
        remove()
    assert broker.names() == []


def test_retention_leaves_alone_what_is_moving(broker: Broker) -> None:
    broker.settings = config(internal_segment_bytes=500, retention_bytes=0)
    current = broker.create()
    copy(current, future := broker.move())
    assert sum(broker.logs.upkeep.retention(NOW)) == 0
    broker.logs.replace_current(A0, NOW)
    assert sum(broker.logs.upkeep.retention(NOW)) > 0
    assert future.log_start_offset > 0


def test_compaction_waits_for_the_move_and_continues_where_it_was() -> None:
    broker = Broker(SimDisk(0), COMPACTED)
    current = broker.create(12)
    cleaner = LogCleaner(broker.logs, CleanerLimits(1 << 16, 0.9))

    def clean(*, is_disturbed=lambda: None):
        cleaning = cleaner.begin(NOW)
        if cleaning is None:
            return None
        try:
            flush = cleaning.prepare_flush()
            if flush is not None:
                flush()
                cleaning.log.flushed(flush)
            cleaner.prepare_checkpoint(cleaning)()
            is_disturbed()
            while True:
                progress = cleaning.rewriting.step()
                if not cleaner.advance(cleaning, progress, NOW):
                    break
            checkpoint = cleaner.finish(cleaning)
            if checkpoint is not None:
                checkpoint()
            return checkpoint is not None
        finally:
            cleaner.end(cleaning)

    assert clean()
    compacted = broker.logs.compacted_to(A0)
    for _ in range(9):
        append(current, 2)
    assert clean(is_disturbed=broker.move) is False  # it was under way when the move began
    assert clean() is None
    future = broker.logs.future(A0)
    copy(current, future)
    broker.logs.replace_current(A0, NOW)
    assert broker.logs.compacted_to(A0) == compacted
    assert clean()
    assert broker.logs.compacted_to(A0) == future.segments.active.base_offset > compacted
    broker.restart()
    assert broker.logs.compacted_to(A0) > compacted


def test_a_preferred_directory(broker: Broker) -> None:
    broker.logs.prefer(B0, "two")
    assert broker.logs.log_dir_wanted(B0) == "two"
    broker.logs.create(A0, ID, SMALL)
    broker.logs.create(B0, ID, SMALL)
    assert (broker.logs.log_dir(A0), broker.logs.log_dir(B0)) == ("one", "two")
    broker.logs.delete(B0)
    broker.logs.create_future(A0, "two", UNIQUE, SMALL)
    broker.logs.create(TopicPartition("c", 0), ID, SMALL)  # both hold one
    assert broker.logs.log_dir_wanted(B0) == "two"  # the first holds more by now
    assert broker.logs.log_dir(TopicPartition("c", 0)) == "one"


# -- crashes -----------------------------------------------------------------------------------


def moved_to_the_end(seed):
    """A machine whose move is copied, flushed, and about to take its last steps."""
    broker = Broker(SimDisk(seed))
    current = broker.create()
    current.flush()
    copy(current, future := broker.move())
    future.flush()
    return broker, everything(current)


def operations_of_the_last_steps():
    broker, _ = moved_to_the_end(0)
    before = broker.disk.operations
    broker.logs.replace_current(A0, NOW)
    return broker.disk.operations - before


LAST_STEPS = operations_of_the_last_steps()


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("step", range(1, LAST_STEPS + 1))
def test_a_crash_in_any_step_leaves_one_whole_log(step: int, power: bool) -> None:
    assert LAST_STEPS >= 7  # three checkpoints at least, two renames, each made durable
    for seed in range(8):
        broker, before = moved_to_the_end(seed)
        disk = broker.disk
        disk.on_death = disk.kill
        disk.die_at = disk.operations + step
        with pytest.raises(MachineDiedError):
            broker.logs.replace_current(A0, NOW)
        disk.unwinding = False
        if power:
            disk.power_failure()
        broker.start()
        log = broker.logs.get(A0)
        assert everything(log) == before
        assert log.topic_id == ID
        currents = [name for name in broker.names() if name.endswith("/a-0")]
        assert len(currents) == 1
        where, goes_to = broker.dirs()
        assert (where, goes_to) in (("one", "two"), ("two", None))
        if goes_to is not None:  # it is taken up again
            copy(log, broker.logs.future(A0))
            broker.logs.replace_current(A0, NOW)
        assert everything(broker.logs.get(A0)) == before
        assert broker.dirs() == ("two", None)
        broker.restart()
        for remove in filter(None, broker.logs.upkeep.prepare_removals(NOW)):
            remove()
        assert broker.names() == ["two/a-0"]
        assert everything(broker.logs.get(A0)) == before


@pytest.mark.parametrize("seed", range(20))
def test_a_power_failure_after_the_move_takes_nothing_back(seed: int) -> None:
    broker, before = moved_to_the_end(seed)
    log = broker.logs.replace_current(A0, NOW)
    append(log, 2)
    log.flush()
    broker.disk.power_failure()
    broker.start()
    assert broker.dirs() == ("two", None)
    assert everything(broker.logs.get(A0))[: len(before)] == before
    assert broker.logs.get(A0).log_end_offset == 20


@pytest.mark.parametrize("seed", range(10))
def test_a_move_that_was_given_up_does_not_come_back(seed: int) -> None:
    broker, before = moved_to_the_end(seed)
    broker.logs.delete_future(A0, NOW)
    broker.disk.power_failure()
    broker.start()
    assert broker.dirs() == ("one", None)
    assert everything(broker.logs.get(A0)) == before


def test_folders_that_are_no_move_go_at_the_start(broker: Broker) -> None:
    broker.create()
    copy(broker.logs.get(A0), broker.move(), upto=8)
    broker.logs.shutdown(NOW)
    for folder in ("one/a-0.x-future", f"two/a-0.{UNIQUE}x-future", "two/nonsense-future"):
        broker.files.make_dirs(folder)
    broker.start()
    assert broker.dirs() == ("one", "two")
    assert broker.logs.future(A0).log_end_offset == 8
    for remove in filter(None, broker.logs.upkeep.prepare_removals(NOW)):
        remove()
    assert broker.names() == ["one/a-0", f"two/a-0.{UNIQUE}-future"]


class FailingDisk(SimDisk):
    """Fails one operation on names, as a directory does that goes bad."""

    def __init__(self, seed):
        super().__init__(seed)
        self.fail_in = None

    def operate(self):
        if self.fail_in is not None:
            self.fail_in -= 1
            if self.fail_in == 0:
                self.fail_in = None
                raise OSError(errno.EIO, "disk")
        return super().operate()


@pytest.mark.parametrize("step", range(1, LAST_STEPS + 1))
def test_a_step_that_fails_is_undone(step: int) -> None:
    broker = Broker(FailingDisk(0))
    before = everything(broker.create())
    copy(broker.logs.get(A0), broker.move())
    broker.disk.fail_in = step
    with pytest.raises(OSError, match="disk"):
        broker.logs.replace_current(A0, NOW)
    assert broker.names() == ["one/a-0", f"two/a-0.{UNIQUE}-future"]
    log = broker.logs.get(A0)
    append(log, 2)
    assert everything(log)[: len(before)] == before
    broker.crash()  # nothing is made durable in a failed directory before the next start
    log = broker.logs.get(A0)
    copy(log, broker.logs.future(A0))
    broker.logs.replace_current(A0, NOW)  # the disk is well again
    assert broker.dirs() == ("two", None)
    assert broker.logs.get(A0).log_end_offset == 20


@pytest.mark.parametrize("step", range(1, 5))
def test_a_future_log_that_cannot_be_made(step: int) -> None:
    broker = Broker(FailingDisk(0))
    broker.create()
    broker.disk.fail_in = step
    try:
        broker.move()
    except OSError:
        assert broker.dirs() == ("one", None)
        assert broker.names() == ["one/a-0"]
    assert broker.disk.fail_in is None
    broker.crash()
    broker.logs.delete_future(A0, NOW)
    broker.move()
    assert broker.dirs() == ("one", "two")
