"""Small text files of a log directory, byte for byte as Kafka writes them.

Offset checkpoints (`replication-`, `recovery-point-`, `log-start-`, `cleaner-offset-checkpoint`),
`leader-epoch-checkpoint`, `partition.metadata`, `meta.properties` and the clean-shutdown marker.
All writes go through `FileSystem.write_atomic`. The log manager and logs call this; nothing here
knows what the numbers mean. Kafka: CheckpointFile, PartitionMetadataFile, MetaProperties.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.primitives import uuid_from_str, uuid_to_str
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog_storage.seams import FileSystem

REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"

_VERSION = 0
_EPOCH_MAX = (1 << 31) - 1
_INT64_MAX = 2**63 - 1


class CheckpointError(Exception):
    """A checkpoint file with invalid content; the message names the file."""


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class MetaProperties(NamedTuple):
    """`meta.properties`: the owner of a log directory."""

    cluster_id: str
    node_id: int
    directory_id: bytes  # 16 bytes


# -- the common form: version, count, lines --------------------------------------------------------


def format_checkpoint(lines: Iterable[str]) -> bytes:
    """Return the file's bytes: version line, count line, then the lines."""
    listed = list(lines)
    return "".join([f"{_VERSION}\n{len(listed)}\n", *[f"{line}\n" for line in listed]]).encode()


def parse_checkpoint(data: bytes, path: str) -> list[str]:
    """Return the lines; none for an empty file or only a version line. CheckpointError if
    malformed."""
    lines = _text(data, path).splitlines()
    if not lines:
        return []
    version = _number(lines[0], path)
    if version != _VERSION:
        raise CheckpointError(f"{path}: unknown version {version}")
    if len(lines) == 1:
        return []
    if not data.endswith(b"\n"):
        raise CheckpointError(f"{path}: ends in the middle of a line")
    expected = _number(lines[1], path)
    if expected != len(lines) - 2:
        raise CheckpointError(f"{path}: {expected} entries announced, {len(lines) - 2} found")
    return lines[2:]


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: not a text file") from None


def _number(text: str, path: str) -> int:
    digits = text[1:] if text[:1] == "-" else text
    if digits.isascii() and digits.isdigit() and len(digits) < 20:
        number = int(text)
        if -_INT64_MAX - 1 <= number <= _INT64_MAX:
            return number
    raise CheckpointError(f"{path}: {text!r} is not a number")


def _read_if_there(files: FileSystem, path: str) -> bytes | None:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return None


# -- offset checkpoints ----------------------------------------------------------------------------


class OffsetCheckpoint:
    """One of the `*-offset-checkpoint` files: an offset per partition."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path
        self._content = b""  # newest: written, or about to be

    def read(self) -> dict[TopicPartition, int]:
        """Read all entries; none if there is no file. CheckpointError if it is malformed."""
        data = _read_if_there(self._files, self.path)
        if data is None:
            return {}
        offsets: dict[TopicPartition, int] = {}
        for line in parse_checkpoint(data, self.path):
            words = line.split()
            if len(words) != 3:
                raise CheckpointError(f"{self.path}: malformed line {line!r}")
            key = TopicPartition(words[0], _number(words[1], self.path))
            offsets[key] = _number(words[2], self.path)
        return offsets

    def is_whole(self) -> bool:
        """Return whether the file exists and is whole, even without entries."""
        try:
            self.read()
            return self._files.read_bytes(self.path).count(b"\n") >= 2
        except (FileNotFoundError, CheckpointError):
            return False

    def prepare(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Take the offsets for `write_prepared`; return whether they have changed."""
        content = format_checkpoint(
            f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()
        )
        if content == self._content:
            return False
        self._content = content
        return True

    def write_prepared(self) -> None:
        """Write the newest content, durably. It also wins over a concurrent write of another
        thread."""
        content = None
        while content is not self._content:
            content = self._content
            self._files.write_atomic(self.path, content)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, durably."""
        self.prepare(offsets)
        self.write_prepared()


# -- leader epochs ---------------------------------------------------------------------------------


def format_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return the bytes of a `leader-epoch-checkpoint`, which are also shipped with a remote
    segment."""
    return format_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def parse_epochs(data: bytes, path: str = LEADER_EPOCH_CHECKPOINT) -> list[EpochEntry]:
    """Return the entries in the order of the file; CheckpointError if malformed."""
    entries: list[EpochEntry] = []
    for line in parse_checkpoint(data, path):
        words = line.split()
        if len(words) != 2:
            raise CheckpointError(f"{path}: malformed line {line!r}")
        entry = EpochEntry(_number(words[0], path), _number(words[1], path))
        if not 0 <= entry.epoch <= _EPOCH_MAX or entry.start_offset < 0:
            raise CheckpointError(f"{path}: {line!r} is no leader epoch")
        entries.append(entry)
    return entries


