"""Leader epochs on disk that are another log's or damaged: the records name theirs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, PARTITION, append, config, offsets
from support.tiered_log import PLAIN, TIERED, Broker, copied
from tidelog_storage.checkpoints import CheckpointError, EpochEntry
from tidelog_storage.epoch_checks import places_of, recorded_epochs
from tidelog_storage.holes import find_holes
from tidelog_storage.indexes import TIME_ENTRY
from tidelog_storage.segment import LOG_SUFFIX, TIME_INDEX_SUFFIX

if TYPE_CHECKING:
    from tidelog_storage.config import LogConfig

EPOCHS = f"data/{PARTITION}/leader-epoch-checkpoint"
RIGHT = [(0, 0), (1, 8), (2, 16)]
SEEN_LATER = [(0, 0), (2, 9)]  # the last batch has the epoch that it should have
OTHERS = [
    [(0, 0)],
    [(0, 0), (7, 3)],
    [(1, 0), (9, 20)],
    [(0, 5), (1, 9)],
    [(5, 90)],
]
_EPOCH_POSITION = 12


@pytest.fixture
def broker():
    return Broker()


def exchange(broker, entries, *, is_killed):
    """Stop in order or be killed, and leave these entries on disk."""
    if is_killed:
        broker.logs.get(PARTITION).flush()
        broker.logs.upkeep.prepare_checkpoints()()
        broker.disk.kill()
        broker.files = broker.disk.files()
    else:
        broker.logs.shutdown(NOW)
    lines = "".join(f"{epoch} {start}\n" for epoch, start in entries)
    broker.files.write_atomic(EPOCHS, f"0\n{len(entries)}\n{lines}".encode())


def rot(broker, log, numbers, epoch):
    """Give batches of the last segment another leader epoch, which no checksum covers."""
    path = log.segments.active.path(LOG_SUFFIX)
    data = bytearray(broker.files.read_bytes(path))
    positions = [0]
    while positions[-1] < len(data):
        (length,) = struct.unpack_from(">i", data, positions[-1] + 8)
        positions.append(positions[-1] + 12 + length)
    for number in numbers:
        struct.pack_into(">i", data, positions[:-1][number] + _EPOCH_POSITION, epoch)
    broker.files.open(path).truncate(0)
    broker.files.open(path).append((bytes(data),))


def test_epochs_that_do_not_rise_prove_nothing(broker: Broker) -> None:
    log = broker.create(12, PLAIN)
    log.flush()
    assert recorded_epochs(broker.files, places_of(log.segments), [(9, 0)]).are_proven()
    rot(broker, log, [0], -5)
    path, size = places_of(log.segments)[-1]
    assert recorded_epochs(broker.files, [(path, size)], [(9, 0)]).entries == []


@pytest.mark.parametrize("settings", [PLAIN, TIERED])
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("entries", OTHERS)
def test_the_epochs_of_another_log_are_not_taken_over(
    broker: Broker, entries: list[tuple[int, int]], is_killed: bool, settings: LogConfig
) -> None:
    log = broker.create(12, settings)
    before = (log.log_start_offset, log.log_end_offset, offsets(log), log.lost_start)
    exchange(broker, entries, is_killed=is_killed)
    for _ in range(2):
        log = broker.reopen(settings)
        assert log.epochs.entries == RIGHT
        assert before == (log.log_start_offset, log.log_end_offset, offsets(log), log.lost_start)
        assert not log.has_lost_epochs
        broker.logs.shutdown(NOW)


@pytest.mark.parametrize("entries", OTHERS)
def test_a_plain_log_whose_beginning_was_deleted_gets_those_of_its_records(
    broker: Broker, entries: list[tuple[int, int]]
) -> None:
    settings = config(internal_segment_bytes=500, retention_bytes=700)
    log = broker.create(12, settings)
    log.delete_old_segments(NOW)
    before = (log.log_start_offset, log.epochs.entries)
    assert before[0] > 8
    exchange(broker, entries, is_killed=False)
    log = broker.reopen(settings)
    assert before == (log.log_start_offset, log.epochs.entries)
    assert not log.has_lost_records


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("entries", OTHERS[:2])
def test_a_log_with_a_remote_part_is_refused(
    broker: Broker, entries: list[tuple[int, int]], is_killed: bool
) -> None:
    """Nothing says then which remote segments are its own."""
    copied(broker.create(12), 12)
    exchange(broker, entries, is_killed=is_killed)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="does not fit the records"):
            broker.reopen()
        broker.logs.shutdown(NOW)


@pytest.mark.parametrize("epoch", [1, 3, 1 << 20])
def test_a_single_batch_proves_nothing(broker: Broker, epoch: int) -> None:
    """It may have rotted: the scrub decides, with the help of another replica."""
    log = broker.create(12, PLAIN)
    broker.logs.shutdown(NOW)
    rot(broker, log, [-1], epoch)
    log = broker.reopen(PLAIN)
    assert log.epochs.entries == RIGHT
    assert find_holes(log).is_suspect


def test_records_that_do_not_fit_their_indexes_prove_nothing(broker: Broker) -> None:
    """The last segment's records may be another log's: the scrub decides."""
    other = broker.create(12, config())
    path = other.segments.active.path(LOG_SUFFIX)
    broker.logs.shutdown(NOW)
    rot(broker, other, [-2, -1], 9)
    index = broker.files.open(path.removesuffix(LOG_SUFFIX) + TIME_INDEX_SUFFIX)
    index.truncate(0)
    index.append((TIME_ENTRY.pack(NOW - 5, 1),))
    index.close()
    log = broker.reopen(config())
    assert log.epochs.entries == RIGHT
    assert find_holes(log).is_suspect


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_epochs_of_another_log_with_the_same_newest_one_are_seen_in_use(
    broker: Broker, is_killed: bool
) -> None:
    broker.create(12, PLAIN)
    exchange(broker, SEEN_LATER, is_killed=is_killed)
    assert find_holes(broker.reopen(PLAIN)).is_suspect


def test_records_below_the_log_start_are_not_compared(broker: Broker) -> None:
    """The epochs do not reach down to them."""
    log = broker.create(12, PLAIN)
    for moved_to in (9, 24):
        log.maybe_increment_log_start(moved_to, "DeleteRecords")
        for is_killed in (False, True):
            exchange(broker, log.epochs.entries, is_killed=is_killed)
            log = broker.reopen(PLAIN)
            assert log.log_start_offset == moved_to
            assert find_holes(log) == ([], False)


def test_the_last_batch_of_a_sealed_segment_is_compared_too(broker: Broker) -> None:
    log = broker.create(12, PLAIN)
    log.epochs.replace([(0, 0), (1, 12), (2, 16)])
    assert find_holes(log) == ([], True)
    log.epochs.replace(RIGHT)
    assert find_holes(log) == ([], False)


@pytest.mark.parametrize(
    ("numbers", "epoch", "newest", "are_proven"),
    [
        ([-1], 3, 3, False),  # one batch may have rotted
        ([-2, -1], 1 << 20, 3, False),  # no leader had that epoch
        ([-2], 5, 5, False),  # it would have gone down again
        ([0, 1], 0, 3, False),  # below that of the segment before
        ([-2, -1], 3, 3, True),
    ],
)
def test_what_proves_that_the_epochs_are_wrong(
    broker: Broker, numbers: list[int], epoch: int, newest: int, are_proven: bool
) -> None:
    log = broker.create(8, config())
    log.roll(NOW)
    for _ in range(4):
        append(log, 2, leader_epoch=2)
    rot(broker, log, numbers, epoch)
    recorded = recorded_epochs(broker.files, places_of(log.segments), log.epochs.entries)
    assert recorded.are_proven(newest) is are_proven
    assert recorded.misfits == len(numbers)
    assert EpochEntry(0, 0) in recorded.entries or not recorded.entries


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, [(0, 2), (3, 4), (4, 6)]),  # the first of an epoch: the next batch begins it
        (1, [(0, 0), (3, 4), (4, 6)]),
        (2, [(0, 0), (3, 5), (4, 6)]),
        (3, [(0, 0), (3, 4), (4, 6)]),
        (4, [(0, 0), (3, 4), (4, 7)]),
    ],
)
def test_an_epoch_that_rotted_upward_is_not_recovered(
    broker: Broker, number: int, expected: list[tuple[int, int]]
) -> None:
    """It lies above the checkpoint's newest one; the next batch is of an older epoch again."""
    log = broker.create(2, config())
    broker.logs.upkeep.prepare_checkpoints()()
    for leader_epoch in (3, 3, 4, 4):
        append(log, leader_epoch=leader_epoch)
    rot(broker, log, [number], 700)
    assert broker.crash(config()).epochs.entries == expected
