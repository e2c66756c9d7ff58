"""What seeds have found, one bug a test, as small as it gets."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from unittest.mock import Mock

import pytest

from broker.group_broker import NODE_ID, GroupBroker, Pending, topic
from sim.checkers import Checkers
from sim.cluster.checkers import ClusterCheckers
from sim.cluster.compacted_checkers import Compacted
from sim.cluster.world import ClusterWorld
from sim.history import Violation
from sim.run import run_seed
from sim.world import World
from support.compaction import clean, compacted, fill, open_compacted, open_manager, put
from support.logs import NOW, append, batch, offsets, open_log
from tidelog.awaiting import drive
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC, PartitionImage, TopicImage
from tidelog.coordinators.groups.offsets import OffsetAndMetadata, OffsetChange
from tidelog.replication.replica_state import ReplicaState
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog.simulation.loop import SimLoop, simulate
from tidelog.simulation.machine import Machine
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.config import LogConfig
from tidelog_storage.types import StorageError

INDEX_SUFFIXES = (".index", ".timeindex")


def settings(**values: str) -> LogConfig:
    return LogConfig.from_overrides(
        LogConfig({"internal.segment.bytes": 2000, "index.interval.bytes": 100}),
        {name.replace("_", "."): value for name, value in values.items()},
    )


def fresh():
    disk = SimDisk(1)
    files = disk.files()
    files.make_dirs("data")
    return disk, files


def unsynced_indexes(disk, below: int) -> list[str]:
    """Index files of segments that end at or below an offset, written and not durable."""
    bases = sorted(int(path[-24:-4]) for path in disk.names if path.endswith(".log"))
    sealed = [base for base, following in itertools.pairwise(bases) if following <= below]
    return [
        path
        for path, inode in disk.names.items()
        if path.endswith(INDEX_SUFFIXES)
        and int(path.rpartition("/")[2].partition(".")[0]) in sealed
        and inode.synced < len(inode.data)
    ]


def roll(log) -> None:
    segments = len(log.segments)
    while len(log.segments) == segments:
        append(log, 1)


# Whole runs, where no smaller case says more. Many more seeds: `test_many_seeds.py`.
@pytest.mark.parametrize(
    ("seed", "brokers"),
    [
        pytest.param(57, 3, id="an operator wiped a replica that the controller counted on"),
        pytest.param(937, 5, id="a topic was looked for that a play had deleted meanwhile"),
        pytest.param(1066, 5, id="who had rotten records was left alone in sync"),
        pytest.param(1101, 3, id="a consumer was ahead of a follower that had lost its end"),
        pytest.param(1108, 3, id="a reader of committed records believed rotten ones"),
        pytest.param(1155, 5, id="a group coordinator loaded rotten offsets"),
        pytest.param(4160, 3, id="a broker had gone when a late request moved replicas there"),
        pytest.param(10099, 4, id="a copy was finished that the next leader had deleted"),
        pytest.param(10199, 3, id="what was still being purged counted as copied again"),
        pytest.param(60024, 6, id="who had led a topic purged what was copied after it came back"),
        pytest.param(70246, 4, id="a remote read passed over what began with a leader epoch"),
        pytest.param(60120, 3, id="a broker was taken away by an image from before it came"),
        pytest.param(50256, 5, id="a controller refused by what it knew before it was cut off"),
    ],
)
def test_a_seed_that_failed_once_holds(seed: int, brokers: int) -> None:
    assert run_seed(seed, brokers=brokers).failure is None


def test_a_process_that_dies_inside_a_swap_has_lost_nothing() -> None:
    """Old segments had gone and the compacted one had not its name yet: the last look at that life
    missed the records that the next start finds under `.swap` (seed 50409 of three brokers)."""
    swaps = 0
    for operation in itertools.count(1):
        disk, files = fresh()
        manager, log = open_compacted(files)
        put(log, (b"once", b"1"))
        fill(log)
        machine = Mock(spec=Machine, disk=disk, host="broker-1")
        look = partial(
            Compacted("t-0", has_deletions=False).compare, machine, log.folder, log.high_watermark
        )
        look()
        disk.on_death, disk.die_at = look, disk.operations + operation
        try:
            clean(manager)
            break
        except MachineDiedError:
            swaps += any(name.endswith(".log.swap") for name in disk.names)
        disk.kill()
        disk.unwinding = False  # from here on `.swap` is nobody's
        open_manager(disk.files(), compacted())
        look()
    assert swaps > 10


def test_a_follower_has_cleaned_above_the_high_watermark_that_its_leader_tells() -> None:
    """It had led with a later one: a record gone for a newer one is not lost while that stays
    (seed 1950)."""
    disk, files = fresh()
    manager, log = open_compacted(files)
    put(log, (b"once", b"1"))
    fill(log)
    machine = Mock(spec=Machine, disk=disk, host="broker-1")
    known = Compacted("t-0", has_deletions=False)
    fallen = log.high_watermark
    known.compare(machine, log.folder, fallen)
    put(log, (b"once", b"2"))
    fill(log)
    clean(manager)
    known.compare(machine, log.folder, fallen)
    log.truncate_to(fallen)
    with pytest.raises(Violation, match="the newest of b'once', at 0, is gone"):
        known.compare(machine, log.folder, fallen)


@pytest.mark.parametrize("brokers", [1, 3])
def test_what_is_wrong_at_a_death_is_the_verdict_and_the_process_is_dead(
    brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a step it was raised into the broker's code, which caught it and lived on with half a
    step done: the verdict was of what came of that later (seed 50409)."""
    wrong = Mock(side_effect=Violation("it was wrong by then"))
    monkeypatch.setattr(Checkers if brokers == 1 else ClusterCheckers, "before_death", wrong)
    machines: list[Machine] = []
    servers: list[object] = []

    async def main(loop: SimLoop) -> None:
        world = World(loop, 1, ()) if brokers == 1 else ClusterWorld(loop, 1, brokers, ())
        machines.extend([world.machine] if isinstance(world, World) else world.machines)
        await asyncio.gather(*(machine.start() for machine in machines))
        try:
            machines[0].die("kill")
        finally:
            servers.append(machines[0].server)
        await asyncio.sleep(0)

    with pytest.raises(Violation, match="by then"):
        simulate(1, main)
    for machine in machines:
        machine.bury()
    assert servers == [None]


