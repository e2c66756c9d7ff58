"""Snapshots of the metadata: an image as records, in Kafka's file and format (KIP-630).

`<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` beside the log stands for all records below
the end offset, of which the last has that epoch. Inside: a control batch with a header record,
batches of records in the order they can be replayed, a control batch with a footer record, without
which the snapshot is not whole. Pure except for the file system; the caller decides when to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.features import METADATA_FEATURE, registers_controllers
from tidelog.cluster.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterImage,
)
from tidelog.cluster.metadata.records import decode_batch, encode
from tidelog.cluster.metadata.replay import ImageBuilder
from tidelog.cluster.metadata.voters import level_and_voters
from tidelog_protocol.batch import crc_is_valid, iter_batches
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.messages.quorum_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    control_record,
)
from tidelog_protocol.records import ControlType, Record, build_batch, control_type, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_protocol.schema import Message
    from tidelog_storage.log import Log
    from tidelog_storage.seams import FileSystem

__all__ = [
    "SnapshotId",
    "begin_at_oldest",
    "decode_snapshot",
    "encode_snapshot",
    "image_records",
    "list_snapshots",
    "read_snapshot",
    "remove_before",
    "trim",
    "write_snapshot",
]

SUFFIX = ".checkpoint"
RECORDS_PER_BATCH = 500
_PLAINTEXT = 0


class SnapshotId(NamedTuple):
    """The part of the log that a snapshot covers; ids sort by age."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


def list_snapshots(files: FileSystem, folder: str) -> list[SnapshotId]:
    """The snapshots in a folder, oldest first."""
    try:
        names = files.list(folder)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        offset, _, epoch = name.removesuffix(SUFFIX).partition("-")
        lengths = (len(offset), len(epoch))
        if name.endswith(SUFFIX) and lengths == (20, 10) and (offset + epoch).isdecimal():
            found.append(SnapshotId(int(offset), int(epoch)))
    return sorted(found)


# ---- writing ------------------------------------------------------------------------------------


def image_records(image: ClusterImage) -> Iterator[Message]:
    """Return records that build the image from an empty one."""
    features = dict(image.features)
    if METADATA_FEATURE in features:  # it defines how to read the others
        level = features.pop(METADATA_FEATURE)
        yield tables.FeatureLevelRecord(name=METADATA_FEATURE, feature_level=level)
    for name, level in features.items():
        yield tables.FeatureLevelRecord(name=name, feature_level=level)
    yield from _registrations(image)
    for topic in image.topics.values():
        yield tables.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            yield tables.PartitionRecord(
                partition_id=partition.partition,
                topic_id=topic.topic_id,
                replicas=list(partition.replicas),
                isr=list(partition.isr),
                removing_replicas=list(partition.removing_replicas),
                adding_replicas=list(partition.adding_replicas),
                leader=partition.leader,
                leader_recovery_state=partition.leader_recovery_state,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                directories=list(partition.directories),
                eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
                last_known_elr=list(partition.last_known_eligible_leader_replicas) or None,
            )
    for kind, configs in (
        (RESOURCE_BROKER, image.broker_configs),
        (RESOURCE_TOPIC, image.topic_configs),
        (RESOURCE_GROUP, image.group_configs),
        (RESOURCE_CLIENT_METRICS, image.client_metrics),
    ):
        for resource, settings in configs.items():
            for name, value in settings.items():
                yield tables.ConfigRecord(
                    resource_type=kind, resource_name=resource, name=name, value=value
                )
    yield from _quota_records(image)
    yield from (
        tables.AccessControlEntryRecord(id=acl_id, **acl._asdict())
        for acl_id, acl in image.acls.items()
    )
    yield from (*image.scram_credentials.values(), *image.delegation_tokens.values())
    if image.next_producer_id:
        yield tables.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )


def _registrations(image: ClusterImage) -> Iterator[Message]:
    for broker in image.brokers.values():
        yield tables.RegisterBrokerRecord(
            broker_id=broker.node_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=[
                tables.RegisterBrokerRecord.BrokerEndpoint(
                    name=name, host=host, port=port, security_protocol=protocol
                )
                for name, host, port, protocol in broker.endpoints
            ],
            features=[
                tables.RegisterBrokerRecord.BrokerFeature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, lowest, highest in broker.features
            ],
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.log_dirs),
            cordoned_log_dirs=list(broker.cordoned_log_dirs) or None,
        )
    if registers_controllers(image.features):
        yield from image.controllers.values()


def _quota_records(image: ClusterImage) -> Iterator[Message]:
    for entity, quotas in image.client_quotas.items():
        for key, value in quotas.items():
            data = [
                tables.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity
            ]
            yield tables.ClientQuotaRecord(entity=data, key=key, value=value)


