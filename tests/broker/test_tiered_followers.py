"""Replicas of tiered partitions over real sockets: they come, fall behind, lose files, and lead.

kafka-tests: ReassignReplicaExpand, FetchFromLeaderWithCorruptedCheckpoint; KIP-405 scenarios 1 and
2, KIP-1023.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import consume, image_of, in_thread, run, until
from support.tiered_cluster import segmented, tiered_cluster
from support.wire_client import WireClient
from tidelog_protocol.messages.cluster_admin import AlterPartitionReassignmentsRequest
from tidelog_storage.remote.api import RetriableRemoteStorageError

if TYPE_CHECKING:
    from support.tiered_cluster import TieredCluster
    from tidelog_storage.log import Log


def values(first: int, last: int) -> list[str]:
    return [f"v{number}" for number in range(first, last + 1)]


def one_each(last: int) -> dict[int, list[str]]:
    return {offset: [f"v{offset}"] for offset in range(last + 1)}


def starts(log: Log) -> tuple[int, int, int]:
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def in_sync(it: TieredCluster, topic: str) -> set[int]:
    partition = image_of(it.running()[0]).partition(topic, 0)
    assert partition is not None
    return set(partition.isr)


async def consumed(it: TieredCluster, topic: str) -> list[str]:
    return [value.decode() for value in await in_thread(consume, it.bootstrap, topic)]


async def reassign(it: TieredCluster, topic: str, *replicas: int) -> None:
    asked = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = asked.ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=20_000, topics=[asked(name=topic, partitions=[partition])]
    )
    async with await WireClient.connect(it.running()[0].bootstrap_server) as client:
        response = await client.ask(request, 0)
    assert response.error_code == response.responses[0].partitions[0].error_code == 0


def others(it: TieredCluster, node_id: int) -> int:
    return next(node.node_id for node in it.running() if node.node_id != node_id)


async def lead_elsewhere(it: TieredCluster, topic: str) -> int:
    """The leader stops; who leads now."""
    first = it.leader(topic)
    await it.node(first).stop()
    await until(lambda: it.leader(topic) not in (-1, first))
    return it.leader(topic)


def test_a_new_replica_begins_behind_the_remote_part_and_leads(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            first = it.leader("a")
            second = others(it, first)
            await reassign(it, "a", first, second)
            await until(lambda: in_sync(it, "a") == {first, second})
            log = it.log(second, "a")
            assert starts(log) == starts(it.log(first, "a")) == (0, 2, 3)
            assert log.epochs.entries == it.log(first, "a").epochs.entries
            assert 2 in log.producers.snapshots
            assert await lead_elsewhere(it, "a") == second
            await it.produce("a", values(3, 3))
            await it.offloaded("a", one_each(2), local_start=3)
            fetched = it.faults.count("fetch", second)
            assert await consumed(it, "a") == values(0, 3)
            assert it.faults.count("fetch", second) > fetched

    run(test)


def test_a_replica_that_fell_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", values(0, 0))
            first = it.leader("a")
            (second,) = in_sync(it, "a") - {first}
            await it.node(second).stop()
            await until(lambda: in_sync(it, "a") == {first})
            await it.produce("a", values(1, 4))
            await it.offloaded("a", one_each(3), local_start=4)
            await it.node(second).start()
            await until(lambda: in_sync(it, "a") == {first, second})
            assert starts(it.log(second, "a")) == (0, 4, 5)
            assert await lead_elsewhere(it, "a") == second
            assert await consumed(it, "a") == values(0, 4)

    run(test)


def test_while_the_store_is_away_a_new_replica_stays_out_of_sync(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            first = it.leader("a")
            second = others(it, first)
            it.faults.errors["fetch_index"] = RetriableRemoteStorageError("away")
            await reassign(it, "a", first, second)
            await until(lambda: it.faults.count("fetch_index", second) > 3, "tried again and again")
            assert in_sync(it, "a") == {first}
            assert starts(it.log(second, "a")) == (0, 0, 0), "left alone"
            await it.produce("a", values(3, 3))
            it.faults.errors.clear()
            await until(lambda: in_sync(it, "a") == {first, second})
            assert it.log(second, "a").log_end_offset == 4

    run(test)


def test_a_replica_that_cannot_begin_behind_a_damaged_segment_has_it_copied_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def cut_snapshot(it: TieredCluster, start: int) -> None:
        (path,) = Path(it.store).rglob(f"{start:020d}-*.snapshot")
        path.write_bytes(path.read_bytes()[:-1])

    def damaged_offsets(node: Any) -> dict[str, float]:
        gauges = dict(node.server.meters.gauges())
        samples = gauges["kafka.log.remote", "RemoteLogManager", "DamagedOffsets"]
        return {dict(each.labels)["topic"]: each.value for each in samples}

    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            first = it.leader("a")
            second = others(it, first)
            cut_snapshot(it, 1)
            await reassign(it, "a", first, second)
            await until(lambda: "This replica cannot follow" in caplog.text)
            assert "a-0: remote segment 1..1: " in caplog.text
            assert damaged_offsets(it.node(second)) == {"a": 1}
            # The leader hears of it, as the follower asks again and again where it may begin.
            await until(lambda: in_sync(it, "a") == {first, second})
            assert damaged_offsets(it.node(second)) == {}
            assert caplog.text.count("This replica cannot follow") == 1

    run(test)


def test_an_empty_replica_leaves_out_all_that_is_remote(tmp_path: Path) -> None:
    """KIP-1023: also what the leader still has locally."""

    async def test() -> None:
        enabled = {"follower_fetch_last_tiered_offset_enable": "true"}
        async with tiered_cluster(tmp_path, 3, **enabled) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            await it.alter("a", **{"local.retention.bytes": "-1"})
            await it.produce("a", values(3, 6))
            await it.offloaded("a", one_each(5), local_start=2)
            first = it.leader("a")
            second = others(it, first)
            await until(lambda: it.log(first, "a").highest_remote_offset == 5)
            await reassign(it, "a", first, second)
            await until(lambda: in_sync(it, "a") == {first, second})
            assert starts(it.log(second, "a")) == (0, 6, 7)
            assert await lead_elsewhere(it, "a") == second
            assert await consumed(it, "a") == values(0, 6)

    run(test)


@pytest.mark.parametrize("folder", ["both", "leader"])
def test_checkpoints_that_are_lost(tmp_path: Path, folder: str) -> None:
    """`log-start-offset-checkpoint` is enough to know the remote part."""

    def damage(node: Any) -> None:
        (directory,) = node.config.log_directories()
        for name in (
            "replication-offset-checkpoint",
            "recovery-point-offset-checkpoint",
            ".kafka_cleanshutdown",
        ):
            (Path(directory) / name).unlink()

    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            first = it.leader("a")
            (second,) = in_sync(it, "a") - {first}
            await it.node(second).stop()
            await until(lambda: in_sync(it, "a") == {first})
            await it.node(first).stop()
            damage(it.node(first))
            if folder == "both":
                damage(it.node(second))
            await it.node(first).start()
            await it.node(second).start()
            await until(lambda: in_sync(it, "a") == {first, second})
            for node_id in (first, second):
                assert starts(it.log(node_id, "a")) == (0, 2, 3)
            await it.produce("a", values(3, 4))
            await it.offloaded("a", one_each(3), local_start=4)
            assert await consumed(it, "a") == values(0, 4)

    run(test)