@pytest.mark.parametrize("flush_messages", ["1", "3"])
def test_indexes_below_the_recovery_point_are_durable(flush_messages: str) -> None:
    """A log flushed while active was sealed later, and its indexes were never synced."""
    disk, files = fresh()
    log = open_log(files, settings=settings(flush_messages=flush_messages))
    for _ in range(40):
        append(log, 1)
        assert unsynced_indexes(disk, log.recovery_point) == []
    assert log.recovery_point > log.segments.first.base_offset + 20


def test_a_flush_that_runs_during_a_roll_speaks_for_the_records_alone() -> None:
    """Its offset became the recovery point, with the sealed segment's indexes below it."""
    disk, files = fresh()
    log = open_log(files, settings=settings())
    append(log, 1)
    task = log.prepare_flush()
    assert task is not None
    roll(log)
    task()
    log.flushed(task)
    assert unsynced_indexes(disk, log.recovery_point) == []
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert unsynced_indexes(disk, log.recovery_point) == []


def test_producers_outlive_what_was_deleted_locally() -> None:
    """A power failure took the snapshot at the local log start, and what it was made of was in the
    remote tier alone: an aborted transaction was forgotten (seed 135 of one broker with a tier)."""
    disk, files = fresh()
    tiered = settings(remote_storage_enable="true", local_retention_bytes="1")
    log = open_log(files, settings=tiered, remote_storage_system_enable=True)
    while len(log.segments) < 3:
        append(
            log,
            1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=log.log_end_offset,
            transactional=True,
        )
    log.flush()
    log.set_highest_remote_offset(log.segments.active.base_offset - 1)
    assert log.delete_old_segments(NOW) == 2
    base = log.local_log_start_offset
    inode = disk.names[f"data/t-0/{base:020d}.snapshot"]
    assert inode.synced == len(inode.data)
    disk.power_failure()
    again = open_log(disk.files(), settings=tiered, clean=False, remote_storage_system_enable=True)
    assert again.producers.first_unstable_offset == 0


def test_an_orderly_stop_syncs_the_indexes_of_a_log_that_was_flushed() -> None:
    """Nothing was left to flush, so the active segment's new indexes were not synced either."""
    disk, files = fresh()
    log = open_log(files, settings=settings(flush_messages="1"))
    for _ in range(5):
        append(log, 1)
    log.close()
    written = [inode for path, inode in disk.names.items() if path.endswith(INDEX_SUFFIXES)]
    assert written
    assert all(inode.synced == len(inode.data) for inode in written)


