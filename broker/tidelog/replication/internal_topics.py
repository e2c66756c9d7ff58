"""Records of Kafka's own topics (`__consumer_offsets`, ...): a coordinator writes and loads them.

It appends batches of key/value records to partitions led by this broker, reports when they are
committed, and reads all of them back. The coordinators call it; it does not know what the records
mean. The controller creates the topics: `ensure`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.java_order import java_hash
from tidelog.replication.partition import Partition
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.records import (
    BatchHeader,
    Codec,
    Record,
    build_batch,
    build_own_batch,
    crc_is_valid,
    iter_batches,
    iter_records,
)
from tidelog_storage.types import Records, StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.replication.replica_manager import ReplicaManager

__all__ = ["InternalTopic", "LoadedRecord", "Topics", "ensure", "partition_for"]

KeyValue = tuple[bytes | None, bytes | None]
"""A record; in a compacted topic it has a key, and value None is a tombstone."""

LOAD_CHUNK_BYTES = 1 << 16
"""Read at once while a partition is loaded, and one batch at least."""

LOAD_CHUNK_RECORDS = 500
"""Decoded at once, about ten milliseconds; the loop runs between chunks."""

_Place = tuple[int, BatchHeader]  # of a batch in a buffer


class LoadedRecord(NamedTuple):
    """A record of the log, with the header of its batch (producer, control bit)."""

    header: BatchHeader
    record: Record


class Topics(Protocol):
    """The part of the controller that creates topics on demand."""

    def auto_create(self, names: Sequence[str]) -> Awaitable[object]:
        """Create the topics that do not exist; internal ones with their own settings."""
        ...


@lru_cache(maxsize=1024)
def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a group or transactional id; as in Kafka, abs of the smallest int is
    0."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


async def ensure(topics: Topics, image: Callable[[], ClusterImage], name: str) -> bool:
    """Create an internal topic if it is missing; False if that failed: the client retries."""
    if name not in image().topics:
        await topics.auto_create([name])
    return name in image().topics


class InternalTopic:
    """The partitions of one internal topic that this broker leads."""

    def __init__(
        self,
        name: str,
        replica_manager: ReplicaManager,
        *,
        commit_timeout_ms: int,
        codec: int = Codec.NONE,
        load_buffer_bytes: int = LOAD_CHUNK_BYTES,
    ) -> None:
        self.name = name
        self._replica_manager = replica_manager
        self._commit_timeout_ms = commit_timeout_ms
        self._codec = codec
        self._load_chunk_bytes = min(load_buffer_bytes, LOAD_CHUNK_BYTES)

    def append(
        self,
        index: int,
        records: Sequence[KeyValue],
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        """Append the records as one batch, as leader in exactly `leader_epoch`: a coordinator that
        does not know its successor yet must not write for it. Return the log's end.

        Raises StorageError. Nothing is woken or committed before `commit`, so that the caller can
        update its state first.
        """
        partition = self._partition(index)
        log = partition.log
        partition.append_own(
            *build_own_batch(records, now_ms, log.log_end_offset, leader_epoch, self._codec), now_ms
        )
        return log.log_end_offset

    def append_in_transaction(
        self,
        index: int,
        records: Sequence[KeyValue],
        producer: tuple[int, int],
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        """Append like `append`, as part of the open transaction of this producer id and epoch."""
        batch = build_batch(
            [Record(delta, now_ms, key, value) for delta, (key, value) in enumerate(records)],
            codec=self._codec,
            base_sequence=0,  # its value is not checked
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=True,
        )
        return self.append_batch(
            index, memoryview(bytearray(batch)), leader_epoch=leader_epoch, now_ms=now_ms
        )

    def append_batch(self, index: int, batch: memoryview, *, leader_epoch: int, now_ms: int) -> int:
        """Append a prebuilt batch like `append`."""
        partition = self._partition(index)
        if partition.leader_epoch != leader_epoch:
            raise StorageError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition.append(batch, acks=-1, now_ms=now_ms, from_client=False).last_offset + 1

    def commit(self, index: int, end_offset: int, on_done: Callable[[ErrorCode], None]) -> None:
        """Call back when everything before `end_offset` is committed: with NONE, or why it may
        never be.

        `on_done` may be called before this returns. After REQUEST_TIMED_OUT the records may still
        become committed.
        """
        error = self.commit_at_once(index, end_offset)
        if error is None:
            self.await_commit(index, end_offset, on_done)
        else:
            on_done(error)

    def commit_at_once(self, index: int, end_offset: int) -> ErrorCode | None:
        """Wake the readers of new records. Return the answer of `commit` if it is decided now, as
        without followers; else None, and the caller calls `await_commit`."""
        try:
            partition = self._partition(index)
        except StorageError as error:
            return error.code
        self._replica_manager.appended((partition.topic_partition,))
        return partition.acknowledged(end_offset)

    def await_commit(
        self, index: int, end_offset: int, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Call back as `commit` does, after `commit_at_once`."""
        try:
            partition = self._partition(index)
        except StorageError as error:
            on_done(error.code)
            return
        operation = self._replica_manager.await_acks(
            [(partition, end_offset)], self._commit_timeout_ms, lambda errors: on_done(errors[0])
        )
        if operation.decided:
            on_done(operation.errors[0])

    def is_committed(self, index: int, end_offset: int) -> bool:
        """Return whether everything before `end_offset` is committed, and `commit` would say so."""
        try:
            return self._partition(index).acknowledged(end_offset) is ErrorCode.NONE
        except StorageError:
            return False

    def high_watermark(self, index: int) -> int:
        """Return the high watermark; StorageError if the partition is not here."""
        high_watermark: int = self._partition(index).log.high_watermark
        return high_watermark

    def delete_before(self, index: int, offset: int) -> None:
        """Delete the records before an offset, which is committed; StorageError if refused."""
        deleted = self._partition(index).delete_records(offset)
        if isinstance(deleted, ErrorCode):
            raise StorageError(deleted)

    def is_vacant(self, index: int) -> bool:
        """Return whether there is nothing to load."""
        log = self._partition(index).log
        return bool(log.log_start_offset == log.log_end_offset)

    def suspect(self, index: int) -> None:
        """Have a partition scrubbed: it cannot be loaded."""
        self._replica_manager.suspect(TopicPartition(self.name, index))

    def load(self, index: int) -> Iterator[list[LoadedRecord]]:
        """Yield everything up to the current log end, in chunks; the loop may run between them.

        Raises StorageError or OSError if the log cannot be read, ProtocolError for corrupt batches.
        """
        log = self._partition(index).log
        offset, end_offset = log.log_start_offset, log.log_end_offset
        while offset < end_offset:
            outcome = log.read(
                offset, self._load_chunk_bytes, upper_bound=end_offset, min_one_batch=True
            )
            if not isinstance(outcome, Records):
                raise StorageError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if outcome.next_offset <= offset:
                return  # compaction left no records after this
            data = b"".join(outcome.parts)  # no view: the file may change between chunks
            records = (
                LoadedRecord(header, record)
                for position, header in self._sound_batches(index, data)
                for record in iter_records(data, position)
                if offset <= record.offset < end_offset
            )
            is_over = False
            while not is_over:
                chunk = list(islice(records, LOAD_CHUNK_RECORDS))
                is_over = len(chunk) < LOAD_CHUNK_RECORDS
                yield chunk
            offset = outcome.next_offset

    def _sound_batches(self, index: int, data: bytes | memoryview) -> Iterator[_Place]:
        """Check each batch, because a disk may rot: ProtocolError for a damaged one."""
        for position, header in iter_batches(data):
            if not crc_is_valid(data, header, position):
                where = f"{self.name}-{index} at {header.base_offset}"
                raise ProtocolError(f"{where}: the batch does not match its checksum")
            yield position, header

    def _partition(self, index: int) -> Partition:
        partition = self._replica_manager.partition(self.name, index)
        if isinstance(partition, Partition):
            return partition
        raise StorageError(partition)
