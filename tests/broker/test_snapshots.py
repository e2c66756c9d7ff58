"""Snapshots of the metadata: bytes and back, restarts, and what they let the log give up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.metadata import (
    CLUSTER_ID,
    DIRECTORY_ID,
    NOW_MS,
    FixedClock,
    StepExecutor,
    names_by_id,
    only_voter,
)
from support.metadata import cluster as cluster_image
from support.metadata import topic as topic_image
from support.quorum_nodes import setting, settings_in, simulate
from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage
from tidelog.cluster.metadata.quorum_state import QuorumStateError
from tidelog.cluster.metadata.replay import ImageBuilder
from tidelog.cluster.metadata.snapshots import (
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
)
from tidelog.security.acls import Acl
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.messages.quorum_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_record,
)
from tidelog_protocol.records import build_batch

if TYPE_CHECKING:
    from support.quorum_nodes import QuorumWorld
    from tidelog.cluster.metadata.log import MetadataLog

FOLDER = "data/__cluster_metadata-0"
FIELDS = (
    "brokers",
    "topics",
    "topic_names",
    "topic_configs",
    "broker_configs",
    "group_configs",
    "client_quotas",
    "client_metrics",
    "features",
    "acls",
    "scram_credentials",
    "delegation_tokens",
    "next_producer_id",
)


RULE = Acl(2, "t", 3, "User:a", "*", 3, 3)
CREDENTIAL = tables.UserScramCredentialRecord(name="u", mechanism=1, iterations=4096)
TOKEN = tables.DelegationTokenRecord(owner="User:a", token_id="t", issue_timestamp=7)


def image_of_all() -> ClusterImage:
    partition = topic_image("t", 7, 3, (1, 2, 3))
    changed = partition.partitions[1]._replace(
        leader=-1,
        leader_epoch=5,
        partition_epoch=9,
        isr=(3,),
        adding_replicas=(3,),
        removing_replicas=(1,),
        eligible_leader_replicas=(2,),
        last_known_eligible_leader_replicas=(1,),
        leader_recovery_state=1,
    )
    first, _, last = partition.partitions
    topics = {"t": partition._replace(partitions=(first, changed, last)), "u": topic_image("u", 8)}
    return ClusterImage(
        cluster_id=CLUSTER_ID,
        controller_id=2,
        brokers={
            1: BrokerImage(
                1,
                "h",
                9092,
                "r",
                4,
                log_dirs=(DIRECTORY_ID,),
                endpoints=(("INNER", "h", 9092, 0), ("OUTER", "o", 1, 3)),
                features=(("metadata.version", 7, 30), ("x", 0, 1)),
            ),
            2: BrokerImage(2, "", -1, None, 5, fenced=True, in_controlled_shutdown=True),
        },
        topics=topics,
        topic_names=names_by_id(topics),
        topic_configs={"t": {"retention.ms": "1", "cleanup.policy": "compact"}},
        broker_configs={"": {"a": "b"}, "1": {"c": "d"}},
        group_configs={"g é": {"consumer.session.timeout.ms": "50000"}},
        client_quotas={
            (("client-id", "c"), ("user", None)): {"producer_byte_rate": 1.0, "x": 0.5},
            (("ip", "1.2.3.4"),): {"connection_creation_rate": 7.0},
        },
        client_metrics={"s": {"interval.ms": "100", "match": "client_id=a"}},
        features={"metadata.version": 30, "x": 1},
        acls={bytes(range(16)): RULE},
        scram_credentials={("u", 1): CREDENTIAL},
        delegation_tokens={"t": TOKEN},
        next_producer_id=3000,
        offset=41,
        leader_epoch=6,
    )


def test_an_image_comes_back() -> None:
    image = image_of_all()
    snapshot, data = encode_snapshot(image, NOW_MS)
    assert snapshot == SnapshotId(42, 6)
    assert snapshot.file_name == "00000000000000000042-0000000006.checkpoint"
    again = decode_snapshot(snapshot, data, CLUSTER_ID)
    for field in FIELDS:
        assert getattr(again, field) == getattr(image, field), field
    assert (again.offset, again.leader_epoch) == (41, 6)
    headers = [header for _, header in iter_batches(data)]
    assert [header.is_control for header in headers] == [True, False, True]
    assert [header.base_offset for header in headers] == [0, 1, headers[1].next_offset]


def test_a_snapshot_of_a_dynamic_quorum_shows_its_level() -> None:
    """KIP-853: it is in a control record, as `kafka-storage format --standalone` writes it."""
    tables_of_control = (
        [SnapshotHeaderRecord()],
        [KRaftVersionRecord(kraft_version=1), VotersRecord()],
        [SnapshotFooterRecord()],
    )
    data, offset = b"", 0
    for messages in tables_of_control:
        records = [
            control_record(message, timestamp=NOW_MS, offset=offset + index)
            for index, message in enumerate(messages)
        ]
        data += build_batch(records, base_offset=offset, leader_epoch=0, control=True)
        offset += len(records)
    assert decode_snapshot(SnapshotId(0, 0), data, CLUSTER_ID).features == {"kraft.version": 1}


def test_many_records_go_into_several_batches() -> None:
    image = cluster_image(*(topic_image(f"t{number}", number + 1, 5) for number in range(300)))
    snapshot, data = encode_snapshot(image, NOW_MS)
    assert sum(1 for _ in iter_batches(data)) == 6
    assert decode_snapshot(snapshot, data, CLUSTER_ID).topics == image.topics


def test_damage_is_found() -> None:
    snapshot, data = encode_snapshot(image_of_all(), NOW_MS)
    for size in range(0, len(data), 37):
        with pytest.raises(ProtocolError):
            decode_snapshot(snapshot, data[:size], CLUSTER_ID)
    for position in range(30, len(data), 53):
        torn = bytearray(data)
        torn[position] ^= 1
        with pytest.raises(ProtocolError):
            decode_snapshot(snapshot, bytes(torn), CLUSTER_ID)


def open_single(
    disk: SimDisk, snapshot_bytes: int = 2000, clock: FixedClock | None = None, **more: float
) -> MetadataLog:
    log, _ = only_voter(
        disk.files(), StepExecutor(), clock or FixedClock(), snapshot_bytes=snapshot_bytes, **more
    )
    return log


@pytest.mark.parametrize("power", [False, True])
def test_one_voter_takes_snapshots_and_starts_from_them(*, power: bool) -> None:
    async def run() -> None:
        disk = SimDisk(1)
        log = open_single(disk)
        for number in range(200):
            await log.commit([setting("n", str(number)), setting(f"s{number % 7}", str(number))])
        expected = log.image.broker_configs
        snapshots = list_snapshots(disk.files(), FOLDER)
        assert len(snapshots) == 2
        assert log.log.log_start_offset == snapshots[0].end_offset
        assert len(log.log.segments) <= 3
        (disk.power_failure if power else disk.kill)()
        for _ in range(3):
            log = open_single(disk)
            assert log.image.broker_configs == expected
            assert log.image.features == initial_levels()
            await log.commit()
            disk.kill()

    asyncio.run(run())


@pytest.mark.parametrize("interval_s", [3600, 0])
def test_a_snapshot_is_taken_of_what_is_old_too(interval_s: int) -> None:
    async def run() -> None:
        disk, clock = SimDisk(1), FixedClock()
        log = open_single(disk, 1 << 30, clock=clock, snapshot_interval_s=interval_s)
        seconds = [0, 3599, 1, 1, 3598, 1]
        for number, passed in enumerate(seconds):
            clock.wall += passed * 1000
            await log.commit([setting("n", str(number))])
            await asyncio.sleep(0)
        await log.close()
        taken = [snapshot.end_offset for snapshot in list_snapshots(disk.files(), FOLDER)]
        end = log.next_offset
        assert taken == ([end - 3, end] if interval_s else [])

    asyncio.run(run())


def test_a_lost_log_below_its_snapshot_begins_there() -> None:
    async def run() -> None:
        disk = SimDisk(1)
        log = open_single(disk)
        for number in range(60):
            await log.commit([setting("count", str(number))])
        await log.close()
        (*_, newest) = list_snapshots(disk.files(), FOLDER)
        files = disk.files()
        for name in files.list(FOLDER):
            if not name.endswith(".checkpoint") and name != "quorum-state":
                files.remove(f"{FOLDER}/{name}")
        files.write_atomic(f"{FOLDER}/partition.metadata", b"version: 0\n")
        log = open_single(disk)
        assert log.log.log_start_offset == newest.end_offset
        assert log.image.leader_epoch > newest.epoch
        await log.commit([setting("more")])
        assert settings_in(log.image)["more"] == "1"

    asyncio.run(run())


def test_a_snapshot_of_the_last_epoch_is_refused() -> None:
    """No election can follow: the start ended in an assertion."""

    async def run() -> None:
        disk = SimDisk(1)
        log = open_single(disk)
        await log.commit([setting("n")])
        await log.close()
        builder = ImageBuilder(log.image)
        image = builder.build(
            offset=log.image.offset + 1, leader_epoch=(1 << 31) - 1, controller_id=-1
        )
        snapshot, data = encode_snapshot(image, NOW_MS)
        disk.files().write_atomic(f"{FOLDER}/{snapshot.file_name}", data)
        with pytest.raises(QuorumStateError, match="ends in epoch 2147483647, which no election"):
            open_single(disk)

    asyncio.run(run())


def test_only_names_of_snapshots_are_taken_for_snapshots() -> None:
    files = SimDisk(1).files()
    files.make_dirs("f")
    names = ["0" * 20 + "-0000000001", "0" * 20 + "-1", "0" * 20 + "-" + "1" * 300, "1-0000000001"]
    for name in names:
        files.write_atomic(f"f/{name[:200]}.checkpoint", b"")
    assert list_snapshots(files, "f") == [SnapshotId(0, 1)]


def test_a_follower_that_is_too_far_behind_gets_the_snapshot() -> None:
    async def story(world: QuorumWorld) -> None:
        for node in world.nodes.values():
            node.options["snapshot_bytes"] = 1500
        await world.start()
        leader = await world.elected()
        behind = next(node for node in world.live if node is not leader)
        behind.kill(power=True)
        for number in range(120):
            await leader.commit(f"s{number}")
        start = leader.metadata.log.log_start_offset
        assert start > 10
        await behind.start()
        await world.until(world.is_settled)
        assert len(behind.settings) == 120
        assert behind.settings == leader.settings
        assert behind.metadata.log.log_start_offset >= start
        for node in list(world.live):
            node.kill(power=True)
        for node in world.nodes.values():
            await node.start()
        leader = await world.elected()
        await leader.commit("last")
        await world.until(world.is_settled)
        assert all(len(node.settings) == 121 for node in world.live)

    simulate(story, 3)


def test_a_snapshot_of_a_newer_epoch_replaces_a_longer_log_after_a_crash() -> None:
    """The crash came between the snapshot and the cut of what diverges: it was never cut."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        await world.until(world.is_settled)
        image = leader.metadata.image
        newer = ImageBuilder(image).build(
            offset=image.offset - 1, leader_epoch=image.leader_epoch + 1, controller_id=-1
        )
        snapshot, data = encode_snapshot(newer, NOW_MS)
        leader.kill()
        files = leader.disk.files()
        files.write_atomic(f"{FOLDER}/{snapshot.file_name}", data)
        files.remove(f"{FOLDER}/durable-end-offset")
        await leader.start()
        log = leader.metadata.log
        assert log.log_start_offset == log.log_end_offset == snapshot.end_offset
        assert leader.metadata.log_end() == (snapshot.epoch, snapshot.end_offset)
        leader.kill()
        await leader.start()
        assert leader.metadata.log_end() == (snapshot.epoch, snapshot.end_offset)

    simulate(story)


@pytest.mark.parametrize("seed", range(10))
def test_snapshots_under_kills(seed: int) -> None:
    async def story(world: QuorumWorld) -> None:
        done: list[str] = []
        for node in world.nodes.values():
            node.options["snapshot_bytes"] = 1000
        await world.start()
        for number in range(8):
            leader = await world.elected()
            for part in range(12):
                await leader.commit(f"s{number}.{part}")
                done.append(f"s{number}.{part}")
            victim = list(world.nodes.values())[number % 3]
            victim.kill(power=bool(seed % 2))
            leader = await world.elected()
            for part in range(20, 40):
                await leader.commit(f"s{number}.{part}")
                done.append(f"s{number}.{part}")
            await victim.start()
            await world.until(world.is_settled)
        for node in world.live:
            assert node.settings.keys() >= set(done)
        assert world.live[0].metadata.log.log_start_offset > 0

    simulate(story, seed)