def test_epochs_reach_down_to_a_log_start_that_a_crash_took_back() -> None:
    """DeleteRecords cut the epochs durably and the log start in memory; a kill came between."""
    _, files = fresh()
    log = open_log(files, settings=settings())
    for epoch in (0, 2, 5):
        log.assign_epoch(epoch)
        append(log, 4, leader_epoch=epoch)
    log.maybe_increment_log_start(6, "DeleteRecords")
    log.epochs.flush(log.log_end_offset)
    again = open_log(files, settings=settings(), clean=False)
    assert again.log_start_offset == 0
    assert [tuple(entry) for entry in again.epochs.entries] == [(0, 0), (2, 4), (5, 8)]


def test_what_is_appended_after_a_seal_is_flushed_with_the_indexes_before() -> None:
    """The recovery point goes back to the sealed segment until they are durable."""
    disk, files = fresh()
    log = open_log(files, settings=settings())
    append(log, 1)
    log.flush()
    append(log, 1)
    roll(log)
    assert log.recovery_point == 0
    log.append_as_leader(batch(1), leader_epoch=0, now_ms=NOW)
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert unsynced_indexes(disk, log.recovery_point) == []


@pytest.mark.parametrize("compacted", [-1, 0, 1])
def test_nothing_is_kept_behind_a_gap(compacted: int) -> None:
    """A power failure took the end of a sealed segment at a batch's boundary, and left the next."""
    disk, files = fresh()
    log = open_log(files, settings=settings())
    while len(log.segments) < 3:
        append(log, 1)
    end = log.log_end_offset
    second = log.segments.after(0)
    assert second is not None
    *_, (position, header, _) = log.segments.first.batches()
    del disk.names["data/t-0/00000000000000000000.log"].data[position:]
    compacted_to = second.base_offset + compacted
    again = open_log(files, settings=settings(), clean=False, compacted_to=compacted_to)
    if compacted >= 0:
        assert again.log_end_offset == end  # there, a gap is nothing special
        assert len(again.segments) == 3
    else:
        assert again.log_end_offset == header.base_offset < second.base_offset
        assert len(again.segments) == 1


def test_what_recovery_cuts_off_stays_off() -> None:
    """The cut was not synced: the next power failure brought the torn bytes back, in a segment that
    was sealed and durable by then."""
    disk, files = fresh()
    log = open_log(files, settings=settings())
    append(log, 3)
    log.flush()
    inode = disk.names["data/t-0/00000000000000000000.log"]
    inode.data += b"torn"
    disk.sync(inode)
    open_log(files, settings=settings(), clean=False, recovery_point=3)
    assert bytes(inode.durable) == bytes(inode.data)


@pytest.mark.parametrize("room", [0, 100])
def test_a_follower_without_room_keeps_its_leader_epochs(room: int) -> None:
    """The epochs of what a full disk refused stayed, above the log end; when it came again, with
    older epochs before them, the real start of the older one was overwritten (seed 50017 of four
    brokers). Room for nothing, or for the epochs alone."""
    disk, files = fresh()
    log = open_log(files, settings=settings())

    def follow(*places: tuple[int, int]) -> None:
        data = b"".join(batch(1, base_offset=at, leader_epoch=epoch) for at, epoch in places)
        log.append_as_follower(memoryview(data), leader_epoch=5, now_ms=NOW)

    follow((0, 1), (1, 3), (2, 3))
    epochs = log.epochs.entries
    disk.capacity_bytes = disk.used_bytes() + room
    for _ in range(2):
        with pytest.raises(StorageError, match="full"):
            follow((3, 3), (4, 5))
        assert (log.log_end_offset, log.epochs.entries) == (3, epochs)
    disk.capacity_bytes = None
    follow((3, 3), (4, 5))
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (3, 1), (5, 4)]
    again = open_log(files, settings=settings(), clean=False)
    assert again.epochs.entries == log.epochs.entries


