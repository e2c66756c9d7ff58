"""A log's state of its idempotent and transactional producers (KIP-98).

Sequence and epoch checks before an append, the last five batches of each producer to recognise
retries, ongoing transactions for the last stable offset, and the snapshot files that save a start
from reading the whole log. Owned by one `Log`, which calls `check` and `update` around each append
and replays batches through `update` after `truncate_and_reload`. It never sees records, except the
one of an end transaction marker.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import ControlType, control_type, coordinator_epoch, iter_records
from tidelog_storage.producer_snapshot import (
    NO_EPOCH,
    NO_OFFSET,
    SEQUENCE_MAX,
    BatchMetadata,
    CorruptSnapshotError,
    ProducerEntry,
    format_snapshot,
    parse_snapshot,
)
from tidelog_storage.types import AppendResult, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_protocol.records import BatchHeader
    from tidelog_storage.seams import Buffer, FileSystem
    from tidelog_storage.types import TopicPartition

PRODUCER_ID_EXPIRATION_MS = 86_400_000
SNAPSHOT_SUFFIX = ".snapshot"
_OFFSET_MAX = 2**63 - 1
_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has just ended; `last_offset` is the marker's own."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStateManager:
    """The producers of one log up to `map_end_offset`, and their snapshots in its folder."""

    def __init__(
        self,
        files: FileSystem,
        folder: str,
        topic_partition: TopicPartition,
        *,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        snapshot_offsets: Iterable[int],
    ) -> None:
        """`snapshot_offsets`: those of the snapshots in `folder`."""
        self._files = files
        self.folder = folder
        self._topic_partition = topic_partition
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerEntry] = {}
        self.map_end_offset = 0  # offsets below are reflected here; the log moves it on each append
        self._last_snapshot_offset = 0
        # First offset -> producer id, ascending: insertion order is offset order.
        self._ongoing: dict[int, int] = {}
        # First offset -> last offset of transactions ended above the high watermark.
        self._unreplicated: dict[int, int] = {}
        self.snapshots = sorted(snapshot_offsets)

    # -- appends: the hot path -----------------------------------------------------------------

    def check(
        self, header: BatchHeader, offset: int, *, from_client: bool = True
    ) -> AppendResult | None:
        """Check whether a data batch with a producer id may be appended at `offset`.

        None: append it. An AppendResult: a retry of an appended batch (the log fills in its log
        start offset). StorageError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or
        INVALID_TXN_STATE otherwise. Batches of coordinators (`from_client` False) carry no
        sequences, so only their epoch counts. Replicated batches are not checked at all: the leader
        has done it.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return None  # never seen, expired or deleted: any sequence may start (KAFKA-5793)
        if from_client:
            batches = entry.batches
            if (
                batches
                and header.base_sequence == batches[-1].last_sequence + 1
                and header.producer_epoch == entry.producer_epoch
                and entry.current_txn_first_offset < 0
            ):
                return None  # the next one in order, as nearly always
            duplicate = entry.find_duplicate(header)
            if duplicate is not None:
                return AppendResult(
                    first_offset=duplicate.first_offset,
                    last_offset=duplicate.last_offset,
                    log_append_time=duplicate.timestamp,
                    log_start_offset=-1,
                    duplicate=True,
                )
        self._check_epoch(entry, header.producer_epoch, offset)
        if from_client:
            self._check_sequence(entry, header, offset)
        if entry.current_txn_first_offset >= 0 and not header.is_transactional:
            raise StorageError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} at offset"
                f" {offset} in partition {self._topic_partition}",
            )
        return None

    def _check_epoch(self, entry: ProducerEntry, producer_epoch: int, offset: int) -> None:
        if producer_epoch < entry.producer_epoch:
            raise StorageError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {entry.producer_id} at offset {offset} in"
                f" {self._topic_partition} is {producer_epoch}, which is smaller than the last seen"
                f" epoch {entry.producer_epoch}",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        sequence = header.base_sequence
        if header.producer_epoch != entry.producer_epoch:
            if sequence != 0 and entry.producer_epoch != NO_EPOCH:
                raise StorageError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {entry.producer_id}"
                    f" at offset {offset} in partition {self._topic_partition}:"
                    f" {header.producer_epoch} (request epoch), {sequence} (seq. number),"
                    f" {entry.producer_epoch} (current producer epoch)",
                )
            return
        last = entry.last_sequence
        if sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX):
            return
        raise StorageError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {entry.producer_id} at offset {offset} in"
            f" partition {self._topic_partition}: {sequence} (incoming seq. number), {last}"
            " (current end sequence number)",
        )

    def check_marker(self, header: BatchHeader, marker_coordinator_epoch: int, offset: int) -> None:
        """Check whether a coordinator's end transaction marker may be appended.

        StorageError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch, offset)
        if entry.coordinator_epoch > marker_coordinator_epoch:
            raise StorageError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {header.producer_id} at offset {offset}"
                f" in partition {self._topic_partition}: {marker_coordinator_epoch} (zombie),"
                f" {entry.coordinator_epoch} (current)",
            )

    def update(
        self, header: BatchHeader, batch: Buffer = b"", position: int = 0
    ) -> CompletedTransaction | None:
        """Apply a batch that is now in the log; it must have a producer id.

        For appends, replication and replay alike. `batch` at `position` is read only if it is a
        control batch; the transaction that it ends, if there was one, comes back and waits for
        `complete_transaction`.
        """
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            return self._update_marker(entry, header, batch, position)
        if header.producer_epoch != entry.producer_epoch:
            entry.set_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        timestamp = header.max_timestamp
        last_offset = header.base_offset + delta
        metadata = (header.last_sequence, last_offset, delta, timestamp)
        entry.batches.append(_new(BatchMetadata, metadata))
        entry.last_timestamp = timestamp
        if attributes & TRANSACTIONAL_BIT and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = header.base_offset
            self._ongoing[header.base_offset] = header.producer_id
        return None

    def _update_marker(
        self, entry: ProducerEntry, header: BatchHeader, batch: Buffer, position: int
    ) -> CompletedTransaction | None:
        record = next(iter_records(batch, position), None)
        if record is None:
            return None  # compaction left an empty control batch: the whole transaction is gone
        kind = control_type(record)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        completed = None
        if entry.current_txn_first_offset >= 0:
            completed = CompletedTransaction(
                header.producer_id,
                entry.current_txn_first_offset,
                header.base_offset,
                kind == ControlType.ABORT,
            )
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = coordinator_epoch(record)
        entry.last_timestamp = record.timestamp
        entry.current_txn_first_offset = NO_OFFSET
        return completed

    # -- transactions --------------------------------------------------------------------------

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this very epoch has begun here and not ended."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset >= 0
            and entry.producer_epoch == producer_epoch
        )

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset to note in the transaction index for a completed transaction."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Move a transaction from ongoing to ended but not yet replicated."""
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the bound of read_committed: the first open, or ended but unreplicated,
        transaction."""
        if not self._unreplicated:
            return next(iter(self._ongoing), None) if self._ongoing else None
        return min(*self._unreplicated, next(iter(self._ongoing), _OFFSET_MAX))

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Drop transactions whose marker is below it."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    # -- life of the map -----------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Forget producers idle for `expiration_ms`, except those in a transaction."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if self._is_expired(entry, now_ms)
        ]
        for producer_id in expired:
            del self.producers[producer_id]

    def forget(self, producer_id: int) -> bool:
        """Forget a producer as if it had been idle; whether it was known and in no transaction."""
        entry = self.producers.get(producer_id)
        if entry is None or entry.current_txn_first_offset >= 0:
            return False
        del self.producers[producer_id]
        return True

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        idle_ms = now_ms - entry.last_timestamp
        return entry.current_txn_first_offset < 0 and idle_ms >= self.expiration_ms

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Truncate to [start, end): drop snapshots outside, reload the newest one left.

        The log then replays batches from `map_end_offset` on.
        """
        for offset in list(self.snapshots):
            if offset > log_end_offset or offset <= log_start_offset:
                self.remove_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_incremented(log_start_offset)
            return
        self._clear()
        self._load_newest(log_start_offset, now_ms)

    def _clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load_newest(self, log_start_offset: int, now_ms: int) -> None:
        while self.snapshots:
            offset = self.snapshots[-1]
            entries = self._read(offset)
            if entries is None:
                self.remove_snapshot(offset)
                continue
            self._load(entries, now_ms)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _load(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        for entry in entries:
            if not self._is_expired(entry, now_ms):
                self.producers[entry.producer_id] = entry
        self._ongoing = dict(
            sorted(
                (entry.current_txn_first_offset, entry.producer_id)
                for entry in self.producers.values()
                if entry.current_txn_first_offset >= 0
            )
        )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Clear the state: the log was emptied and continues at `offset`."""
        self._clear()
        for snapshot in list(self.snapshots):
            self.remove_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def start_from_snapshot(self, offset: int, now_ms: int) -> None:
        """Load the snapshot of `offset`: the log was emptied and continues there."""
        for snapshot in list(self.snapshots):
            if snapshot != offset:
                self.remove_snapshot(snapshot)
        self._clear()
        self._load_newest(offset, now_ms)

    def on_log_start_incremented(self, log_start_offset: int) -> None:
        """Offsets below `log_start_offset` are gone; producers stay until they expire."""
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        self._last_snapshot_offset = self.snapshots[-1] if self.snapshots else log_start_offset

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot_path(self, offset: int) -> str:
        """Where the snapshot of the state before `offset` lies."""
        return f"{self.folder}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def snapshot_content(self) -> bytes:
        """The bytes of a snapshot taken now."""
        return format_snapshot(self.producers[key] for key in sorted(self.producers))

    def take_snapshot(self) -> int | None:
        """Write the state at `map_end_offset`; return the offset, or None if there was no change.

        An unsynced one may be torn by a crash: its checksum shows that, and the log is replayed.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        self._write(offset, self.snapshot_content(), sync=False)
        self._last_snapshot_offset = offset
        return offset

    def has_snapshot(self, offset: int) -> bool:
        """Return whether the snapshot of `offset` exists and is whole."""
        return self._read(offset) is not None

    def _read(self, offset: int) -> list[ProducerEntry] | None:
        """Read a snapshot; None if it is not there, or not whole."""
        if offset not in self.snapshots:
            return None
        try:
            return parse_snapshot(self._files.read_bytes(self.snapshot_path(offset)))
        except (CorruptSnapshotError, FileNotFoundError):
            return None

    def sync_snapshot(self, offset: int) -> bool:
        """Make the snapshot of `offset` durable; False if it is not there, or not whole."""
        if not self.has_snapshot(offset):
            return False
        with closing(self._files.open(self.snapshot_path(offset))) as file:
            file.fsync()
        self._files.fsync_dir(self.folder)
        return True

    def before(self, offset: int, log_start_offset: int) -> ProducerStateManager:
        """The state at the newest snapshot below `offset`; nothing at `log_start_offset` if there
        is none."""
        older = ProducerStateManager(
            self._files,
            self.folder,
            self._topic_partition,
            expiration_ms=self.expiration_ms,
            snapshot_offsets=[snapshot for snapshot in self.snapshots if snapshot < offset],
        )
        older._load_newest(log_start_offset, 0)  # without expiry
        return older

    def oldest_open_at(self, offset: int) -> int | None:
        """First offset of the oldest transaction that is open in the snapshot of `offset`, or
        `offset` if none is; None if there is no good snapshot."""
        entries = None
        with suppress(OSError):
            entries = self._read(offset)
        if entries is None:
            return None
        open_offsets = [entry.current_txn_first_offset for entry in entries]
        return min([one for one in open_offsets if one >= 0], default=offset)

    def write_snapshot(self, offset: int, content: bytes) -> None:
        """Durably write the snapshot of `offset`, from elsewhere or instead of a lost one.

        StorageError CORRUPT_MESSAGE if it is invalid.
        """
        try:
            parse_snapshot(content)
        except CorruptSnapshotError as error:
            raise StorageError(
                ErrorCode.CORRUPT_MESSAGE,
                f"producer snapshot of {self._topic_partition} at {offset}: {error}",
            ) from error
        self._write(offset, content, sync=True)

    def _write(self, offset: int, content: bytes, *, sync: bool) -> None:
        with closing(self._files.open(self.snapshot_path(offset), create=True)) as file:
            file.truncate(0)
            file.append([content])
            if sync:
                file.fsync()
        if offset not in self.snapshots:
            self.snapshots.append(offset)
            self.snapshots.sort()

    @property
    def latest_snapshot_offset(self) -> int | None:
        """Offset of the newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    def remove_snapshot(self, offset: int) -> None:
        """Remove one snapshot, as its segment goes; no error if there is none."""
        if offset in self.snapshots:
            self.snapshots.remove(offset)
        self._files.remove(self.snapshot_path(offset))

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """On loading: keep the snapshots of segments, and the newest one if it is beyond them all.

        That one was taken on a clean stop, at the log's end.
        """
        bases = set(segment_base_offsets)
        newest_base = max(bases, default=-1)
        for offset in list(self.snapshots):
            is_last = offset == self.snapshots[-1] and offset > newest_base
            if offset not in bases and not is_last:
                self.remove_snapshot(offset)
