"""The calls that do periodic work of logs now: roll, flush, retain, compact; copy and expire
remote segments.

They act on all replicas on running brokers, and do exactly what the timers do later: settings such
as `retention.ms` decide what is deleted, `min.compaction.lag.ms` what is compacted.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import is_of_the_brokers
from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import MISSING, REFUSED, UNANSWERED, ControlError
from tidelog_storage.remote.api import RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl
    from tidelog.replication.partition import Partition
    from tidelog.tiered.tasks.partition import TieredPartition

__all__ = ["CALLS", "Chosen", "LogCount", "replicas_of"]

COPY_S_MAX = 30.0
LOOK_AGAIN_S = 0.01


@dataclass(frozen=True)
class Chosen:
    """A topic, or one partition of it; without a topic, all topics but Kafka's own."""

    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True)
class LogCount:
    """How many segments were deleted, or passes made, on leaders."""

    count: int


# -- the cluster -----------------------------------------------------------------------------------


async def _roll(control: ClusterControl, args: Chosen) -> Nothing:
    """Seal the active segment of each log, and begin a new one."""
    await _everywhere(control, "broker.roll", args)
    return Nothing()


async def _flush(control: ClusterControl, args: Chosen) -> Nothing:
    """Make all records durable."""
    await _everywhere(control, "broker.flush", args)
    return Nothing()


async def _retain(control: ClusterControl, args: Chosen) -> LogCount:
    """Delete the segments that retention by time, size and log start allows; return how many."""
    return LogCount(await _everywhere(control, "broker.retain", args))


async def _compact(control: ClusterControl, args: Chosen) -> LogCount:
    """Seal the active segments, and compact however little is dirty; return how many logs were."""
    return LogCount(await _everywhere(control, "broker.compact", args))


async def _copy(control: ClusterControl, args: Chosen) -> Nothing:
    """Seal the active segments, and wait until all sealed ones are in the remote tier."""
    await _everywhere(control, "broker.roll", args)
    await _everywhere(control, "broker.copy", args)
    return Nothing()


async def _expire(control: ClusterControl, args: Chosen) -> Nothing:
    """Delete the remote segments that retention allows."""
    await _everywhere(control, "broker.expire", args)
    return Nothing()


async def _everywhere(control: ClusterControl, call: str, args: Chosen) -> int:
    """Make a call on all running brokers; return the sum of their counts."""
    control.first()
    results = await control.ask_all(call, asdict(args))
    return sum(result.count for result in results.values())


# -- a broker --------------------------------------------------------------------------------------


def replicas_of(control: BrokerControl, args: Chosen) -> list[Partition]:
    """Return the replicas on this broker; ControlError for an unknown topic or partition."""
    server = control.server
    image = server.metadata.image
    topic = None if args.topic is None else image.topics.get(args.topic)
    if args.topic is not None and topic is None:
        raise ControlError(f"there is no topic {args.topic!r}", field="topic", status=MISSING)
    if args.partition is not None:
        if topic is None:
            raise ControlError("needs a topic", field="partition")
        if not 0 <= args.partition < len(topic.partitions):
            text = f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}"
            raise ControlError(f"{text}, not {args.partition}", field="partition", status=MISSING)
    return [
        replica
        for replica in server.replicas.partitions()
        if (
            replica.topic_partition.topic == args.topic
            or (topic is None and not is_of_the_brokers(replica.topic_partition.topic))
        )
        and args.partition in (None, replica.topic_partition.partition)
    ]


def _roll_here(control: BrokerControl, args: Chosen) -> LogCount:
    """Roll the logs of this broker."""
    now_ms = control.server.runtime.clock.wall_ms()
    replicas = replicas_of(control, args)
    for replica in replicas:
        replica.log.roll(now_ms)
    return LogCount(len(replicas))


async def _flush_here(control: BrokerControl, args: Chosen) -> LogCount:
    """Flush the logs of this broker."""
    replicas = replicas_of(control, args)
    for replica in replicas:
        task = replica.log.prepare_flush()
        if task is not None:
            await control.server.runtime.executor.run(task)
            replica.log.flushed(task)
    return LogCount(len(replicas))


