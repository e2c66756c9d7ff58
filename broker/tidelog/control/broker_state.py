"""Reads the state of one broker as values."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import is_of_the_brokers
from tidelog.control.state import (
    BrokerPart,
    CommittedOffset,
    ConnectionState,
    EpochState,
    GroupState,
    HostedLog,
    LogState,
    MemberState,
    PartitionName,
    PartitionState,
    ProducerState,
    RemoteSegmentState,
    SegmentState,
    ShareState,
    TopicState,
    TransactionState,
)
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.modern.topics import ImageTopics
from tidelog.coordinators.groups.share.assignor import NAME as SHARE_ASSIGNOR
from tidelog.coordinators.groups.streams.assignor import NAME as STREAMS_ASSIGNOR
from tidelog.coordinators.groups.streams.endpoints import partitions_of
from tidelog_protocol.apis import API
from tidelog_protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog.control.state import ReadState
    from tidelog.coordinators.groups.classic.group import Group
    from tidelog.coordinators.groups.kinds import AnyGroup
    from tidelog.coordinators.groups.offsets import OffsetAndMetadata
    from tidelog.coordinators.groups.share.group import ShareGroup
    from tidelog.coordinators.groups.streams.group import StreamsGroup
    from tidelog.coordinators.transactions.transaction import Transaction
    from tidelog.network.connection import Connection
    from tidelog.replication.partition import Partition
    from tidelog.server import BrokerServer
    from tidelog.shares.share_partitions import SharePartitions
    from tidelog_storage.log import Log

__all__ = ["read"]


def read(server: BrokerServer, args: ReadState) -> BrokerPart:
    """Read everything in one step of the loop, so that it belongs together."""
    image, parts = server.metadata.image, server.parts
    node_id = server.config.node_id
    names = set(_chosen(image, args))
    replicas = parts.replicas
    waiting = {
        "Fetch": replicas.fetch_purgatory,
        "Produce": replicas.produce_purgatory,
        "DeleteRecords": replicas.delete_records_purgatory,
    }
    coordinator = parts.transactions.coordinator_in_use
    return BrokerPart(
        node_id=node_id,
        controller=image.controller_id,
        metadata_offset=image.offset,
        wall_ms=server.runtime.clock.wall_ms(),
        topics=tuple(_topic(image, image.topics[name]) for name in sorted(names)),
        logs=tuple(
            HostedLog(
                topic=partition.topic_partition.topic,
                partition=partition.topic_partition.partition,
                log=_log(node_id, partition),
                remote=tuple(_remote(server, partition)),
            )
            for partition in replicas.partitions()
            if partition.topic_partition.topic in names
        ),
        groups=tuple(
            _group(node_id, group, image, shard.committed.of_group(group.group_id))
            for shard in parts.groups.led.active()
            for group in shard.groups.values()
        ),
        transactions=tuple(
            _transaction(node_id, transaction)
            for shard in (coordinator.led.active() if coordinator is not None else ())
            for transaction in shard.transactions.values()
        ),
        purgatories={name: len(purgatory) for name, purgatory in waiting.items()},
        connections=tuple(_connection(one) for one in server.connections),
        shares=tuple(_shares(server.shares)),
    )


def _chosen(image: ClusterImage, args: ReadState) -> Iterable[str]:
    if args.topics is not None:
        return (name for name in args.topics if name in image.topics)
    return (name for name in image.topics if args.internal or not is_of_the_brokers(name))


def _topic(image: ClusterImage, topic: TopicImage) -> TopicState:
    return TopicState(
        name=topic.name,
        topic_id=uuid_to_str(topic.topic_id),
        is_internal=topic.is_internal,
        config=dict(image.topic_config(topic.name)),
        partitions=tuple(
            PartitionState(
                topic=topic.name,
                partition=one.partition,
                leader=one.leader,
                leader_epoch=one.leader_epoch,
                partition_epoch=one.partition_epoch,
                replicas=one.replicas,
                isr=one.isr,
                adding_replicas=one.adding_replicas,
                removing_replicas=one.removing_replicas,
                eligible_leader_replicas=one.eligible_leader_replicas,
            )
            for one in topic.partitions
        ),
    )


def _log(node_id: int, partition: Partition) -> LogState:
    log = partition.log
    return LogState(
        broker=node_id,
        is_leader=partition.is_leader,
        leader_epoch=partition.leader_epoch,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_end_offset=log.log_end_offset,
        recovery_point=log.recovery_point,
        highest_remote_offset=log.highest_remote_offset,
        size_bytes=log.size_in_bytes,
        segments=tuple(_segments(log)),
        epochs=tuple(EpochState(one.epoch, one.start_offset) for one in log.epochs.entries),
        producers=tuple(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                transaction_start=(
                    entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
                ),
            )
            for entry in log.producers.producers.values()
        ),
    )


def _segments(log: Log) -> Iterator[SegmentState]:
    segments = list(log.segments)
    ends = [*(one.base_offset for one in segments[1:]), log.log_end_offset]
    for segment, end_offset in zip(segments, ends, strict=True):
        yield SegmentState(
            base_offset=segment.base_offset,
            end_offset=end_offset,
            size_bytes=segment.size,
            max_timestamp=segment.know_timestamps(),
            is_active=segment is log.segments.active,
        )


def _remote(server: BrokerServer, partition: Partition) -> Iterator[RemoteSegmentState]:
    """Return a led partition's remote segments; none while their metadata is not ready."""
    tier = server.tier
    tiered = None if tier is None else tier.partitions.get(partition.topic_partition)
    if tier is None or tiered is None or not tiered.leads:
        return
    if not tier.metadata.is_ready(tiered.partition):
        return
    for segment in tier.metadata.segments(tiered.partition):
        yield RemoteSegmentState(
            segment_id=str(segment.segment_id),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            size_bytes=segment.size,
            max_timestamp=segment.max_timestamp,
            state=segment.state.name,
            broker=segment.broker_id,
            epochs=tuple(EpochState(epoch, start) for epoch, start in segment.epochs),
        )


