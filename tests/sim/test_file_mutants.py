"""Files that rot while a broker is down: a play for each, which finds its planted bug."""

from __future__ import annotations

import contextlib
import struct

import pytest

from sim.history import require
from sim.mutants import files as planted_bugs
from sim.mutants import planted
from support.compaction import end_transaction
from support.logs import NOW, PARTITION, append, config, offsets, open_log
from support.tiered_log import Broker, copied, starts
from tidelog.replication.purgatory import DelayedOperation, Purgatory
from tidelog.simulation.disk import SimDisk
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.types import StorageError

FOLDER = "data/t-0"
SETTINGS = config(internal_segment_bytes=3000, index_interval_bytes=200, retention_ms=1000)


def closed_log():
    """Several segments: each third batch is of a transaction that was aborted."""
    files = SimDisk(0).files()
    files.make_dirs("data")
    log = open_log(files, settings=SETTINGS)
    for number in range(40):
        append(log, timestamp=NOW)
        if number % 3 == 0:
            append(log, producer_id=1, producer_epoch=0, base_sequence=number // 3,
                   transactional=True, timestamp=NOW)  # fmt: skip
            end_transaction(log, 1, commit=False)
    log.close()
    return files, log


def first_of(files, suffix):
    return next(f"{FOLDER}/{name}" for name in files.list(FOLDER) if name.endswith(suffix))


def put(files, path, data):
    file = files.open(path, create=True)
    file.truncate(0)
    file.append((data,))


def reopened(files, log):
    return open_log(files, settings=SETTINGS, high_watermark=log.log_end_offset)


def transaction_index_is_gone():
    files, log = closed_log()
    bound = log.segments.base_offsets[1]
    before = log.aborted_transactions(0, bound)
    require(len(before) > 1, "there were aborted transactions")
    files.remove(first_of(files, ".txnindex"))
    found = reopened(files, log).aborted_transactions(0, bound)
    require(found == before, f"aborted records can be read: {found} of {before}")


def offset_index_has_a_wrong_bit():
    files, log = closed_log()
    path = first_of(files, ".index")
    data = bytearray(files.read_bytes(path))
    data[15] ^= 1  # a position
    put(files, path, bytes(data))
    again = reopened(files, log)
    try:
        for base, last in reversed(offsets(log)):
            records = again.read(last, 1, upper_bound=again.log_end_offset)
            found = int.from_bytes(bytes(records.parts[0][:8]), "big")
            require(found == base, f"{last} is searched and {found} found")
    except StorageError as error:
        require(False, f"a whole batch can't be read: {error}")


def time_index_has_a_wrong_bit():
    files, log = closed_log()
    path = first_of(files, ".timeindex")
    data = files.read_bytes(path)
    timestamp, offset = struct.unpack_from(">qi", data, len(data) - 12)
    put(files, path, data[:-12] + struct.pack(">qi", timestamp ^ 1 << 35, offset))
    deleted = reopened(files, log).delete_old_segments(NOW + 900)
    require(not deleted, f"{deleted} segments are deleted that are not old")


def log_start_is_gone():
    broker = Broker()
    log = broker.create(12)
    copied(log, 12)
    log.maybe_increment_log_start(3, "DeleteRecords")
    before = starts(log)
    broker.logs.shutdown(NOW)
    broker.files.remove("data/log-start-offset-checkpoint")
    found = starts(broker.reopen())
    require(found == before, f"the log began at {before}, and begins at {found}")


def log_start_and_epochs_are_gone():
    broker = Broker()
    copied(broker.create(12), 12)
    broker.logs.shutdown(NOW)
    broker.files.remove("data/log-start-offset-checkpoint")
    broker.files.remove(f"data/{PARTITION}/leader-epoch-checkpoint")
    for _ in range(2):
        with contextlib.suppress(CheckpointError):
            broker.reopen()
            require(False, "the remote part is not this log's any more")
        broker.logs.shutdown(NOW)


def leader_epoch_rots():
    files, _ = closed_log()
    leader, follower = open_log(files, "data/l-0"), open_log(files, "data/f-0")
    for epoch in (0, 2, 4):
        append(leader, leader_epoch=epoch)
    data = bytearray(b"".join(leader.read(0, 1 << 20, upper_bound=3).parts))
    size = len(data) // 3
    follower.append_as_follower(memoryview(bytes(data[: 2 * size])), leader_epoch=4, now_ms=NOW)
    before = follower.epochs.entries
    data[2 * size + 15] = 1
    with contextlib.suppress(StorageError):
        follower.append_as_follower(memoryview(bytes(data[2 * size :])), leader_epoch=4, now_ms=NOW)
    require(follower.epochs.entries == before, f"{before} became {follower.epochs.entries}")


class Parked(DelayedOperation):
    def __init__(self, *, fails):
        super().__init__()
        self.fails, self.completed = fails, False

    def touch(self, key):
        return True

    def complete(self, *, expired):
        if self.fails:
            raise RuntimeError("a bug")
        self.completed = True


class Timers:
    now = 0.0
    due = None

    def time(self):
        return self.now

    def call_at(self, when, callback, *args):
        self.due = callback
        return self

    def cancel(self):
        self.due = None


def parked_operation_fails(event):
    timers = Timers()
    purgatory = Purgatory(timers)
    operations = [Parked(fails=True), Parked(fails=False)]
    for operation in operations:
        purgatory.park(operation, ["a"], 100)
    try:
        if event == "append":
            purgatory.check("a")
        else:
            timers.now = 1.0
            timers.due()
    except RuntimeError:
        require(False, f"the {event} fails with what it has woken")
    require(operations[1].completed, "another one waits for ever")


PLAYS = {
    "expiry-ends-with-a-failure": lambda: parked_operation_fails("deadline"),
    "failure-reaches-the-waker": lambda: parked_operation_fails("append"),
    "log-start-of-the-lost-checkpoint": log_start_is_gone,
    "made-up-start-is-checkpointed": log_start_and_epochs_are_gone,
    "offset-index-not-checked": offset_index_has_a_wrong_bit,
    "rotten-epoch-is-taken-over": leader_epoch_rots,
    "time-index-not-checked": time_index_has_a_wrong_bit,
    "transaction-index-not-checked": transaction_index_is_gone,
}


def test_each_planted_bug_has_its_play() -> None:
    assert PLAYS.keys() == planted_bugs.PLAYED.keys()


@pytest.mark.parametrize("name", PLAYS)
def test_a_play_holds_and_finds_its_planted_bug(name: str) -> None:
    PLAYS[name]()
    with planted(name), pytest.raises(AssertionError):
        PLAYS[name]()