@pytest.mark.parametrize("follows", [False, True])
def test_what_follows_a_marker_without_room_in_its_index_has_another_offset(follows: bool) -> None:
    """The marker was in the log, and the log end below it; and a clean stop forgot the abort."""
    disk, files = fresh()
    log = open_log(files, settings=settings())
    append(log, 1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_end_transaction_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    data = memoryview(bytearray(marker))
    append_marker = partial(log.append_as_leader, from_client=False)
    if follows:
        data[:8] = (1).to_bytes(8, "big")  # as it is in the leader's log
        append_marker = log.append_as_follower
    disk.capacity_bytes = disk.used_bytes() + len(data)
    with pytest.raises(StorageError, match="full"):
        append_marker(data, leader_epoch=0, now_ms=NOW)
    disk.capacity_bytes = None
    append(log, 1)
    assert offsets(log) == [(0, 0), (1, 1), (2, 2)]
    log.close()
    again = open_log(files, settings=settings())
    assert [tuple(found) for found in again.aborted_transactions(0, 3)] == [(7, 0)]


@pytest.mark.parametrize("power", [False, True])
def test_a_log_that_began_anew_forgot_its_epochs(power: bool) -> None:
    """They were dropped in memory alone: after a crash the empty log claimed the last of them."""
    disk, files = fresh()
    log = open_log(files, settings=settings())
    for epoch in (1, 3):
        append(log, 1, leader_epoch=epoch)
    log.truncate_fully_and_start_at(100)
    if power:
        disk.power_failure()
    again = open_log(disk.files(), settings=settings(), clean=False, log_start_offset=100)
    assert (again.log_end_offset, again.epochs.entries) == (100, [])


def test_committed_offsets_do_not_go_back_when_the_coordinator_changes() -> None:
    """A new leader's high watermark began below what was acknowledged, and so did its answers."""
    broker = GroupBroker(partitions=1)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[partition])]
    broker.ask(OffsetCommitRequest(group_id="g", topics=topics), 7)
    name = GROUP_METADATA_TOPIC
    replica = broker.replica_manager.partition(name, 0)
    broker.topics[name] = topic(name, replica.topic_id, 1, leader=2, epoch=1)
    broker.apply()
    replica.log.set_high_watermark(0)  # as the leader told it with its last answer
    led = PartitionImage(0, NODE_ID, 2, 2, (NODE_ID, 2), (NODE_ID, 2))
    broker.topics[name] = TopicImage(name, replica.topic_id, (led,), is_internal=True)
    broker.apply()
    broker.time.pass_()
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    waiting = broker.send(OffsetFetchRequest(groups=[group]), 8)
    assert waiting.parked
    replica.remotes[2].log_end_offset = replica.log.log_end_offset
    assert replica.advance_high_watermark()
    broker.replica_manager.appended([replica.topic_partition])
    assert waiting.answer.groups[0].topics[0].partitions[0].committed_offset == 5


def test_offsets_are_not_forgotten_between_their_marker_and_its_commit() -> None:
    """A fetch of stable offsets waited for what was there before it; meanwhile the marker of a
    transaction was written, whose offsets no longer waited then and were not yet committed. Of two
    members of a group both copied the same records (seed 424 of three brokers, with members)."""
    broker = GroupBroker(partitions=1)
    coordinator = broker.coordinator
    (shard,) = coordinator.led.active()
    replica = broker.replica_manager.partition(GROUP_METADATA_TOPIC, 0)

    def write(index: int, offset: int, producer: tuple[int, int] | None) -> None:
        change = OffsetChange("g", "a", index, OffsetAndMetadata(offset, -1, "", NOW))
        if producer is None:
            drive(coordinator.write_offsets(shard, [change]), errors.append)
        else:
            write = coordinator.write_transactional_offsets(shard, [change], producer)
            drive(write, errors.append)

    errors: list[ErrorCode] = []
    write(0, 5, (7, 0))
    replica._sole_replica, replica.isr = False, (NODE_ID, 2)
    replica.remotes[2] = ReplicaState()
    write(1, 1, None)
    both = OffsetFetchRequest.OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[both])
    message = OffsetFetchRequest(groups=[group], require_stable=True)
    waiting = broker.send(message, 8)
    before = replica.log.log_end_offset
    marker = build_end_transaction_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    drive(coordinator.end_transaction(0, memoryview(bytearray(marker))), errors.append)

    def answered(asked: Pending, end: int) -> list[tuple[int, int, int]]:
        replica.remotes[2].log_end_offset = end
        assert replica.advance_high_watermark()
        broker.replica_manager.appended([replica.topic_partition])
        (topic,) = asked.answer.groups[0].topics
        return [(p.partition_index, p.committed_offset, p.error_code) for p in topic.partitions]

    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert answered(waiting, before) == [(0, -1, unstable), (1, 1, 0)]
    again = broker.send(message, 8)
    assert answered(again, replica.log.log_end_offset) == [(0, 5, 0), (1, 1, 0)]
    assert errors == [ErrorCode.NONE] * 3