def _group(
    node_id: int,
    group: AnyGroup,
    image: ClusterImage,
    offsets: Mapping[str, Mapping[int, OffsetAndMetadata]],
) -> GroupState:
    protocol: str | None
    if isinstance(group, ConsumerGroup):
        epoch, protocol = group.epoch, group.assignor
        members = tuple(_consumers(group, image))
    elif group.type == "share":
        epoch, protocol = group.epoch, SHARE_ASSIGNOR
        members = tuple(_consumers(group, image))
    elif group.type == "streams":
        epoch, protocol = group.epoch, STREAMS_ASSIGNOR
        members = tuple(_streams_members(group, image))
    else:
        epoch, protocol = group.generation, group.protocol_name
        members = tuple(_classic_members(group))
    return GroupState(
        group_id=group.group_id,
        coordinator=node_id,
        state=group.state.value,
        generation=epoch,
        protocol_type=group.protocol_type,
        protocol=protocol,
        members=members,
        offsets=tuple(
            CommittedOffset(topic, partition, one.offset, one.leader_epoch, one.metadata)
            for topic, partitions in sorted(offsets.items())
            for partition, one in sorted(partitions.items())
        ),
    )


def _shares(shares: SharePartitions | None) -> Iterator[ShareState]:
    """Return the share partitions whose state is loaded."""
    for led in () if shares is None else shares.led():
        state, (topic, partition) = led.state, led.partition.topic_partition
        if state is not None:
            flight, done = state.in_flight, state.delivery_complete_count
            yield ShareState(
                group_id=led.key.group_id,
                topic=topic,
                partition=partition,
                start_offset=flight.start_offset,
                end_offset=flight.next_offset,
                acquired=state.acquired_count,
                done=done,
                lag=max(0, led.partition.log.high_watermark - flight.start_offset - done),
            )


def _classic_members(group: Group) -> Iterator[MemberState]:
    for member in group.members.values():
        yield MemberState(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            assignment=_assigned(member.assignment),
        )


def _consumers(group: ConsumerGroup | ShareGroup, image: ClusterImage) -> Iterator[MemberState]:
    """Return the members of a consumer or share group, without partitions of deleted topics."""
    for member in group.members.values():
        said = member.subscription
        yield MemberState(
            member_id=member.member_id,
            group_instance_id=said.instance_id,
            client_id=said.client_id,
            client_host=said.client_host,
            session_timeout_ms=group.limits.session_timeout_ms,
            assignment={
                image.topic_names[topic_id]: tuple(sorted(partitions))
                for topic_id, partitions in member.assigned.items()
                if topic_id in image.topic_names
            },
        )


def _streams_members(group: StreamsGroup, image: ClusterImage) -> Iterator[MemberState]:
    """Return the members of a streams group with the partitions that their active tasks read."""
    topics, configured = ImageTopics(image), group.configured
    for member in group.members.values():
        said, tasks = member.description, member.assigned.active
        read = () if configured is None else partitions_of(tasks, configured, topics)
        yield MemberState(
            member_id=member.member_id,
            group_instance_id=said.instance_id,
            client_id=said.client_id,
            client_host=said.client_host,
            session_timeout_ms=group.limits.session_timeout_ms,
            assignment={name: tuple(partitions) for name, partitions in read},
        )


def _assigned(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Return the partitions of a consumer's assignment; nothing for another protocol's bytes."""
    found: dict[str, tuple[int, ...]] = {}
    try:
        _, topics = struct.unpack_from(">hi", assignment)
        position = 6
        for _ in range(min(topics, len(assignment))):
            (size,) = struct.unpack_from(">h", assignment, position)
            name = assignment[position + 2 : position + 2 + size].decode()
            position += 2 + size
            (count,) = struct.unpack_from(">i", assignment, position)
            found[name] = struct.unpack_from(f">{count}i", assignment, position + 4)
            position += 4 + 4 * count
    except (struct.error, UnicodeDecodeError, MemoryError):
        return {}
    return found


def _transaction(node_id: int, transaction: Transaction) -> TransactionState:
    value = transaction.value
    return TransactionState(
        transactional_id=transaction.transactional_id,
        coordinator=node_id,
        state=value.state.wire_name,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.timeout_ms,
        start_ms=value.start_ms,
        partitions=tuple(PartitionName(*one) for one in sorted(value.partitions)),
    )


def _connection(connection: Connection) -> ConnectionState:
    software, version = connection.software
    return ConnectionState(
        client_host=connection.client_host,
        client_port=connection.client_port,
        listener=connection.listener,
        software=f"{software} {version}".strip(),
        waiting=tuple(API[context.api_key].name for context in connection.unanswered()),
    )
