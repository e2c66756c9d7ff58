"""Deaths between the steps that trim the metadata log, or replace it by a leader's snapshot: in
every life it begins where its oldest snapshot ends."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import TYPE_CHECKING

import pytest

from broker.test_snapshots import FOLDER, open_single
from support.metadata import CLUSTER_ID, NOW_MS, FixedClock, StepExecutor
from support.quorum_nodes import setting, simulate
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.metadata.replay import ImageBuilder
from tidelog.cluster.metadata.settings import MetadataLogSettings
from tidelog.cluster.metadata.snapshots import (
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
)
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.quorum_nodes import QuorumNode, QuorumWorld

WAYS = ("kill", *(f"power {number}" for number in range(3)))


def trimmed(segment_bytes: int = 1 << 30) -> SimDisk:
    """A voter's disk: two snapshots, what is between them, and more."""

    async def run() -> SimDisk:
        disk = SimDisk(1)
        log = open_single(disk, segment_bytes=segment_bytes)
        await commit_until(log, lambda: log.log.log_start_offset > 0)
        await log.close()
        disk.kill()
        return disk

    return asyncio.run(run())


async def commit_until(log: MetadataLog, condition: Callable[[], bool]) -> None:
    """Let the log grow, and its snapshots be taken."""
    while not condition():
        await log.commit([setting("n", str(log.next_offset))])
        await asyncio.sleep(0)
    for number in range(9):
        await log.commit([setting("last", str(number))])


def open_copy(disk: SimDisk, executor: StepExecutor | None = None, **options: int) -> MetadataLog:
    """One of three voters."""
    log = MetadataLog(
        MetadataLogSettings(
            voters=(1, 2, 3),
            files=disk.files(),
            executor=executor or StepExecutor(),
            clock=FixedClock(),
            directory="data",
            node_id=1,
            cluster_id=CLUSTER_ID,
            **options,
        )
    )
    log.open()
    return log


def newer(log: MetadataLog) -> tuple[SnapshotId, bytes]:
    """A leader's snapshot."""
    image = ImageBuilder(log.image).build(
        offset=log.next_offset + 50, leader_epoch=7, controller_id=-1
    )
    return encode_snapshot(image, NOW_MS)


def install_snapshot(log: MetadataLog, snapshot: SnapshotId, data: bytes) -> None:
    image = decode_snapshot(snapshot, data, log.image.cluster_id, log.image.listener)
    log.install_snapshot(snapshot, data, image)


def die(disk: SimDisk, way: str, operation: int, work: Callable[[], None]) -> bool:
    """Do it, and die in an operation of it, or behind it; whether it came to its end."""
    disk.on_death, disk.die_at = (lambda: None), disk.operations + operation
    try:
        work()
    except MachineDiedError:
        is_done = False
    else:
        is_done = True
    disk.die_at, disk.unwinding = None, False
    if way == "kill":
        disk.kill()
    else:
        disk.rng = random.Random(f"{way}:{operation}")
        disk.power_failure()
    return is_done


def check(disk: SimDisk) -> SnapshotId:
    """What every life finds; the newest snapshot."""
    for _ in range(2):
        log = open_copy(disk)
        snapshots = list_snapshots(disk.files(), FOLDER)
        assert log.log.log_start_offset == snapshots[0].end_offset
        assert log.image.offset == snapshots[-1].end_offset - 1
        assert log.next_offset >= snapshots[-1].end_offset
        disk.kill()
    return snapshots[-1]


@pytest.mark.parametrize("way", WAYS)
def test_a_death_in_a_leaders_snapshot(way: str) -> None:
    """Older snapshots stayed below the log start, and the next leader's followers went by them."""
    whole = trimmed()
    steps = [SnapshotId(0, 0)]
    is_done = False
    while not is_done:
        disk = copy.deepcopy(whole)
        log = open_copy(disk)
        before = log.snapshotter.newest()
        snapshot, data = newer(log)

        def install() -> None:
            install_snapshot(log, snapshot, data)  # noqa: B023 - done at once

        is_done = die(disk, way, len(steps), install)
        steps.append(check(disk))
        assert steps[-1] in (before, snapshot)
        if steps[-1] == snapshot:
            log = open_copy(disk)
            assert log.log_end() == (snapshot.epoch, snapshot.end_offset)
            assert log.log.log_start_offset == snapshot.end_offset
    assert len(steps) > 15
    assert steps[1] == before
    assert steps[-1] == snapshot