def encode_snapshot(image: ClusterImage, timestamp_ms: int) -> tuple[SnapshotId, bytes]:
    """Encode the snapshot of everything up to `image.offset`, taken at `timestamp_ms`."""
    snapshot = SnapshotId(image.offset + 1, image.leader_epoch)
    parts: list[bytes] = []
    offset = 0

    def add(records: list[Record], *, control: bool = False) -> None:
        nonlocal offset
        parts.append(
            build_batch(records, base_offset=offset, leader_epoch=snapshot.epoch, control=control)
        )
        offset += len(records)

    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    first = [control_record(header, timestamp=timestamp_ms)]
    if image.voters:
        first += level_and_voters(image.voters, timestamp_ms, offset=1)
    add(first, control=True)
    batch: list[Record] = []
    for record in image_records(image):
        value = encode(record, image.features)
        batch.append(Record(offset + len(batch), timestamp_ms, None, value))
        if len(batch) == RECORDS_PER_BATCH:
            add(batch)
            batch = []
    if batch:
        add(batch)
    footer = control_record(SnapshotFooterRecord(), timestamp=timestamp_ms, offset=offset)
    add([footer], control=True)
    return snapshot, b"".join(parts)


def write_snapshot(
    files: FileSystem, folder: str, image: ClusterImage, timestamp_ms: int
) -> SnapshotId:
    """Write the snapshot of an image, durably; may run on any thread."""
    snapshot, data = encode_snapshot(image, timestamp_ms)
    files.write_atomic(f"{folder}/{snapshot.file_name}", data)
    return snapshot


def trim(files: FileSystem, folder: str, log: Log, now_ms: int) -> None:
    """Trim the log below the second-newest snapshot, and remove older snapshots.

    The last two stay, so that a follower that is a little behind needs none.
    """
    kept = _of_log(files, folder, log)[-2:]
    if len(kept) == 2:
        log.maybe_increment_log_start(kept[0].end_offset, "snapshot")
    log.roll(now_ms)
    log.delete_old_segments(now_ms)
    log.removals.run(now_ms)
    remove_before(files, folder, kept[0])


def begin_at_oldest(files: FileSystem, folder: str, log: Log) -> None:
    """Make a log begin at the end of a snapshot, and remove snapshots from before its start.

    A crash in `trim`, or while a leader's snapshot replaces the log, leaves them; with them, a
    leader would send a follower the newest snapshot repeatedly.
    """
    oldest = _of_log(files, folder, log)[0]
    log.maybe_increment_log_start(oldest.end_offset, "snapshot")
    remove_before(files, folder, oldest)


def _of_log(files: FileSystem, folder: str, log: Log) -> list[SnapshotId]:
    """Omit snapshots from before its start: one may have been written while a leader's snapshot
    replaced the log."""
    start = log.log_start_offset
    return [each for each in list_snapshots(files, folder) if each.end_offset >= start]


def remove_before(files: FileSystem, folder: str, kept: SnapshotId) -> None:
    """Remove the snapshots that are older than this one."""
    for snapshot in list_snapshots(files, folder):
        if snapshot < kept:
            files.remove(f"{folder}/{snapshot.file_name}")


# ---- reading ------------------------------------------------------------------------------------


def decode_snapshot(
    snapshot: SnapshotId, data: bytes, cluster_id: str, listener: str = ""
) -> ClusterImage:
    """Decode a snapshot into an image; ProtocolError if it is damaged or incomplete.

    A snapshot does not contain the active controller: the log's next epoch names it again.
    """
    builder = ImageBuilder(ClusterImage(cluster_id=cluster_id, listener=listener))
    view = memoryview(data)
    end = 0
    next_offset = 0
    last_control = -1
    for position, header in iter_batches(view):
        places = (header.base_offset, header.leader_epoch)  # outside the checksum
        if places != (next_offset, snapshot.epoch) or not crc_is_valid(view, header, position):
            raise ProtocolError(f"{snapshot.file_name} is corrupt at byte {position}")
        end = position + header.size_in_bytes
        next_offset = header.next_offset
        batch = view[position:end]
        if header.is_control:
            for control in iter_records(batch):
                last_control = control_type(control)
                builder.apply_control(control)
        else:
            last_control = -1
            for record in decode_batch(batch):
                builder.apply(record)
    if last_control != ControlType.SNAPSHOT_FOOTER or end != len(data):
        raise ProtocolError(f"{snapshot.file_name} is not whole")
    return builder.build(
        offset=snapshot.end_offset - 1, leader_epoch=snapshot.epoch, controller_id=-1
    )


def read_snapshot(
    files: FileSystem, folder: str, snapshot: SnapshotId, cluster_id: str, listener: str = ""
) -> ClusterImage:
    """Read the image of a snapshot file; ProtocolError like `decode_snapshot`."""
    data = files.read_bytes(f"{folder}/{snapshot.file_name}")
    return decode_snapshot(snapshot, data, cluster_id, listener)
