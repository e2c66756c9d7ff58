"""What a store answers to a copy goes with the segment to its end: in all events of the metadata
topic, and back to the store (Kafka: RemoteLogManager.deleteRemoteLogSegment, KIP-917)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.clusters import run, until
from support.tiered_cluster import segmented, tiered_cluster
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.remote.api import SegmentState, SegmentUpdate
from tidelog_storage.remote.metadata_records import decode

if TYPE_CHECKING:
    from pathlib import Path

    from support.tiered_cluster import TieredCluster

STARTED, FINISHED, DELETING, DELETED = SegmentState
WHERE = b"where it is"


def updates(it: TieredCluster) -> list[SegmentUpdate]:
    """Of all segments, as the metadata topic has them."""
    client = it.tier(1).metadata.client
    found = []
    for index in range(client.partition_count):
        offset = 0
        while (chunk := client.read_here(index, offset)) and chunk.next_offset > offset:
            offset = chunk.next_offset
            found += [decode(value) for _, value in chunk.records if value is not None]
    return [event for event in found if isinstance(event, SegmentUpdate)]


def count(it: TieredCluster, state: SegmentState) -> int:
    """Of segments that came to it."""
    return len({event.segment_id for event in updates(it) if event.state is state})


def test_every_event_of_a_segment_has_its_custom_metadata(tmp_path: Path) -> None:
    """Whether its offsets or its topic are deleted."""

    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            it.faults.custom_metadata = WHERE
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2", "v3"])
            await it.offloaded("a", {0: ["v0"], 1: ["v1"], 2: ["v2"]}, local_start=3)
            await it.delete_records("a", 0, 1)
            await until(lambda: count(it, DELETED) == 1, "the first is deleted")
            await it.delete("a")
            await until(lambda: count(it, DELETED) == 3, "the others are deleted")
            for state in (FINISHED, DELETING, DELETED):
                assert count(it, state) == 3
            assert {event.custom_metadata for event in updates(it)} == {WHERE}
            assert not it.remote_files("a")

    run(test)


@pytest.mark.parametrize(
    ("size", "is_cut", "is_deleted"),
    [
        (129, False, False),  # more than remote.log.metadata.custom.metadata.max.bytes
        (128, True, False),  # the log was cut meanwhile
        (128, False, True),  # who leads by now has deleted it, as far as there was anything
        (129, False, True),
    ],
)
def test_a_copy_is_undone_with_what_the_store_has_answered(
    tmp_path: Path, *, size: int, is_cut: bool, is_deleted: bool
) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            faults, tier = it.faults, it.tier(1)
            faults.custom_metadata = answer = b"x" * size
            faults.gate.clear()
            try:
                await it.create("a", 1, 1, **segmented(1))
                await it.produce("a", ["v0", "v1"])
                await until(lambda: faults.waiting, "a copy is under way")
                tiered = it.tiered(1, "a")
                (segment,) = tier.metadata.segments(tiered.partition)
                if is_cut:
                    it.log(1, "a").truncations += 1
                for state in (DELETING, DELETED) if is_deleted else ():
                    await tier.segments.publish(segment, state)
            finally:
                faults.gate.set()
            name = uuid_to_str(segment.segment_id.bytes)
            await until(lambda: faults.count("delete"))
            await until(
                lambda: not [each for each in it.remote_files("a") if name in each],
                "the store has found it",
            )
            await until(lambda: count(it, DELETED), "it is deleted")
            if not is_deleted:
                events = [each for each in updates(it) if each.segment_id == segment.segment_id]
                assert [each.state for each in events] == [DELETING, DELETED]
                assert {each.custom_metadata for each in events} == {answer}
            if size == 128:
                await it.offloaded("a", {0: ["v0"]}, local_start=1)

    run(test)
