"""What is remote is deleted by one while another is at it: a former leader's copy that ends late,
and a topic that comes back while it is purged (KIP-950)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.clusters import run, until
from support.tiered_cluster import segmented, tiered_cluster
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.remote.api import SegmentState, SegmentUpdate

if TYPE_CHECKING:
    from pathlib import Path


def test_a_copy_that_ends_after_its_segment_was_deleted_is_taken_back(tmp_path: Path) -> None:
    """Seed 10099: the successor had deleted it; its objects were of no segment, and stayed."""

    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            it.faults.gate.clear()
            await it.produce("a", ["v0", "v1"])
            await until(lambda: it.faults.waiting == 1, "v0 is on its way")
            metadata, name = it.tier(1).metadata, it.tiered(1, "a").partition
            (begun,) = metadata.segments(name)
            for state in (
                SegmentState.DELETE_SEGMENT_STARTED,
                SegmentState.DELETE_SEGMENT_FINISHED,
            ):
                await metadata.update(SegmentUpdate(name, begun.segment_id, 2, 0, state))
            it.faults.gate.set()
            await it.offloaded("a", {0: ["v0"]}, local_start=1)
            assert it.faults.count("copy") == 2
            assert uuid_to_str(begun.segment_id.bytes) not in str(it.remote_files("a"))

    run(test)


def test_a_topic_that_comes_back_waits_for_the_end_of_its_purge(tmp_path: Path) -> None:
    """Seed 10199: the word that a segment goes was on its way, and retention counted on it."""

    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await it.offloaded("a", {0: ["v0"], 1: ["v1"]}, local_start=2)
            it.faults.gate.clear()
            await it.alter("a", remote_storage_enable="false", remote_log_delete_on_disable="true")
            await until(lambda: it.faults.waiting == 1, "the purge is at a segment")
            await it.alter("a", remote_storage_enable="true", remote_log_delete_on_disable="false")
            await it.produce("a", ["v3"])
            await asyncio.sleep(0.5)
            assert it.faults.calls[-1][0] == "delete", "nothing else is begun"
            it.faults.gate.set()
            await it.offloaded("a", {2: ["v2"]}, local_start=3)

    run(test)
