"""Files that spare a restart from reading `__remote_log_metadata` again.

There is one snapshot for each user partition, keyed by its topic id, and
`_rlmm_committed_offsets`: the position in each metadata partition when the snapshots were taken.
Kafka had both until 2024. They are hints: a file that can't be read, or is of another metadata
topic, is ignored. `_rlmm_topic_id` has the topic of the committed offsets, whose own file has
Kafka's format.

They are in a log directory itself: Kafka's LogManager refuses one with a folder that is no
partition's. The prefix keeps them apart from what else is there.

A snapshot also shows partitions whose topic was deleted while the broker was down. So it is written
before the partition's first copy.

Order of writing: first files of unassigned partitions are removed, then changed snapshots are
written, then the committed offsets. So after any crash, a snapshot and the committed offset of its
metadata partition together have everything below the larger of the two.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import uuid_from_str, uuid_to_str
from tidelog_storage.checkpoints import CheckpointError, format_checkpoint, parse_checkpoint
from tidelog_storage.remote.api import PartitionDeleteState, TopicIdPartition
from tidelog_storage.remote.metadata_cache import PartitionSnapshot
from tidelog_storage.remote.metadata_records import decode_snapshot_entry, encode_snapshot_entry

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidelog.seams import AsyncFiles
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["COMMITTED_OFFSETS", "MetadataFiles", "SavedPartition"]

log = logging.getLogger("tidelog.tiered.metadata")

PREFIX = "_rlmm_"
COMMITTED_OFFSETS = f"{PREFIX}committed_offsets"
TOPIC_ID = f"{PREFIX}topic_id"
SUFFIX = ".snapshot"
VERSION = 2  # 1 did not say whether it is older than its topic; Kafka's had no checksum and no ids
ENTRIES_AT_ONCE = 200  # some ten milliseconds of coding, between which the loop runs

_HEAD = struct.Struct(">hI")  # version, checksum of the rest
# ids, partitions, length of the name, offset, older or not, state; counts of what follows
_FACTS = struct.Struct(">16s16siihq?biii")
_PAIR = struct.Struct(">iq")


class SavedPartition(NamedTuple):
    """A snapshot with all events of its metadata partition below `next_offset`.

    A snapshot that is older than the topic also has the events of the deleted topic.
    """

    snapshot: PartitionSnapshot
    metadata_partition: int
    next_offset: int
    is_older: bool


class MetadataFiles:
    """The files in a log directory. One task writes at a time, in the order of the calls."""

    def __init__(self, files: AsyncFiles, folder: str) -> None:
        self._files = files
        self._writing = asyncio.Lock()
        self.folder = folder

    def path(self, partition: TopicIdPartition) -> str:
        """Return the path of a partition's snapshot."""
        return f"{self.folder}/{_file_name(partition)}"

    # -- reading -----------------------------------------------------------------------------------

    async def load(self, partition: TopicIdPartition, topic_id: bytes) -> SavedPartition | None:
        """Read a partition's snapshot, if it has one of the metadata topic `topic_id`."""
        path = self.path(partition)
        try:
            return await _decode(await self._files.read(path), partition, topic_id)
        except FileNotFoundError:
            return None
        except (OSError, ProtocolError, ValueError, struct.error) as error:
            log.warning("%s is ignored: %s", path, error)
            return None

    async def committed(self, topic_id: bytes) -> dict[int, int]:
        """Read the committed offsets by metadata partition; empty if they are of another topic."""
        path = f"{self.folder}/{COMMITTED_OFFSETS}"
        try:
            if await self._files.read(f"{self.folder}/{TOPIC_ID}") != _topic_line(topic_id):
                return {}
            pairs = [line.split() for line in parse_checkpoint(await self._files.read(path), path)]
            return {int(index): int(offset) for index, offset in pairs}
        except FileNotFoundError:
            return {}
        except (OSError, CheckpointError, ValueError) as error:
            log.warning("%s is ignored: %s", path, error)
            return {}

    async def partitions(self, known_topic_ids: Collection[bytes]) -> list[TopicIdPartition]:
        """Return the partitions with snapshots whose topics are not known."""
        found = []
        for name in await self._names():
            if not name.endswith(SUFFIX):
                continue
            try:
                if uuid_from_str(name[len(PREFIX) :][:22]) not in known_topic_ids:
                    found.append(_parse_head(await self._files.read(f"{self.folder}/{name}"))[1])
            except (OSError, ValueError, struct.error) as error:
                log.warning("%s is ignored: %s", name, error)
        return found

    async def _names(self) -> list[str]:
        return [name for name in await self._files.list(self.folder) if name.startswith(PREFIX)]

    # -- writing -----------------------------------------------------------------------------------

    async def save(
        self,
        topic_id: bytes,
        changed: Sequence[SavedPartition],
        assigned: Collection[TopicIdPartition],
        committed: Mapping[int, int],
    ) -> None:
        """Write changed snapshots, and remove those that are not `assigned`; OSError."""
        names = {_file_name(partition) for partition in assigned} | {COMMITTED_OFFSETS, TOPIC_ID}
        async with self._writing:
            for name in await self._names():
                if name not in names:
                    await self._files.remove(f"{self.folder}/{name}")
            for saved in changed:
                await self._write(saved, topic_id)
            await self._claim(topic_id)
            lines = [f"{index} {offset}" for index, offset in sorted(committed.items())]
            path = f"{self.folder}/{COMMITTED_OFFSETS}"
            await self._files.write_atomic(path, format_checkpoint(lines))

    async def note(self, topic_id: bytes, saved: SavedPartition) -> None:
        """Write the snapshot of a partition that is past the committed offset; OSError."""
        async with self._writing:
            await self._write(saved, topic_id)

    async def _write(self, saved: SavedPartition, topic_id: bytes) -> None:
        data = await _encode(saved, topic_id)
        await self._files.write_atomic(self.path(saved.snapshot.partition), data)

    async def _claim(self, topic_id: bytes) -> None:
        """Bind the committed offsets to this topic; those of another topic are removed first."""
        path = f"{self.folder}/{TOPIC_ID}"
        try:
            known = await self._files.read(path)
        except FileNotFoundError:
            known = b""
        if known != _topic_line(topic_id):
            await self._files.remove(f"{self.folder}/{COMMITTED_OFFSETS}")
            await self._files.write_atomic(path, _topic_line(topic_id))


