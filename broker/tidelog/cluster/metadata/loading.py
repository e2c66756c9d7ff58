"""Load the metadata log and its newest snapshot; a log that has lost durable records is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.durable import check_order
from tidelog.cluster.metadata.features import METADATA_FEATURE, initial_levels
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.records import decode_batch
from tidelog.cluster.metadata.settings import (
    BOOTSTRAP_CHECKPOINT,
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
)
from tidelog_protocol.batch import LENGTH_OVERHEAD, crc_is_valid, iter_batches
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.metadata_records import (
    FeatureLevelRecord,
    UserScramCredentialRecord,
)
from tidelog_storage.checkpoints import write_partition_metadata
from tidelog_storage.config import LogConfig
from tidelog_storage.folders import make_durable_folder
from tidelog_storage.loading import Checkpointed, LogContext
from tidelog_storage.recovery import load_log
from tidelog_storage.types import damage_below

if TYPE_CHECKING:
    from tidelog.cluster.metadata.durable import DurableEnd
    from tidelog.cluster.metadata.levels_on_disk import ReadSnapshot
    from tidelog.cluster.metadata.settings import MetadataLogSettings
    from tidelog.cluster.metadata.snapshotter import Snapshotter
    from tidelog_storage.log import Log

__all__ = ["Formatted", "formatted", "load_metadata_log"]

BATCH_BYTES_MAX = 8 << 20


def load_metadata_log(
    settings: MetadataLogSettings,
    durable: DurableEnd,
    snapshotter: Snapshotter,
    already_read: ReadSnapshot | None = None,
) -> tuple[Log, ClusterImage]:
    """Load the log; return it and the image of the newest snapshot, empty if there is none.

    The high watermark is the end of that snapshot. StorageError for lost durable data.
    """
    files, folder, clock = settings.files, settings.folder, settings.clock
    created = not files.exists(f"{folder}/partition.metadata")
    if created:  # the vote may be the first durable file in it
        make_durable_folder(files, folder)
    promised = durable.read()
    image = ClusterImage(cluster_id=settings.cluster_id, listener=settings.listener)
    # A new log may begin with its voters.
    image, log_start_offset = snapshotter.load(image, already_read)
    context = LogContext(
        files,
        folder,
        METADATA_PARTITION,
        clock.wall_ms(),
        topic_id=METADATA_TOPIC_ID,
        report=settings.report,
    )
    config = LogConfig(
        {
            "segment.bytes": settings.segment_bytes,
            "max.message.bytes": BATCH_BYTES_MAX,
            "retention.ms": -1,
        }
    )
    checkpointed = Checkpointed(log_start_offset=log_start_offset, keep_below=promised)
    log = load_log(context, config, checkpointed)
    check_order(log, promised, clock.wall_ms())
    snapshot_end = image.offset + 1
    if max(log.log_end_offset, snapshot_end) < promised:
        raise damage_below(folder, log.log_end_offset, promised)
    # A leader's snapshot, if the log ends in an older epoch: the crash preceded the truncation.
    is_news = log.epochs.latest_epoch < snapshotter.epoch and log.size_in_bytes > 0
    if log.log_end_offset < snapshot_end or is_news:
        log.truncate_fully_and_start_at(snapshot_end)
    if log.log_start_offset > snapshot_end:
        raise damage_below(folder, snapshot_end, log.log_start_offset)
    if snapshot_end:
        snapshotter.begin_log(log, snapshot_end)
    if created:
        write_partition_metadata(files, folder, METADATA_TOPIC_ID)
    log.set_high_watermark(max(log.log_start_offset, snapshot_end))
    return log, image


class Formatted(NamedTuple):
    """What formatting gave a new cluster."""

    levels: dict[str, int]
    """Levels of features."""
    users: list[UserScramCredentialRecord]
    """SCRAM users (KIP-900)."""


def formatted(settings: MetadataLogSettings) -> Formatted:
    """Return what a new cluster begins with; ProtocolError if the file is damaged."""
    path = f"{settings.directory}/{BOOTSTRAP_CHECKPOINT}"
    if not settings.files.exists(path):
        return Formatted(initial_levels(), [])
    first = Formatted({}, [])
    view = memoryview(settings.files.read_bytes(path))
    end, is_whole = 0, False
    for position, header in iter_batches(view):
        end = position + header.batch_length + LENGTH_OVERHEAD
        if not crc_is_valid(view, header, position):
            raise ProtocolError(f"{path} is damaged at byte {position}")
        is_whole = header.is_control and position > 0  # it ends with a footer
        for record in () if header.is_control else decode_batch(view[position:end]):
            if isinstance(record, UserScramCredentialRecord):
                first.users.append(record)
            elif isinstance(record, FeatureLevelRecord):
                first.levels[record.name] = record.feature_level
    if not is_whole or end != len(view):
        raise ProtocolError(f"{path} is cut off at byte {end}")
    if METADATA_FEATURE not in first.levels:
        raise ProtocolError(f"{path} names no {METADATA_FEATURE}")
    return first
