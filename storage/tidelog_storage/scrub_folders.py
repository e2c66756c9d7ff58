"""Check the logs of a log directory read-only: a broker may run on it.

Changes of a running broker are ignored: a deleted segment, the end of the active one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.checkpoints import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    LeaderEpochCheckpoint,
    OffsetCheckpoint,
)
from tidelog_storage.folders import METADATA_TOPIC, scan
from tidelog_storage.scrub import Extent, SegmentCheck
from tidelog_storage.segment import LOG_SUFFIX, file_name, offsets_of
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_storage.seams import FileSystem

_NO_END = 2**63 - 1


class Checked(NamedTuple):
    """A checked segment; `faults` describe the damage."""

    partition: TopicPartition
    base_offset: int
    size: int
    faults: list[str]


class _Known(NamedTuple):
    """The checkpoints of a directory."""

    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    compacted: dict[TopicPartition, int]


def check_directory(files: FileSystem, directory: str) -> Iterator[Checked]:
    """Check every segment of a log directory. CheckpointError for a damaged checkpoint; OSError.

    Faults without a segment, such as a log that is too short, have a size of 0.
    """

    def read(name: str) -> dict[TopicPartition, int]:
        return OffsetCheckpoint(files, f"{directory}/{name}").read()

    known = _Known(
        read(RECOVERY_POINT_CHECKPOINT),
        read(LOG_START_OFFSET_CHECKPOINT),
        read(CLEANER_OFFSET_CHECKPOINT),
    )
    is_stopped = files.exists(f"{directory}/{CLEAN_SHUTDOWN_MARKER}")
    found = scan(files, directory)
    partitions = sorted([*found.current, *found.without_id])
    metadata = TopicPartition(METADATA_TOPIC, 0)
    if files.exists(f"{directory}/{metadata}"):
        partitions.insert(0, metadata)
    for partition in partitions:
        yield from _check_log(files, directory, partition, known, is_stopped=is_stopped)


def _check_log(
    files: FileSystem, directory: str, partition: TopicPartition, known: _Known, *, is_stopped: bool
) -> Iterator[Checked]:
    folder = f"{directory}/{partition}"
    sizes = files.sizes(folder)
    bases = offsets_of(sizes, LOG_SUFFIX)
    faults: list[str] = []
    try:
        epochs = tuple(LeaderEpochCheckpoint(files, folder).read() or ())
    except CheckpointError as error:
        epochs, faults = (), [str(error)]
    first = bases[0] if bases else 0
    if epochs and epochs[0].start_offset < first and partition not in known.log_starts:
        faults.append(f"offsets {epochs[0].start_offset} to {first - 1} are missing")
    end = first
    for base_offset, following in zip(bases, [*bases[1:], _NO_END], strict=True):
        size = sizes[file_name(base_offset, LOG_SUFFIX)]
        extent = Extent(
            folder,
            base_offset,
            following,
            size,
            partition in known.compacted or following == _NO_END,
            following != _NO_END,
            epochs,
        )
        check = SegmentCheck(files, extent)
        check.run()
        if files.sizes(folder).get(file_name(base_offset, LOG_SUFFIX)) != size:
            continue  # it was deleted or compacted, or is being written
        end = check.end_offset
        wrong = [
            f"{damage}"
            for damage in check.damages
            if is_stopped or damage.end_offset != _NO_END  # otherwise it may still be written
        ]
        yield Checked(partition, base_offset, size, [*wrong, *check.index_faults])
    durable = known.recovery_points.get(partition, 0)
    if is_stopped and end < durable:
        faults.append(f"offsets {end} to {durable - 1} are missing")
    if faults:
        yield Checked(partition, first, 0, faults)