def _topic_line(topic_id: bytes) -> bytes:
    return f"{uuid_to_str(topic_id)}\n".encode()


def _file_name(partition: TopicIdPartition) -> str:
    return f"{PREFIX}{uuid_to_str(partition.topic_id.bytes)}-{partition.partition}{SUFFIX}"


# ---- bytes ---------------------------------------------------------------------------------------


async def _encode(saved: SavedPartition, topic_id: bytes) -> bytes:
    snapshot, state = saved.snapshot, saved.snapshot.delete_state
    partition, name = snapshot.partition, snapshot.partition.topic.encode()
    ids = topic_id, partition.topic_id.bytes, partition.partition, saved.metadata_partition
    position = saved.next_offset, saved.is_older, -1 if state is None else state
    lists = snapshot.segments, snapshot.finished, snapshot.highest_offsets
    parts = [_FACTS.pack(*ids, len(name), *position, *map(len, lists)), name]
    for number, segment in enumerate(snapshot.segments, 1):
        entry = encode_snapshot_entry(segment)
        parts += (len(entry).to_bytes(4, "big"), entry)
        if number % ENTRIES_AT_ONCE == 0:
            await asyncio.sleep(0)
    parts.append(struct.pack(f">{len(snapshot.finished)}i", *snapshot.finished))
    parts += [_PAIR.pack(*pair) for pair in snapshot.highest_offsets]
    body = b"".join(parts)
    return _HEAD.pack(VERSION, zlib.crc32(body)) + body


def _parse_head(data: bytes) -> tuple[bytes, TopicIdPartition, tuple[int, ...], memoryview]:
    """Return the metadata topic's id, the partition, the other facts, and the rest of the file."""
    version, checksum = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != VERSION or zlib.crc32(body) != checksum:
        raise ValueError("unknown version or wrong checksum")
    topic_id, user_topic_id, number, index, name_size, *facts = _FACTS.unpack_from(body)
    end = _FACTS.size + name_size
    name = str(body[_FACTS.size : end], "utf-8")
    partition = TopicIdPartition(UUID(bytes=user_topic_id), name, number)
    return topic_id, partition, (index, *facts), body[end:]


async def _decode(data: bytes, partition: TopicIdPartition, topic_id: bytes) -> SavedPartition:
    found_id, found, facts, body = _parse_head(data)
    if (found_id, found) != (topic_id, partition):
        raise ValueError("it is of another topic")
    index, next_offset, is_older, state, segment_count, finished_count, pair_count = facts
    position = 0
    segments: list[RemoteSegment] = []
    while len(segments) < segment_count:
        size = int.from_bytes(body[position : position + 4], "big")
        position += 4 + size
        segments.append(decode_snapshot_entry(body[position - size : position], partition))
        if len(segments) % ENTRIES_AT_ONCE == 0:
            await asyncio.sleep(0)
    finished = struct.unpack_from(f">{finished_count}i", body, position)
    position += 4 * finished_count
    if len(set(finished)) < finished_count or not all(
        0 <= slot < segment_count for slot in finished
    ):
        raise ValueError("a finished segment is not there, or is there twice")
    pairs = body[position : position + _PAIR.size * pair_count]
    snapshot = PartitionSnapshot(
        partition,
        tuple(segments),
        finished,
        tuple(_PAIR.iter_unpack(pairs)),
        None if state < 0 else PartitionDeleteState(state),
    )
    return SavedPartition(snapshot, index, next_offset, bool(is_older))
