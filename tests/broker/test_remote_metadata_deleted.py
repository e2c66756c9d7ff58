"""The metadata topic is deleted by somebody: it is created again, what brokers know stays known,
and leaders tell it again, so that others learn it too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from support.clusters import until
from support.remote_metadata import (
    COUNT,
    DELETED,
    DELETING,
    OTHER,
    P0,
    SAME,
    Broker,
    index_of,
    run,
    segment,
    update,
)
from support.remote_topic import MemoryTopic
from tidelog.runtime import AwaitedFiles
from tidelog.tiered.metadata.files import MetadataFiles
from tidelog_storage.remote.api import PartitionDelete, PartitionDeleteState
from tidelog_storage.remote.metadata_records import decode

if TYPE_CHECKING:
    from pathlib import Path

STATES = list(PartitionDeleteState)


async def delete(topic: MemoryTopic, *brokers: Broker) -> None:
    """It goes; all hear of that, and of the one that comes."""

    def on_image() -> None:
        for broker in brokers:
            broker.metadata.on_image()

    topic.on_image = on_image
    topic.delete()
    await until(lambda: topic.partitions, "it is created again")
    topic.on_image = lambda: None


async def told(topic: MemoryTopic, index: int, count: int) -> None:
    await until(lambda: len(topic.partitions[index]) == count, f"{count} events are told again")


async def history(broker: Broker) -> None:
    """Segments in all states, 7 events again for who does not know them."""
    await broker.copy(P0, 1, 0, 9)
    await broker.copy(P0, 2, 10, 19)
    await broker.copy(P0, 3, 20, 29)
    await broker.metadata.update(update(P0, 1, DELETING))
    await broker.metadata.update(update(P0, 1, DELETED))
    await broker.metadata.update(update(P0, 2, DELETING))
    await broker.metadata.add(segment(P0, 4, 30, 39))
    await broker.metadata.put_partition_delete(PartitionDelete(P0, 1, 8, STATES[0]))
    await broker.metadata.put_partition_delete(PartitionDelete(P0, 1, 8, STATES[1]))


@pytest.mark.parametrize("far", [False, True])
def test_known_segments_stay_and_are_published_again(tmp_path: Path, far: bool) -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        leader, follower = Broker(topic, tmp_path, far=far), Broker(topic, far=far)
        await leader.lead(P0, OTHER)
        follower.metadata.on_leadership_changes(set(), {P0})
        await follower.ready(P0)
        await history(leader)
        await leader.copy(OTHER, 5)
        known = leader.metadata.segments(P0)
        await until(lambda: follower.metadata.delete_state(P0) is STATES[1])

        await delete(topic, leader, follower)
        assert leader.metadata.segments(P0) == follower.metadata.segments(P0) == known
        await told(topic, index_of(P0), 7)
        await leader.ready(P0)
        await leader.copy(OTHER, 6, 10, 19)  # it goes on
        assert (leader.metadata.segments(P0), leader.ids(OTHER)) == (known, [5, 6])
        assert (leader.metadata.illegal, follower.metadata.illegal) == (0, 0)

        newcomer = Broker(topic, far=far)
        newcomer.metadata.on_leadership_changes(set(), {P0, OTHER})
        await newcomer.ready(P0)
        await newcomer.ready(OTHER)
        assert [(one.segment_id, one.state) for one in newcomer.metadata.segments(P0)] == [
            (one.segment_id, one.state) for one in known
        ]
        assert newcomer.metadata.delete_state(P0) is STATES[1]
        assert newcomer.metadata.illegal == 0
        assert newcomer.ids(OTHER) == [5, 6]
        for broker in (leader, follower, newcomer):
            await broker.stop()

    run(test)


@pytest.mark.parametrize("is_read", [True, False])
def test_files_outlive_the_topic(tmp_path: Path, is_read: bool) -> None:
    """They are written at once: a broker that is killed then knows all the same what it did, and
    what it reads of that in the new topic is no news."""

    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic, tmp_path)
        await broker.lead(P0, SAME)
        await broker.copy(P0, 1)
        await broker.copy(SAME, 2)
        broker.client.is_stuck = not is_read
        await delete(topic, broker)
        await told(topic, index_of(P0), 4)
        files = MetadataFiles(AwaitedFiles(syncs=False), str(tmp_path))
        for one in (P0, SAME):
            while await files.load(one, topic.topic_id) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await broker.stop(saves=False)  # it dies
        again = Broker(topic, tmp_path)
        await again.lead(P0, SAME)
        assert (again.ids(P0), again.ids(SAME)) == ([1], [2])
        assert again.metadata.illegal == 0
        await again.stop()

    run(test)


def test_the_next_leader_publishes_what_the_last_could_not() -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        first, second = Broker(topic), Broker(topic)
        await first.lead(P0)
        await first.copy(P0, 1)
        second.metadata.on_leadership_changes(set(), {P0})
        await second.ready(P0)
        await first.stop()
        await delete(topic, second)
        await second.ready(P0)
        assert not topic.partitions[index_of(P0)], "followers tell nothing"
        await second.lead(P0)
        await told(topic, index_of(P0), 2)
        assert second.ids(P0) == [1]
        await second.stop()

    run(test)


def test_a_topic_that_is_deleted_again_and_again() -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic)
        await broker.lead(P0)
        for number in range(5):
            await broker.copy(P0, number, 10 * number, 10 * number + 9)
            await delete(topic, broker)
            await broker.ready(P0)
        await told(topic, index_of(P0), 10)
        values = [decode(value or b"") for value in topic.partitions[index_of(P0)]]
        assert {one.segment_id for one in values} == {UUID(int=n) for n in range(5)}
        assert broker.ids(P0) == list(range(5))
        assert len(topic.created) == 5
        await broker.stop()

    run(test)
