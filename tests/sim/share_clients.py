"""Those who use a share group while brokers come and go: members, and administrators."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.share_members import Connections, ShareMember
from sim.share_world import GROUP, led_partition
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import DeleteRecordsRequest
from tidelog_protocol.messages.share_group_offsets import DescribeShareGroupOffsetsRequest
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.share_history import SharedPartition
    from sim.share_world import ShareWorld

LOOK_S = 0.05
SEEDS_WITH_DELETIONS = 0.4


# -- members ---------------------------------------------------------------------------------------


async def live_as_members(world: ShareWorld, number: int) -> None:
    """One life after the other; the last one stays until the end."""
    rng = random.Random(f"{world.seed}:share member {number}")
    life = 0
    while not world.is_over:
        life += 1
        member = ShareMember(world, f"member-{number}-{life}", rng)
        tasks = [asyncio.ensure_future(work) for work in (member.beat(), member.read())]
        try:
            await _live(world, member, tasks, rng)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(rng.choice((0.01, 0.3)))


async def _live(
    world: ShareWorld, member: ShareMember, tasks: list[asyncio.Task[None]], rng: random.Random
) -> None:
    """Until it leaves or vanishes; raise what it raises."""
    end_s = world.loop.time() + rng.choice((0.7, 2.0, 5.0, 9.0))
    vanishes = rng.random() < 0.5
    while not any(task.done() for task in tasks):
        if world.loop.time() >= end_s and not world.is_quiet and vanishes:
            member.vanish()
            return
        member.is_leaving = world.is_over or (world.loop.time() >= end_s and not world.is_quiet)
        await asyncio.sleep(LOOK_S)
    for task in tasks:
        if task.done():
            task.result()


# -- administrators --------------------------------------------------------------------------------


async def describe(world: ShareWorld) -> None:
    """Start offsets, now and then."""
    connections = Connections(world, "describer")
    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    message = DescribeShareGroupOffsetsRequest(groups=[group(group_id=GROUP, topics=None)])
    indexes = range(len(world.history.partitions))
    while not world.is_over:
        await asyncio.sleep(0.4)
        sent_s, name = world.loop.time(), connections.coordinator
        keepers = [world.keeper(name, index) if name else None for index in indexes]
        try:
            answer = await connections.ask_coordinator(message, 1)
        except Lost:
            continue
        (found,) = answer.groups
        if found.error_code:
            connections.coordinator = ""
        for part in [part for topic in found.topics for part in topic.partitions]:
            index, now_s = part.partition_index, world.loop.time()
            if keepers[index] is None or keepers[index] != world.keeper(name, index):
                continue
            if not part.error_code and part.start_offset >= 0:
                world.history.described(index, sent_s, now_s, part.start_offset)
    connections.close()


async def delete_records(
    world: ShareWorld, deleted: Callable[[SharedPartition, int], None]
) -> None:
    """Records, now and then, in some runs. `deleted` is told of the new start of a log."""
    rng = random.Random(f"{world.seed}:share deletions")
    connections = Connections(world, "deleter")
    is_on = rng.random() < SEEDS_WITH_DELETIONS
    while is_on and not world.is_quiet:
        await asyncio.sleep(rng.uniform(0.3, 2.5))
        known = rng.choice(world.history.partitions)
        name, end = world.leader_of(known.index), max(known.facts, default=0)
        if not name or not end:
            continue
        offset = rng.randint(end // 2, end)
        known.delete_bound = max(known.delete_bound, offset)
        of_topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = of_topic.DeleteRecordsPartition(partition_index=known.index, offset=offset)
        topic = of_topic(name=world.topic, partitions=[part])
        message = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        try:
            answer = await connections.ask(name, message, 2)
        except Lost:
            continue
        result = answer.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            deleted(known, result.low_watermark)
            world.history.count("records deleted")
    connections.close()


# -- the end ---------------------------------------------------------------------------------------


def unsettled(world: ShareWorld) -> str:
    """The first partition with records that no member is done with, "" without one."""
    for index in range(len(world.history.partitions)):
        name = world.leader_of(index)
        led = led_partition(world, name, index) if name else None
        if led is None or led.state is None:
            return f"share partition {index} is not loaded at {name}"
        server: Any = world.machine(name).server
        end = server.replicas.hosted(TopicPartition(world.topic, index)).log.log_end_offset
        if led.state.start_offset < end:
            return f"share partition {index} at {name}, end {end}: {led.state.in_flight.spans}"
    return ""
