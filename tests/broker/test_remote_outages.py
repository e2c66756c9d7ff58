"""A remote store that is away, slow, wrong or in the way of a stop: what a broker does meanwhile,
and afterwards (tiered-storage.md 4, 6, 16, 19)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import FAST, consume, in_thread, run, until
from support.tiered_cluster import SETTINGS, segmented, tiered_cluster
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name
from tidelog.start_error import StartError
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
    SegmentState,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support.tiered_cluster import TieredCluster
    from tidelog_storage.remote.api import RemoteSegment

STARTED, FINISHED, DELETING, DELETED = SegmentState


def known(it: TieredCluster, node_id: int, topic: str = "a") -> list[RemoteSegment]:
    tiered = it.tiered(node_id, topic)
    try:
        return list(it.tier(node_id).metadata.segments(tiered.partition))
    except RemoteStorageNotReady:
        return []


def count(it: TieredCluster, name: str) -> float:
    meters = it.node(1).server.meters
    return float(meters.count(Name(*BROKER_TOPIC_METRICS, name), topic="a"))


def one_each(last: int) -> dict[int, list[str]]:
    return {offset: [f"v{offset}"] for offset in range(last + 1)}


def test_a_store_that_hangs_holds_up_neither_producers_nor_the_stop(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            faults = it.faults
            faults.gate.clear()
            try:
                await it.create("a", 1, 1, **segmented(1))
                await it.produce("a", ["v0", "v1"])
                await until(lambda: faults.waiting, "a copy hangs")
                await it.produce("a", ["v2", "v3"])
                values = await in_thread(consume, it.bootstrap, "a")
                assert values == [b"v0", b"v1", b"v2", b"v3"]
                assert it.log(1, "a").local_log_start_offset == 0, "nothing is deleted"
                async with asyncio.timeout(30):  # the store hangs for longer
                    await it.node(1).stop()
                assert faults.waiting == 1
            finally:
                faults.gate.set()
            await until(lambda: not faults.waiting)
            await it.node(1).start()
            await until(lambda: it.log(1, "a").highest_remote_offset == 2)
            await until(lambda: it.log(1, "a").local_log_start_offset == 3)
            finished = [each for each in known(it, 1) if each.state is FINISHED]
            assert [each.start_offset for each in finished] == [0, 1, 2]

    run(test)


def test_a_copy_that_fails_is_deleted_and_tried_again_later(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            faults = it.faults
            faults.errors = {verb: RemoteStorageError(verb) for verb in ("copy", "delete")}
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await until(lambda: count(it, "RemoteDeleteErrorsPerSec") >= 1)
            assert DELETING in [each.state for each in known(it, 1)]
            del faults.errors["delete"]
            await until(lambda: faults.count("copy") >= 2, "it is tried again, by a new id")
            assert it.log(1, "a").local_log_start_offset == 0
            faults.errors.clear()
            await it.offloaded("a", one_each(0), local_start=1)
            await until(lambda: [each.state for each in known(it, 1)] == [FINISHED])
            assert count(it, "RemoteCopyErrorsPerSec") >= 2
            size = known(it, 1)[0].size
            assert count(it, "RemoteCopyBytesPerSec") == size

    run(test)


def test_a_store_that_is_away_for_a_while_leaves_the_copy_as_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            faults = it.faults
            faults.errors["copy"] = RetriableRemoteStorageError("away")
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await until(lambda: "a-0 is not copied" in caplog.text, "somebody is told")
            size = it.log(1, "a").segments.first.size
            assert f"({size} bytes in 1 segments wait on the local disk): away" in caplog.text
            assert {each.state for each in known(it, 1)} == {STARTED}
            assert count(it, "RemoteCopyErrorsPerSec") == 0
            faults.errors.clear()
            await it.offloaded("a", one_each(0), local_start=1)
            await until(lambda: "a-0 is copied again" in caplog.text)
            assert caplog.text.count("is not copied") == 1
            begun = {each.segment_id for each in known(it, 1) if each.state is STARTED}
            assert begun, "it goes with the retention of its offsets"
            await it.produce("a", ["v2"])
            await it.delete_records("a", 0, 1)
            await until(lambda: [each.start_offset for each in known(it, 1)] == [1])

    run(test)


def test_deletions_that_may_pass_are_no_failures_and_what_is_not_there_is_deleted(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            faults = it.faults
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await it.offloaded("a", one_each(0), local_start=1)
            faults.errors["delete"] = RetriableRemoteStorageError("away")
            await it.delete_records("a", 0, 1)
            await until(lambda: faults.count("delete") >= 2)
            assert [each.state for each in known(it, 1)] == [DELETING]
            assert count(it, "RemoteDeleteRequestsPerSec") >= 2
            assert count(it, "RemoteDeleteErrorsPerSec") == 0
            faults.errors["delete"] = RemoteResourceNotFound("a store of somebody else's")
            await until(lambda: known(it, 1) == [], "its metadata is at the end too")
            assert count(it, "RemoteDeleteErrorsPerSec") == 0

    run(test)


def test_a_topics_deletion_goes_on_past_what_a_store_has_no_more(tmp_path: Path) -> None:
    """It ended at its first segment, until the remover came by."""

    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await it.offloaded("a", one_each(1), local_start=2)
            it.faults.errors["delete"] = RemoteResourceNotFound("a store of somebody else's")
            await it.delete("a")
            await until(lambda: it.faults.count("delete") == 2, "each segment is deleted once")

    run(test)


def test_too_much_custom_metadata_ends_copying_until_leadership_changes(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            faults = it.faults
            faults.custom_metadata = b"x" * 129
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await until(lambda: it.tiered(1, "a").copier.has_given_up)
            await it.produce("a", ["v2"])
            assert faults.count("copy") == 1
            await until(lambda: known(it, 1) == [], "the copy is deleted again")
            assert not it.remote_files("a")
            faults.custom_metadata = b"x" * 128
            await it.node(1).stop()
            await it.node(1).start()
            await it.offloaded("a", one_each(1), local_start=2)
            assert [each.custom_metadata for each in known(it, 1)] == [b"x" * 128] * 2

    run(test)


def test_a_failed_remote_delete_is_repeated_and_the_segment_is_not_read(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await it.offloaded("a", one_each(1), local_start=2)
            it.faults.errors["delete"] = RemoteStorageError("no")
            await it.delete_records("a", 0, 2)
            await until(lambda: DELETING in [each.state for each in known(it, 1)])
            assert it.log(1, "a").log_start_offset == 2
            await until(lambda: it.faults.count("delete") >= 2)
            assert it.remote("a") == one_each(1)
            it.faults.errors.clear()
            await until(lambda: not it.remote_files("a"))
            await until(lambda: known(it, 1) == [])

    run(test)


def test_the_remover_finishes_what_the_leader_could_not_delete(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"remote.partition.remover.task.interval.ms": "300"}
        async with tiered_cluster(tmp_path, 3, **settings) as it:
            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await it.offloaded("a", one_each(1), local_start=2)
            it.faults.errors["delete"] = RemoteStorageError("no")
            await it.delete("a")
            await until(lambda: it.faults.count("delete") >= 4, "others have tried as well")
            assert it.remote("a") == one_each(1)
            it.faults.errors.clear()
            await until(lambda: not it.remote_files("a"))
            for node in it.running():
                metadata = node.server.tier.metadata
                assert (metadata.unreadable, metadata.illegal) == (0, 0)

    run(test)


def test_a_deletion_that_a_stop_has_ended_goes_on_afterwards(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await it.offloaded("a", one_each(1), local_start=2)
            it.faults.gate.clear()
            try:
                await it.delete("a")
                await until(lambda: it.faults.waiting, "a delete hangs")
                it.faults.errors["delete"] = RemoteStorageError("not this one")
                await it.node(1).stop()
            finally:
                it.faults.gate.set()
            await until(lambda: not it.faults.waiting)
            it.faults.errors.clear()
            assert it.remote("a") == one_each(1)
            await it.node(1).start()
            await until(lambda: not it.remote_files("a"))

    run(test)


def test_a_leader_that_dies_in_the_middle_of_a_copy_leaves_no_hole(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3, **FAST) as it:
            await it.create("a", 1, 3, **segmented(1))
            it.faults.gate.clear()
            try:
                await it.produce("a", ["v0", "v1"])
                await until(lambda: it.faults.waiting)
                first = it.leader("a")
                await it.node(first).kill()
                await until(lambda: it.leader("a") not in (-1, first))
                second = it.leader("a")
                await it.produce("a", ["v2", "v3"])
                await until(lambda: it.faults.count("copy", second))
            finally:
                it.faults.gate.set()
            await until(lambda: it.log(second, "a").local_log_start_offset == 3)
            finished = [each for each in known(it, second) if each.state is FINISHED]
            assert [each.start_offset for each in finished] == [0, 1, 2]
            assert {each.broker_id for each in finished} == {second}
            await it.node(first).start()
            await until(lambda: it.log(first, "a").local_log_start_offset == 3)

    run(test)


def test_a_deposed_leader_finishes_its_copy(tmp_path: Path) -> None:
    """And no other is begun by it."""

    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 3, **segmented(1))
            it.faults.gate.clear()
            try:
                await it.produce("a", ["v0", "v1", "v2"])
                await until(lambda: it.faults.waiting)
                first = it.leader("a")
                tiered = it.tiered(first, "a")
                tiered.follow(tiered.replica)  # as when another broker is elected
                assert not tiered.leads
            finally:
                it.faults.gate.set()
            await until(lambda: [each.state for each in known(it, first)] == [FINISHED])
            await until(lambda: it.log(first, "a").highest_remote_offset == 0)
            assert it.faults.count("copy") == 1
            tiered.lead(tiered.replica)
            await it.offloaded("a", one_each(1), local_start=2)
            assert it.faults.count("copy") == 2

    run(test)


def test_the_copy_quota_holds_copies_back_until_it_is_raised(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"remote.log.manager.copy.max.bytes.per.second": "1"}
        async with tiered_cluster(tmp_path, **settings) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2", "v3"])
            await until(lambda: it.faults.count("copy") == 1, "the first is free")
            await asyncio.sleep(0.5)
            assert it.faults.count("copy") == 1
            await it.alter_brokers(remote_log_manager_copy_max_bytes_per_second=str(1 << 40))
            await it.offloaded("a", one_each(2), local_start=3)

    run(test)


@pytest.mark.parametrize(
    "clients",
    [
        {},
        {"max.partition.fetch.bytes": "0", "fetch.max.wait.ms": "50", "retry.backoff.ms": "10"},
    ],
    ids=["unset", "set"],
)
def test_metadata_partitions_led_elsewhere_serve_as_well(
    tmp_path: Path, clients: dict[str, str]
) -> None:
    """One replica each: most brokers have none of a partition, and ask its leader, however they are
    told to."""

    async def test() -> None:
        rlmm = "rlmm.config.remote.log.metadata"
        settings = {
            f"{rlmm}.topic.replication.factor": "1",
            f"{rlmm}.topic.min.isr": "1",
            **{f"{rlmm}.common.client.{name}": text for name, text in clients.items()},
        }
        async with tiered_cluster(tmp_path, 3, **settings) as it:
            await it.create("a", 6, 2, **segmented(1))
            for index in range(6):
                await it.produce("a", ["v0", "v1", "v2"], index)
            for index in range(6):
                await it.offloaded("a", one_each(1), index=index, local_start=2)
            await it.delete("a")
            await until(lambda: not it.remote_files("a"))
            for node in it.running():
                metadata = node.server.tier.metadata
                assert (metadata.unreadable, metadata.illegal) == (0, 0)

    run(test)


# -- starting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"remote.log.storage.manager.class.name": "nowhere.Store"}, "no class nowhere.Store"),
        ({"remote.log.storage.manager.class.name": "json:nothing"}, "no class json:nothing"),
        ({"remote.log.storage.manager.class.name": "json.dumps"}, "json.dumps is not a class"),
        ({"remote.log.storage.manager.class.name": "Store"}, "no class Store"),
        (
            {
                "remote.log.storage.manager.class.name": (
                    "tidelog_storage.remote.directory_store:DirectoryStore"
                ),
                "rsm.config.dir": "",
            },
            "rsm.config.dir",
        ),
        (
            {"rlmm.config.remote.log.metadata.topic.num.partitions": "many"},
            "rlmm.config.remote.log.metadata.topic.num.partitions: 'many' is not a number",
        ),
        (
            {"rlmm.config.remote.log.metadata.producer.retry.backoff.ms": "-1"},
            "rlmm.config.remote.log.metadata.producer.retry.backoff.ms: -1 is below 0",
        ),
    ],
)
def test_a_tier_that_cannot_be_had_is_said_in_one_line(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    async def test() -> None:
        with pytest.raises(StartError) as caught:
            async with tiered_cluster(tmp_path, **settings):
                pass
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    run(test)


def test_the_number_of_metadata_partitions_never_changes(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:  # and no topic in the tier
            await until(lambda: "__remote_log_metadata" in it.node(1).server.metadata.image.topics)
        more = {"rlmm.config.remote.log.metadata.topic.num.partitions": "6"}
        with pytest.raises(StartError, match=r"has 5 partitions, and .* is 6"):
            async with tiered_cluster(tmp_path, **more):
                pass

    run(test)


def test_kafkas_own_names_mean_what_we_have(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {
            **SETTINGS,
            "remote.log.storage.system.enable": True,
            "remote.log.storage.manager.class.name": (
                "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
            ),
            "rsm.config.dir": f"{tmp_path}/tier",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        }
        async with tidelog.Cluster(settings, data_dir=f"{tmp_path}/data") as cluster:
            tier = cluster.brokers[0].server.tier
            assert type(tier.storage).__name__ == "DirectoryStore"
            assert type(tier.metadata).__name__ == "TopicBasedMetadata"

    run(test)
