"""A remote store that says it has copied, and has not: nothing local goes that is not there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.clusters import consume, in_thread, run, until
from support.tiered_cluster import segmented, tiered_cluster
from tidelog_storage.remote.api import (
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
    SegmentState,
)
from tidelog_storage.remote.layout import LOG_ENDING, folder_name, object_name

if TYPE_CHECKING:
    from pathlib import Path

    from support.tiered_cluster import TieredCluster
    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles
    from tidelog_storage.remote.directory_store import DirectoryStore

FINISHED = SegmentState.COPY_SEGMENT_FINISHED


def nothing(_store: DirectoryStore, _segment: RemoteSegment, _data: SegmentFiles) -> None:
    """Not a byte is copied."""


def cut_short(store: DirectoryStore, segment: RemoteSegment, data: SegmentFiles) -> None:
    """All but the last byte."""
    store.copy_segment(segment, data)
    folder = f"{store._directory}/{folder_name(segment.topic_id_partition)}"
    os.truncate(f"{folder}/{object_name(segment, LOG_ENDING)}", segment.size - 1)


def known(it: TieredCluster) -> list[RemoteSegment]:
    try:
        return list(it.tier(1).metadata.segments(it.tiered(1, "a").partition))
    except RemoteStorageNotReady:
        return []


@pytest.mark.parametrize("lie", [nothing, cut_short])
def test_what_a_store_does_not_give_back_stays_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lie: object
) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            faults = it.faults
            faults.lie = lie
            faults.custom_metadata = b"where it is"
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await until(lambda: faults.count("copy") >= 2, "it is tried again, by a new id")
            assert "does not return it" in caplog.text
            assert FINISHED not in [each.state for each in known(it)]
            log = it.log(1, "a")
            assert (log.highest_remote_offset, log.local_log_start_offset) == (-1, 0)
            assert it.tiered(1, "a").copier.lag()[1] == 2
            values = await in_thread(consume, it.bootstrap, "a")
            assert values == [b"v0", b"v1", b"v2"]
            faults.lie = None
            await it.offloaded("a", {0: ["v0"], 1: ["v1"]}, local_start=2)
            await until(lambda: [each.state for each in known(it)] == [FINISHED] * 2)
            assert it.tiered(1, "a").copier.lag() == (0, 0)
            values = await in_thread(consume, it.bootstrap, "a")
            assert values == [b"v0", b"v1", b"v2"]

    run(test)


def test_a_copy_that_is_seen_a_moment_later_is_not_copied_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            it.faults.errors["look"] = RetriableRemoteStorageError("away for a moment")
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await it.offloaded("a", {0: ["v0"]}, local_start=1)
            assert it.faults.count("copy") == it.faults.count("look") == 1
            assert it.faults.count("fetch") == 1

    run(test)
