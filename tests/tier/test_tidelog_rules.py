"""Where the specification of the tiers has tidelog depart from Kafka: each rule on a live cluster.

| Rule (tiered-storage.md) | Played here, or in |
|---|---|
| 3: a copy under way at a change of leader is finished, no other is begun | broker/test_remote_outages |
| 6: an empty cleanup.policy keeps the remote part for ever | here |
| 7: of overlapping segments the one that reaches furthest is read | test_scenarios: kip405-s5 |
| 7: a read ends where the epoch ends in the lineage | test_scenarios: kip405-s3, kip405-s4 |
| 7: a dead branch stays until its epochs have left the lineage | test_scenarios: kip405-s4, kip405-s5 |
| 10: a value that nobody can read is counted and passed over | here |
| 10: saved metadata is checked, and read again from the topic | broker/test_tiered_followers: lost checkpoints |
| 11: a follower's log is left alone until the auxiliary state is there | here |
| 13: all remote partitions of a fetch are read at once | here |
| 16: deletion is marked first, the leader begins, the remover finishes | test_scenarios: topic-deletion |
| 21: a read that may heal is tried again while the wait lasts, then -1 | here |
| 21: several log directories | test_kafka_log_dirs |

`test_scenarios` is played in one process and isolated, and the same vectors in sim/test_scenarios.
"""  # noqa: E501 - a table

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.clusters import consume, image_of, in_thread, run, until
from support.tiered_cluster import segmented, tiered_cluster
from support.wire_client import WireClient
from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.remote.api import RemoteStorageError, RetriableRemoteStorageError

if TYPE_CHECKING:
    from pathlib import Path

    from support.tiered_cluster import TieredCluster


def one_each(last: int) -> dict[int, list[str]]:
    return {offset: [f"v{offset}"] for offset in range(last + 1)}


async def consumed(it: TieredCluster, topic: str) -> list[str]:
    return [value.decode() for value in await in_thread(consume, it.bootstrap, topic)]


async def fetch(it: TieredCluster, topic: str, partitions: int) -> list[Any]:
    """One Fetch from the beginning of each partition, of the only broker."""
    request_topic = FetchRequest.FetchTopic
    asked = [
        request_topic.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[request_topic(topic=topic, partitions=asked)]
    )
    async with await WireClient.connect(it.bootstrap) as client:
        answer = await client.ask(request, 12)
    return sorted(answer.responses[0].partitions, key=lambda data: data.partition_index)


def test_an_empty_cleanup_policy_keeps_the_remote_part(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            settings = segmented(1, retention_ms="1")
            await it.create("kept", 1, 1, **settings, cleanup_policy="")
            await it.produce("kept", ["v0", "v1", "v2"], timestamp=1)
            await it.offloaded("kept", one_each(2), local_start=3)
            await it.create("deleted", 1, 1, **settings)  # tended in the same way, and later
            await it.produce("deleted", ["v0", "v1", "v2"], timestamp=1)
            log = it.log(1, "deleted")
            await until(lambda: log.log_start_offset == 3 and not it.remote_files("deleted"))
            assert it.remote("kept") == one_each(2)
            assert it.log(1, "kept").log_start_offset == 0
            assert await consumed(it, "kept") == ["v0", "v1", "v2"]
            await it.delete_records("kept", 0, 2)
            await until(lambda: it.remote("kept") == {2: ["v2"]}, "what nobody may read goes")

    run(test)


def test_unreadable_metadata_is_passed_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await it.offloaded("a", one_each(0), local_start=1)
            replicas = it.node(1).server.replicas
            for index in range(
                len(image_of(it.node(1)).topics[REMOTE_LOG_METADATA_TOPIC].partitions)
            ):
                held = replicas.partition(REMOTE_LOG_METADATA_TOPIC, index)
                for value in (b"", b"\x01\x63\x00", b"\x01\x00\x00junk"):
                    junk = bytearray(build_batch([Record(0, 1, None, value)]))
                    held.append(memoryview(junk), acks=1, now_ms=1)
            await it.produce("a", ["v2"])
            await it.offloaded("a", one_each(1), local_start=2)
            assert it.tier(1).metadata.unreadable == 3
            await it.node(1).kill()
            await it.node(1).start()
            await until(lambda: it.leader("a") == 1)
            assert await consumed(it, "a") == ["v0", "v1", "v2"]

    run(test)


def test_a_follower_keeps_what_it_has_until_the_tier_answers(tmp_path: Path) -> None:
    """Kafka cuts the log first."""

    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:

            def in_sync() -> set[int]:
                partition = image_of(it.running()[0]).partition("a", 0)
                return set() if partition is None else set(partition.isr)

            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", ["v0"])
            first = it.leader("a")
            (second,) = in_sync() - {first}
            await until(lambda: it.log(second, "a").log_end_offset == 1)
            await it.node(second).stop()
            await until(lambda: in_sync() == {first})
            await it.produce("a", [f"v{n}" for n in range(1, 5)])
            await it.offloaded("a", one_each(3), local_start=4)
            it.faults.errors["fetch_index"] = RemoteStorageError("away")
            await it.node(second).start()
            await until(lambda: it.faults.count("fetch_index", second) > 2, "tried again and again")
            log = it.log(second, "a")
            assert (log.local_log_start_offset, log.log_end_offset) == (0, 1)
            assert in_sync() == {first}
            it.faults.errors.clear()
            await until(lambda: in_sync() == {first, second})
            assert (log.log_start_offset, log.local_log_start_offset) == (0, 4)

    run(test)


def test_all_remote_partitions_of_a_fetch_are_read_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, remote_fetch_max_wait_ms="120000") as it:
            await it.create("a", 3, 1, **segmented(1))
            for index in range(3):
                await it.produce("a", ["v0", "v1"], index)
                await it.offloaded("a", one_each(0), index=index, local_start=1)
            it.faults.gate.clear()
            try:
                asked = asyncio.ensure_future(fetch(it, "a", 3))
                await until(lambda: it.faults.waiting == 3, "three reads are under way")
            finally:
                it.faults.gate.set()
            found = await asked
            assert [data.error_code for data in found] == [ErrorCode.NONE] * 3
            assert all(b"v0" in bytes(data.records) for data in found)

    run(test)


def test_a_read_that_may_heal_is_tried_while_the_wait_lasts(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, remote_fetch_max_wait_ms="100") as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await it.offloaded("a", one_each(0), local_start=1)
            it.faults.errors["fetch"] = RetriableRemoteStorageError("for too long")
            while not (late := (await fetch(it, "a", 1))[0]).error_code:
                assert not late.records, "no try had ended when the wait was over"
            assert late.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            await it.alter_brokers(remote_fetch_max_wait_ms="120000")
            await until(lambda: it.tier(1).reads.fetch_wait_ms == 120_000)
            it.faults.errors["fetch"] = RemoteStorageError("for good")
            (told,) = await fetch(it, "a", 1)
            assert told.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            it.faults.errors["fetch"] = RetriableRemoteStorageError("for a while")
            before = it.faults.count("fetch")
            asked = asyncio.ensure_future(fetch(it, "a", 1))
            await until(lambda: it.faults.count("fetch") > before + 1, "tried again")
            it.faults.errors.clear()
            (healed,) = await asked
            assert healed.error_code == ErrorCode.NONE
            assert b"v0" in bytes(healed.records)

    run(test)