def test_ones_own_snapshot_that_is_written_too_late() -> None:
    """A leader's had come meanwhile: it was left below the log start as by a crash."""

    disk, executor = trimmed(), StepExecutor()

    async def live() -> None:
        log = open_copy(disk, executor, snapshot_bytes=0)
        await log.flush()
        executor.hold()
        log.advance(log.next_offset)
        assert log.snapshotter.task is not None
        await asyncio.sleep(0)  # it has begun
        snapshot, data = newer(log)
        install_snapshot(log, snapshot, data)
        executor.release()
        await asyncio.wait([log.snapshotter.task])
        assert list_snapshots(disk.files(), FOLDER) == [snapshot]
        assert log.log.log_start_offset == snapshot.end_offset

    asyncio.run(live())


@pytest.mark.parametrize("segment_bytes", [400, pytest.param(1 << 30, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("way", WAYS)
def test_a_death_in_ones_own_snapshot(way: str, segment_bytes: int) -> None:
    whole = trimmed(segment_bytes)

    async def live(disk: SimDisk) -> None:
        log = open_single(disk, snapshot_bytes=500)  # soon, and two of them
        known = log.log.log_start_offset
        growing = asyncio.ensure_future(commit_until(log, lambda: log.log.log_start_offset > known))
        while not growing.done():
            if disk.unwinding:  # whoever was at the disk is gone, and others wait for it
                raise MachineDiedError
            await asyncio.sleep(0)
        await growing

    operation, is_done = 0, False
    while not is_done:
        disk = copy.deepcopy(whole)
        operation += 1
        is_done = die(disk, way, operation, lambda: asyncio.run(live(disk)))  # noqa: B023
        check(disk)
    assert operation > 30


def test_a_log_whose_beginning_is_nowhere_is_refused() -> None:
    disk = trimmed(400)
    log = open_copy(disk)
    start = log.log.segments.first.base_offset
    assert start
    disk.kill()
    files = disk.files()
    for snapshot in list_snapshots(files, FOLDER):
        files.remove(f"{FOLDER}/{snapshot.file_name}")
    for open_it in (open_copy, open_single):
        with pytest.raises(StorageError, match=f"all below {start} was on disk"):
            open_it(disk)
        disk.kill()


def test_a_new_leader_with_snapshots_of_before_its_log_start_has_followers() -> None:
    """An empty one was sent the newest snapshot again and again, until there was another."""

    async def story(world: QuorumWorld) -> None:
        for node in world.nodes.values():
            node.options["snapshot_bytes"] = 1500
        *voters, late = world.nodes.values()
        for node in voters:
            await node.start()
        leader = await world.elected()
        await grow(leader)
        behind = next(node for node in voters if node is not leader)
        behind.kill()
        older = {name: behind.disk.names[name] for name in snapshots_of(behind)}
        assert older
        leader.kill()
        await leader.start()
        leader = await world.elected()  # of another epoch
        for _ in range(3):
            await grow(leader)
        start = leader.metadata.log.log_start_offset
        await behind.start()
        await world.until(world.is_settled)
        assert behind.metadata.log.log_start_offset >= start
        behind.kill()
        behind.disk.names.update(older)  # as if the crash had come before they went
        await behind.start()
        while leader is not behind:
            await world.until(world.is_settled)
            leader.kill()
            former, leader = leader, await world.elected()
            await former.start()
        await late.start()
        await world.until(world.is_settled)
        assert late.settings == leader.settings

    async def grow(leader: QuorumNode) -> None:
        start = leader.metadata.log.log_start_offset
        number = 0
        while leader.metadata.log.log_start_offset == start:
            number += 1
            await leader.commit(f"s{start}.{number}")

    def snapshots_of(node: QuorumNode) -> list[str]:
        return [name for name in node.disk.names if name.endswith(".checkpoint")]

    simulate(story, observers=1)
