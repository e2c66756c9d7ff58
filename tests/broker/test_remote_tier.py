"""The remote tier over real sockets: what Apache Kafka's integration tests ask of it, without
reading (kafka-tests: OffloadAndConsumeFromLeader, DeleteSegmentsByRetention…, DeleteTopic,
RollAndOffloadActiveSegment, DeleteSegmentsDueToLogStartOffsetBreach, DisableRemoteLogOnTopic)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.clusters import run, until
from support.tiered_cluster import segmented, tiered_cluster

if TYPE_CHECKING:
    from pathlib import Path


def values(first: int, last: int) -> list[str]:
    """`v0` … with the last one included."""
    return [f"v{number}" for number in range(first, last + 1)]


def by_segment(per_segment: int, count: int) -> dict[int, list[str]]:
    """So many segments of so many records each."""
    return {
        base: values(base, base + per_segment - 1)
        for base in range(0, per_segment * count, per_segment)
    }


def test_segments_are_copied_then_deleted_locally_and_a_restart_knows_all(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", by_segment(1, 2), local_start=2)
            await it.create("b", 1, 1, **segmented(2))
            await it.produce("b", values(0, 4))
            await it.offloaded("b", by_segment(2, 2), local_start=4)
            ids = {
                topic: [each.segment_id for each in it.tier(1).metadata.segments(tiered.partition)]
                for (topic, _), tiered in it.tier(1).partitions.items()
            }
            copies = it.faults.count("copy")
            assert copies == 4
            await it.node(1).stop()
            await it.node(1).start()
            for topic, start in (("a", 2), ("b", 4)):
                tiered = it.tiered(1, topic)
                await until(lambda one=tiered.partition: it.tier(1).metadata.is_ready(one))
                found = it.tier(1).metadata.segments(tiered.partition)
                assert [each.segment_id for each in found] == ids[topic]
                held = it.log(1, topic)
                await until(lambda held=held, end=start - 1: held.highest_remote_offset == end)
                assert (held.log_start_offset, held.local_log_start_offset) == (0, start)
            await it.produce("a", values(3, 3))
            await it.offloaded("a", by_segment(1, 3), local_start=3)
            assert it.faults.count("copy") == copies + 1, "nothing is copied twice"
            metadata = it.tier(1).metadata
            assert (metadata.unreadable, metadata.illegal) == (0, 0)

    run(test)


@pytest.mark.parametrize("limit", ["retention.bytes", "retention.ms"])
def test_remote_retention_deletes_remote_segments(tmp_path: Path, limit: str) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", values(0, 2))
            later = int(time.time() * 1000) + 3_600_000
            await it.produce("a", values(3, 3), timestamp=later)
            await it.offloaded("a", by_segment(1, 3), local_start=3)
            await it.alter("a", **{limit: "1"})
            await until(lambda: not it.remote_files("a"), "all is deleted")
            assert it.faults.count("delete") == 3
            held = it.log(1, "a")
            assert (held.log_start_offset, held.local_log_start_offset) == (3, 3)
            assert tuple(held.epochs.entries[0]) == (0, 3)
            partition = it.tiered(1, "a").partition
            await until(lambda: not it.tier(1).metadata.segments(partition))

    run(test)


def test_an_active_segment_beyond_local_retention_is_rolled_and_copied(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            settings = segmented(1, local_retention_ms="1")
            await it.create("a", 1, 1, **settings)
            await it.produce("a", values(0, 3))
            await it.offloaded("a", by_segment(1, 4), local_start=4)
            held = it.log(1, "a")
            assert (held.log_start_offset, held.log_end_offset) == (0, 4)
            assert held.size_in_bytes == 0

    run(test)


def test_a_deleted_topic_leaves_nothing_and_its_namesake_is_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 2, 2, **segmented(1))
            await it.create("other", 1, 2, **segmented(1))
            for index in range(2):
                await it.produce("a", values(0, 2), index)
                await it.offloaded("a", by_segment(1, 2), index=index, local_start=2)
            await it.produce("other", values(0, 1))
            await it.offloaded("other", by_segment(1, 1), local_start=1)
            leaders = [it.leader("a", index) for index in range(2)]
            await it.delete("a")
            await it.create("a", 2, 2, **segmented(1))  # at once, under the same name
            await it.produce("a", ["new0", "new1"])
            await it.offloaded("a", {0: ["new0"]}, local_start=1)
            await until(lambda: it.remote("a", 1) == {}, "nothing is left of the old one")
            deletes = [call for call in it.faults.calls if call[0] == "delete"]
            assert sorted(call[1] for call in deletes) == sorted(leaders * 2)
            assert it.remote("other") == by_segment(1, 1)
            for node in it.running():
                metadata = node.server.tier.metadata
                assert (metadata.unreadable, metadata.illegal) == (0, 0)

    run(test)


def test_leadership_moves_and_records_are_deleted_across_both_tiers(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 2, **segmented(2))
            await it.produce("a", values(0, 4))
            await it.offloaded("a", by_segment(2, 2), local_start=4)
            await it.delete_records("a", 0, 3)
            await until(lambda: list(it.remote("a")) == [2], "what is below goes, 2-3 holds 3")
            first = it.leader("a")
            metadata, name = it.tier(first).metadata, it.tiered(first, "a").partition
            await until(lambda: [each.start_offset for each in metadata.segments(name)] == [2])
            held = it.log(first, "a")
            assert tuple(held.epochs.entries[0]) == (0, 3)
            await it.node(first).stop()
            await until(lambda: it.leader("a") not in (-1, first))
            second = it.leader("a")
            await it.produce("a", values(5, 9))
            expected = {base: each for base, each in by_segment(2, 4).items() if base >= 2}
            await it.offloaded("a", expected, local_start=8)
            assert it.faults.count("copy", second) == 2
            await it.delete_records("a", 0, 7)
            await until(lambda: list(it.remote("a")) == [6])
            assert it.faults.count("delete", second) == 2

    run(test)


def test_a_topic_leaves_the_remote_tier_and_comes_back(tmp_path: Path) -> None:
    """KIP-950, both policies."""

    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", by_segment(1, 2), local_start=2)
            await it.alter(
                "a",
                remote_log_copy_disable="true",
                local_retention_bytes="-2",
                local_retention_ms="-2",
            )
            await it.produce("a", values(3, 3))
            await it.delete_records("a", 0, 1)
            await until(lambda: list(it.remote("a")) == [1], "expiration goes on")
            assert it.faults.count("copy") == 2
            await it.alter("a", remote_log_copy_disable="false", local_retention_bytes="1")
            await it.offloaded("a", {1: ["v1"], 2: ["v2"]}, local_start=3)  # copying goes on
            await it.alter("a", remote_storage_enable="false", remote_log_delete_on_disable="true")
            await until(lambda: not it.remote_files("a"), "the remote part is deleted")
            logs = [it.log(node.node_id, "a") for node in it.running() if it.holds(node, "a")]
            assert len(logs) == 2
            for held in logs:
                start = held.local_log_start_offset
                assert start == 3
                assert (held.log_start_offset, held.highest_remote_offset) == (start, -1)
            await it.alter("a", remote_storage_enable="true")
            await it.produce("a", values(4, 4))
            await it.offloaded("a", {3: ["v3"]}, local_start=4)

    run(test)