class LeaderEpochCheckpoint:
    """The `leader-epoch-checkpoint` of one partition's folder."""

    __slots__ = ("_files", "path")

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self.path = f"{folder}/{LEADER_EPOCH_CHECKPOINT}"

    def read(self) -> list[EpochEntry] | None:
        """The entries; None if there is no file, or an empty one: without entries it has two
        lines."""
        data = _read_if_there(self._files, self.path)
        return parse_epochs(data, self.path) if data else None

    def write(self, entries: Iterable[EpochEntry]) -> None:
        """Replace the file, durably."""
        self._files.write_atomic(self.path, format_epochs(entries))


# -- partition.metadata ----------------------------------------------------------------------------


def read_partition_metadata(files: FileSystem, folder: str) -> bytes | None:
    """Return the topic id (16 bytes), None if there is no file."""
    path = f"{folder}/{PARTITION_METADATA}"
    data = _read_if_there(files, path)
    if data is None:
        return None
    fields = dict(line.partition(": ")[::2] for line in _text(data, path).splitlines())
    version = fields.get("version", "")
    if version != "0":
        raise CheckpointError(f"{path}: unknown version {version!r}")
    return _uuid(fields.get("topic_id", ""), path)


def write_partition_metadata(files: FileSystem, folder: str, topic_id: bytes) -> None:
    """Write the topic id to the partition's folder, durably."""
    files.write_atomic(f"{folder}/{PARTITION_METADATA}", _partition_metadata(topic_id))


def note_topic_id(files: FileSystem, folder: str, topic_id: bytes) -> None:
    """Write `partition.metadata`; a power failure may undo it until `TopicIdFile.sync`."""
    with closing(files.open(f"{folder}/{PARTITION_METADATA}", create=True)) as file:
        file.truncate(0)
        file.append((_partition_metadata(topic_id),))


class TopicIdFile:
    """The `partition.metadata` of a log."""

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self.folder = folder
        self._is_durable = False

    def sync(self) -> None:
        """Make it durable, once, if there is one. The first append does so; any thread may have
        done it before."""
        if self._is_durable:
            return
        try:
            file = self._files.open(f"{self.folder}/{PARTITION_METADATA}")
        except FileNotFoundError:
            return
        try:
            file.fsync()
        finally:
            file.close()
        self._is_durable = True


def _partition_metadata(topic_id: bytes) -> bytes:
    # Kafka ends it without a newline
    return f"version: 0\ntopic_id: {uuid_to_str(topic_id)}".encode()


def _uuid(text: str, path: str) -> bytes:
    try:
        return uuid_from_str(text)
    except ValueError:
        raise CheckpointError(f"{path}: {text!r} is not an id") from None


# -- meta.properties -------------------------------------------------------------------------------


def read_meta_properties(files: FileSystem, log_dir: str) -> MetaProperties | None:
    """Return the log directory's owner, None if there is no file."""
    path = f"{log_dir}/{META_PROPERTIES}"
    data = _read_if_there(files, path)
    if data is None:
        return None
    properties: dict[str, str] = {}
    for line in _text(data, path).splitlines():
        if line.strip() and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip()
    version = properties.get("version", "0")
    if version != "1":
        raise CheckpointError(f"{path}: unknown version {version!r}")
    for key in ("cluster.id", "node.id", "directory.id"):
        if not properties.get(key):
            raise CheckpointError(f"{path}: no {key}")
    return MetaProperties(
        cluster_id=properties["cluster.id"],
        node_id=_number(properties["node.id"], path),
        directory_id=_uuid(properties["directory.id"], path),
    )


def write_meta_properties(files: FileSystem, log_dir: str, properties: MetaProperties) -> None:
    """Mark the log directory as this broker's, durably."""
    content = (
        "#\n"
        f"node.id={properties.node_id}\n"
        f"directory.id={uuid_to_str(properties.directory_id)}\n"
        "version=1\n"
        f"cluster.id={properties.cluster_id}\n"
    )
    files.write_atomic(f"{log_dir}/{META_PROPERTIES}", content.encode())


# -- clean shutdown --------------------------------------------------------------------------------


def write_clean_shutdown(files: FileSystem, log_dir: str, broker_epoch: int = -1) -> None:
    """Write the clean-shutdown marker after all logs in `log_dir` are flushed and closed."""
    content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    files.write_atomic(f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}", content.encode())


def take_clean_shutdown(files: FileSystem, log_dir: str) -> int | None:
    """Return the broker epoch of a clean last stop (-1 if unknown), and remove the marker.

    None means unclean: logs must be recovered. The removal is durable, so that a later crash is
    detected.
    """
    path = f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}"
    data = _read_if_there(files, path)
    if data is None:
        return None
    files.remove(path)
    files.fsync_dir(log_dir)
    _, _, rest = data.partition(b'"brokerEpoch":')
    digits = rest.strip().rstrip(b"}").strip()
    return int(digits) if digits.lstrip(b"-").isdigit() else -1