def _retain_here(control: BrokerControl, args: Chosen) -> LogCount:
    """Run a pass of retention over the logs of this broker."""
    server = control.server
    now_ms = server.runtime.clock.wall_ms()
    count = 0
    for replica in replicas_of(control, args):
        if not server.replicas.logs.is_moving(replica.topic_partition):
            deleted = replica.log.delete_old_segments(now_ms)
            count += deleted if replica.is_leader else 0
    return LogCount(count)


async def _compact_here(control: BrokerControl, args: Chosen) -> LogCount:
    """Compact the logs of this broker."""
    replicas = [one for one in replicas_of(control, args) if one.log.config.is_compacted]
    if not replicas and args.topic is not None and replicas_of(control, args):
        text = f"{args.topic} is not compacted; set its cleanup.policy"
        raise ControlError(text, field="topic", status=REFUSED)
    now_ms = control.server.runtime.clock.wall_ms()
    count = 0
    for replica in replicas:
        replica.log.roll(now_ms)
        passes = await control.server.maintenance.compact_now(replica.log)
        count += 1 if passes and replica.is_leader else 0
    return LogCount(count)


async def _copy_here(control: BrokerControl, args: Chosen) -> LogCount:
    """Run the copy tasks of the partitions that this broker leads."""
    led = list(_led(control, args))
    reason = "records above the last stable offset, or a lag of remote.copy.lag.ms, keep them here"
    try:
        async with asyncio.timeout(COPY_S_MAX):
            for each in led:
                while True:
                    try:
                        if await each.copy_now():
                            break
                    except RemoteStorageError as error:
                        reason = str(error)
                    await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        name = each.replica.topic_partition
        text = f"{name} is not copied after {COPY_S_MAX:g} s: {reason}"
        raise ControlError(text, status=UNANSWERED) from None
    return LogCount(len(led))


async def _expire_here(control: BrokerControl, args: Chosen) -> LogCount:
    """Run the expiration tasks of the partitions that this broker leads."""
    led = list(_led(control, args))
    for each in led:
        try:
            await each.tend_now()
        except RemoteStorageError as error:
            text = f"{each.replica.topic_partition} was not expired: {error}"
            raise ControlError(text, status=REFUSED) from error
    return LogCount(len(led))


def _led(control: BrokerControl, args: Chosen) -> Iterator[TieredPartition]:
    """Return the tiered partitions that this broker leads; ControlError if it has no tier."""
    tier = control.server.tier
    replicas = replicas_of(control, args)
    if tier is None:
        text = "the brokers have no remote tier; start them with tiered=True or a place for it"
        raise ControlError(text, status=REFUSED)
    for replica in replicas:
        tiered = tier.partitions.get(replica.topic_partition)
        if tiered is not None and tiered.leads:
            yield tiered
        elif tiered is None and args.topic is not None:
            text = f"{args.topic} has no remote tier; set remote.storage.enable on it"
            raise ControlError(text, field="topic", status=REFUSED)


CALLS = (
    Call("topics.roll", "cluster", Chosen, Nothing, _roll),
    Call("topics.flush", "cluster", Chosen, Nothing, _flush),
    Call("topics.retain", "cluster", Chosen, LogCount, _retain),
    Call("topics.compact", "cluster", Chosen, LogCount, _compact),
    Call("tier.copy", "cluster", Chosen, Nothing, _copy),
    Call("tier.expire", "cluster", Chosen, Nothing, _expire),
    Call("broker.roll", "broker", Chosen, LogCount, _roll_here),
    Call("broker.flush", "broker", Chosen, LogCount, _flush_here),
    Call("broker.retain", "broker", Chosen, LogCount, _retain_here),
    Call("broker.compact", "broker", Chosen, LogCount, _compact_here),
    Call("broker.copy", "broker", Chosen, LogCount, _copy_here),
    Call("broker.expire", "broker", Chosen, LogCount, _expire_here),
)
