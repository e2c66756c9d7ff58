"""Folders of a log directory: their names, and which of them are logs.

A log directory may hold folders that tidelog did not make, under any name: `myapp-2` may be a
user's project. A folder is a log if it has `partition.metadata` or a segment's files in it; all
others are left alone. Names are Kafka's (LocalLog): `topic-0`, and with an id and a suffix
`topic-0.<unique id>-future`, `-delete` and `-stray`.

A new log gets `partition.metadata` before its first segment, and syncs it before its first batch,
as Kafka (UnifiedLog.maybeFlushMetadataFile). So a crash in between leaves a log that was never
written to, which is made again, or a log that knows its topic. Records never lack a topic id.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ErrorCode
from tidelog_storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    CheckpointError,
    note_topic_id,
    read_partition_metadata,
)
from tidelog_storage.segment import LOG_SUFFIX, file_name
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from tidelog_storage.seams import FileSystem

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
FOLDER_NAME_MAX = 255
METADATA_TOPIC = "__cluster_metadata"

_SUFFIXED = re.compile(r"(\S+)\.[^.\s]+(-delete|-future|-stray)")
_SEGMENT_FILE = re.compile(r"[0-9]{20}\.[a-z.]+")
_OTHER_FILES = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA})


class Folders(NamedTuple):
    """The content of a log directory, by name of folder."""

    current: dict[TopicPartition, bytes]
    """Logs with their topic ids; the folder's name is the partition's."""
    futures: dict[TopicPartition, str]
    without_id: list[TopicPartition]
    """Logs under a plain name that have records, and no `partition.metadata`."""
    unwritten: list[TopicPartition]
    """Those that were never written to; they are made again when they are needed."""
    strays: list[str]
    deleted: list[str]
    """Logs that are to be removed, and futures that were never begun."""


def future_folder(partition: TopicPartition, unique_id: str) -> str:
    """Return the folder name of a log that will replace a partition's current one."""
    return f"{partition}.{unique_id}{FUTURE_SUFFIX}"


def free_folder(
    files: FileSystem, directory: str, partition: TopicPartition, topic_id: bytes, suffix: str
) -> str:
    """Return a free path for a partition's renamed log.

    Topic ids never repeat, but a replica may be removed, return, and be removed again.
    """
    number = 1
    tail = f".{topic_id.hex()}{suffix}"
    while True:
        path = f"{directory}/{f'{partition}'[: FOLDER_NAME_MAX - len(tail)]}{tail}"
        if not files.exists(path):
            return path
        number += 1
        tail = f".{topic_id.hex()}-{number}{suffix}"


def scan(files: FileSystem, directory: str) -> Folders:
    """Scan all folders. CheckpointError for an invalid `partition.metadata`, and for a log's folder
    that is a symbolic link: what it leads to is not this directory's."""
    found = Folders({}, {}, [], [], [], [])
    plain_files = files.sizes(directory)
    for name in files.list(directory):
        if name in plain_files:
            continue
        suffixed = _SUFFIXED.fullmatch(name)
        path = f"{directory}/{name}"
        is_of_log = suffixed is not None or _partition_of(name) is not None
        if is_of_log and files.is_link(path) and files.exists(path):
            raise CheckpointError(f"{path} is a symbolic link, and none is followed")
        try:
            if suffixed is None:
                _look_at(files, directory, name, found)
            else:
                _look_at_suffixed(files, directory, suffixed, found)
        except (FileNotFoundError, NotADirectoryError):
            continue  # neither a file nor a folder
    return found


def _look_at(files: FileSystem, directory: str, name: str, found: Folders) -> None:
    partition = _partition_of(name)
    if partition is None:
        return
    folder = f"{directory}/{name}"
    topic_id = _topic_id(files, folder)
    if topic_id is not None:
        found.current[partition] = topic_id
    elif any(map(_SEGMENT_FILE.fullmatch, files.list(folder))):
        kind = found.unwritten if _was_never_written(files, folder) else found.without_id
        kind.append(partition)


def _look_at_suffixed(
    files: FileSystem, directory: str, suffixed: re.Match[str], found: Folders
) -> None:
    name, plain_name, suffix = suffixed.group(0, 1, 2)
    if suffix == STRAY_SUFFIX:
        found.strays.append(name)
        return
    folder = f"{directory}/{name}"
    partition = _partition_of(plain_name)
    if (
        suffix == FUTURE_SUFFIX
        and partition is not None
        and partition not in found.futures
        and _topic_id(files, folder) is not None
    ):
        found.futures[partition] = name
        return
    if not _foreign(files, folder):
        found.deleted.append(folder)


def _topic_id(files: FileSystem, folder: str) -> bytes | None:
    """Read the topic id, None if the file is missing or a power failure emptied it in a log without
    records."""
    try:
        return read_partition_metadata(files, folder)
    except CheckpointError:
        if not _was_never_written(files, folder):
            raise
        return None


def _was_never_written(files: FileSystem, folder: str) -> bool:
    if _foreign(files, folder):
        return False
    segments = {n: size for n, size in files.sizes(folder).items() if n.endswith(LOG_SUFFIX)}
    return set(segments) <= {file_name(0, LOG_SUFFIX)} and not any(segments.values())


def has_begun(files: FileSystem, folder: str) -> bool:
    """Return whether a crash left this folder while a log was being created."""
    return files.exists(folder) and _was_never_written(files, folder)


def _partition_of(name: str) -> TopicPartition | None:
    """Return the partition of a folder with this plain name."""
    topic, _, number = name.rpartition("-")
    if not topic or topic == METADATA_TOPIC or not number.isascii() or not number.isdigit():
        return None
    partition = TopicPartition(topic, int(number))
    return partition if f"{partition}" == name else None


def _foreign(files: FileSystem, folder: str) -> list[str]:
    """Return names in a folder that do not belong to a log."""
    sizes = files.sizes(folder)
    return [name for name in files.list(folder) if name not in sizes or not _is_log_file(name)]


def _is_log_file(name: str) -> bool:
    name = name.removesuffix(".tmp")
    return name in _OTHER_FILES or _SEGMENT_FILE.fullmatch(name) is not None


def make_folder(files: FileSystem, folder: str, topic_id: bytes) -> None:
    """Make the folder of a new log, with its topic id.

    StorageError if a folder of that name contains more than a log without records.
    """
    if files.exists(folder):
        records = [
            name for name, size in files.sizes(folder).items() if size and name.endswith(".log")
        ]
        in_the_way = _foreign(files, folder) + records
        if in_the_way:
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{folder} cannot become a log: it contains {in_the_way[0]}; move the folder away",
            )
    files.make_dirs(folder)
    note_topic_id(files, folder, topic_id)


def make_durable_folder(files: FileSystem, folder: str) -> None:
    """Create a folder and its parents, durably.

    Syncing a folder's content does not sync its own name: without that a power failure may remove
    the folder with its content. An existing folder may come from a process killed before this sync.
    """
    missing = []
    path = folder.rpartition("/")[0]
    while path and not files.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    files.make_dirs(folder)
    for path in (*reversed(missing), folder):
        with suppress(PermissionError):  # an existing parent of another owner
            files.fsync_dir(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))
