"""`__cluster_metadata-0`: the durable log of the cluster's metadata, and the image built from it.

In Kafka's own record format over a plain `Log`, with the files Kafka keeps beside it
(`partition.metadata`, `leader-epoch-checkpoint`, `quorum-state`), as far as a quorum of one voter
has use for them. Only the controller writes it.

One operation is one batch: after a crash it is there whole or not at all. `append` puts it into
the log and into `latest`, the image that the controller decides by; `commit` also waits until the
batch is on disk. Then the image is published as `image` and the listeners are called, in the order
they subscribed, and only after that does `commit` return. Batches appended while an fsync runs
share the next one.

Failures: a refused append (disk full) fails that commit alone. A failed fsync leaves unknown what
is on disk: everything waiting fails, nothing is accepted any more, and `on_failure` ends the
broker.
"""

# ruff: noqa: PLC0415 - what has to do with snapshots is imported with the first of them

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.durable import DurableEnd, check_order, flush_log
from tidelog.cluster.metadata.image import CLUSTER_METADATA_TOPIC, ClusterImage
from tidelog.cluster.metadata.quorum_state import (
    Election,
    QuorumStateError,
    read_quorum_state,
    write_quorum_state,
)
from tidelog.cluster.metadata.replay import ImageBuilder, replay
from tidelog_protocol.batch import crc_is_valid, iter_batches
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.records import ControlType, Record, build_batch, iter_records
from tidelog_storage.checkpoints import write_partition_metadata
from tidelog_storage.config import LogConfig
from tidelog_storage.folders import make_durable_folder
from tidelog_storage.recovery import Checkpointed, load_log
from tidelog_storage.types import Records, StorageError, TopicPartition, damage_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.seams import Clock, Executor
    from tidelog_protocol.batch import BatchHeader
    from tidelog_protocol.schema import Message
    from tidelog_storage.log import Log
    from tidelog_storage.seams import FileSystem

    Listener = Callable[[MetadataDelta, ClusterImage], None]
    LeadershipListener = Callable[[bool, int], None]

_logger = logging.getLogger(__name__)

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
METADATA_TOPIC_ID = bytes(15) + b"\x01"

METADATA_FEATURE = "metadata.version"
METADATA_VERSION = 30  # Apache Kafka's 4.3-IV0: what our records' versions follow
BATCH_BYTES_MAX = 8 << 20
SEGMENT_BYTES = 1 << 30
SNAPSHOT_BYTES = 20 << 20  # metadata.log.max.record.bytes.between.snapshots
SNAPSHOT_INTERVAL_S = 3600.0  # metadata.log.max.snapshot.interval.ms

# Versions in which records are written at METADATA_VERSION; 0 for those not named.
RECORD_VERSIONS: dict[type, int] = {
    tables.RegisterBrokerRecord: 4,
    tables.PartitionRecord: 2,
    tables.PartitionChangeRecord: 2,
    tables.BrokerRegistrationChangeRecord: 3,
}

_READ_BYTES = 1 << 20
_CONTROL_KEY = struct.Struct(">hh")
_LEADER_CHANGE = struct.Struct(">hi")  # version, leader; see LeaderChangeMessage v0


class NotControllerError(StorageError):
    """This node does not lead the metadata quorum (any more): what was asked may or may not happen.

    Its code is NOT_CONTROLLER, which clients answer by asking the active controller.
    """

    def __init__(self, message: str = "this node is not the active controller") -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class MetadataLog:
    """The metadata log of this node, which is its only voter.

    `image`: committed, for all but the controller. `latest`: also with appends that are not on disk
    yet. Invariant: image.offset <= latest.offset = the log's last record.
    """

    def __init__(
        self,
        *,
        files: FileSystem,
        executor: Executor,
        clock: Clock,
        directory: str,
        node_id: int,
        cluster_id: str,
        segment_bytes: int = SEGMENT_BYTES,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        snapshot_interval_s: float = SNAPSHOT_INTERVAL_S,
        on_failure: Callable[[BaseException], None] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`directory` is the log directory that holds the `__cluster_metadata-0` folder;
        `snapshot_bytes` how much the log grows before the next snapshot (KIP-630), which is also
        taken with the first commit `snapshot_interval_s` after the last one (0: it is not)."""
        self._files = files
        self._executor = executor
        self._clock = clock
        self._folder = f"{directory}/{METADATA_PARTITION}"
        self._node_id = node_id
        self._config = LogConfig(
            {
                "segment.bytes": segment_bytes,
                "max.message.bytes": BATCH_BYTES_MAX,
                "retention.ms": -1,
            }
        )
        self._on_failure = on_failure
        self._report = report
        self._listeners: list[Listener] = []
        self._leadership_listeners: list[LeadershipListener] = []
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flusher: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._published = False
        self._snapshot_bytes = snapshot_bytes
        self._snapshot_interval_s = snapshot_interval_s
        self._snapshot_at = clock.monotonic()  # the last one, or this log's start
        self._snapshot_size = 0  # size of the log at the last snapshot
        self._snapshot_epoch = 0
        self._snapshotting: asyncio.Task[None] | None = None
        self._flushed = 0  # all records below are on disk; the recovery point may be lower
        self._durable = DurableEnd(files, self._folder)
        self._log: Log | None = None
        self._voters: Sequence[int] = (node_id,)
        self._transaction: list[Message] | None = None  # records of a transaction being replayed
        self.image = ClusterImage(cluster_id=cluster_id)
        self.latest = self.image

    @property
    def log(self) -> Log:
        """The log; only after `open`."""
        assert self._log is not None, "open() comes first"
        return self._log

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(delta, image)` after each change of `image`.

        The first call comes with the first commit of this run (the broker's registration), so
        that no listener acts on leaders of the run before.
        """
        self._listeners.append(listener)

    # ---- leadership ---------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller, and its `latest` holds all that is committed.

        Invariant: while it is, only this node appends, and `commit` may be called.
        """
        return self._log is not None and self._failed is None

    @property
    def leader_id(self) -> int:
        """The active controller known to this node, -1 if there is none."""
        return self._node_id if self.is_leader else -1

    @property
    def leader_epoch(self) -> int:
        """The epoch of `leader_id`; grows with every election."""
        return self.latest.leader_epoch

    def subscribe_leadership(self, listener: LeadershipListener) -> None:
        """Call `listener(is_leader, epoch)` whenever this node begins or ceases to lead.

        A node that begins has applied everything committed to `latest`. A quorum of one leads from
        `open` on, which calls the listeners that have subscribed by then.
        """
        self._leadership_listeners.append(listener)

    # ---- starting -----------------------------------------------------------------------------

    def open(self) -> ClusterImage:
        """Load and replay the log, then lead it in a new epoch; a first start bootstraps it.

        Nothing is forced to disk but the epoch: the first commit does that. Raises ReplayError,
        ProtocolError or StorageError for a log that cannot be understood.
        """
        log = self._load()
        stored = self._stored_election()
        epoch = max(log.epochs.latest_epoch, stored.epoch, self._snapshot_epoch) + 1
        self.latest = self._replay_all(epoch)
        # Durable before the first record of the epoch: an epoch is never led twice.
        election = Election(epoch, leader_id=self._node_id)
        write_quorum_state(self._files, self._folder, election, self._voters)
        self._append_batch([self._leader_change()], epoch, control=True)
        if METADATA_FEATURE not in self.latest.features:
            self.append(bootstrap_records())
        self.image = self.latest
        for listener in self._leadership_listeners:
            listener(True, epoch)
        return self.image

    def _stored_election(self) -> Election:
        """Read `quorum-state`. For a lone voter, the log's epochs replace a damaged file."""
        try:
            return read_quorum_state(self._files, self._folder) or Election()
        except QuorumStateError as error:
            _logger.warning("rewriting quorum-state: %s", error)
            return Election()

    def _load(self) -> Log:
        """Load the newest snapshot as `image`, and the log. StorageError for lost durable data."""
        created = not self._files.exists(f"{self._folder}/partition.metadata")
        if created:  # the vote may be the first durable file in it
            make_durable_folder(self._files, self._folder)
        promised = self._durable.read()
        log_start_offset = 0 if created else self._load_snapshot()
        log = self._log = load_log(
            self._files,
            self._folder,
            METADATA_PARTITION,
            self._config,
            now_ms=self._clock.wall_ms(),
            had_clean_shutdown=False,
            checkpointed=Checkpointed(log_start_offset=log_start_offset, keep_below=promised),
            topic_id=METADATA_TOPIC_ID,
            report=self._report,
        )
        check_order(log, promised, self._clock.wall_ms())
        snapshot_end = self.image.offset + 1
        if max(log.log_end_offset, snapshot_end) < promised:
            raise damage_below(self._folder, log.log_end_offset, promised)
        # A leader's snapshot, if the log ends in an older epoch: the crash preceded the truncation.
        is_news = log.epochs.latest_epoch < self._snapshot_epoch and log.size_in_bytes > 0
        if log.log_end_offset < snapshot_end or is_news:
            log.truncate_fully_and_start_at(snapshot_end)
        if log.log_start_offset > snapshot_end:
            raise damage_below(self._folder, snapshot_end, log.log_start_offset)
        if snapshot_end:
            self._begin_at_snapshot(log, snapshot_end)
            self._snapshot_size = log.size_in_bytes
        if created:
            write_partition_metadata(self._files, self._folder, METADATA_TOPIC_ID)
        return log

    def _load_snapshot(self) -> int:
        """Load `image` from the newest snapshot, if there is one; return where the log starts."""
        if not any(name.endswith(".checkpoint") for name in self._files.list(self._folder)):
            return 0
        from tidelog.cluster.metadata.snapshots import list_snapshots, read_snapshot

        snapshots = list_snapshots(self._files, self._folder)
        if not snapshots:
            return 0
        newest = snapshots[-1]
        self.image = read_snapshot(self._files, self._folder, newest, self.image.cluster_id)
        self._snapshot_epoch = newest.epoch
        return snapshots[0].end_offset

    def _begin_at_snapshot(self, log: Log, committed: int) -> None:
        from tidelog.cluster.metadata.snapshots import begin_at_oldest

        log.set_high_watermark(committed)
        begin_at_oldest(self._files, self._folder, log)

    def _replay_all(self, epoch: int) -> ClusterImage:
        builder = ImageBuilder(self.image)
        for header, batch in self._batches(self.image.offset + 1, self.log.log_end_offset):
            if not header.is_control:
                self._apply_batch(builder, batch)
        # A transaction left open at the end never happened: its controller is gone.
        self._transaction = None
        end = self.log.log_end_offset
        return builder.build(offset=end - 1, leader_epoch=epoch, controller_id=self._node_id)

    def _apply_batch(self, builder: ImageBuilder, batch: memoryview) -> None:
        """Apply a batch's records; those of an open transaction when it ends (KIP-868)."""
        for record in decode_batch(batch):
            if isinstance(record, tables.BeginTransactionRecord):
                self._transaction = []
            elif isinstance(record, tables.EndTransactionRecord):
                for held in self._transaction or ():
                    builder.apply(held)
                self._transaction = None
            elif isinstance(record, tables.AbortTransactionRecord):
                self._transaction = None
            elif self._transaction is not None:
                self._transaction.append(record)
            else:
                builder.apply(record)

    def _batches(self, position: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of [position, end), batch boundaries. ProtocolError for a changed
        one."""
        while position < end:
            outcome = self.log.read(position, _READ_BYTES, upper_bound=end, min_one_batch=True)
            assert isinstance(outcome, Records)
            assert outcome.size, f"nothing to read at {position} of {self.log}"
            data = memoryview(b"".join(outcome.parts))
            for start, header in iter_batches(data):
                if not crc_is_valid(data, header, start):
                    raise ProtocolError(f"the metadata log is damaged at {header.base_offset}")
                if position <= header.base_offset < end:
                    yield header, data[start : start + header.size_in_bytes]
                position = max(position, header.next_offset)

    def _leader_change(self) -> Record:
        """Build the first record of an epoch: the leader, and the voters, which may all have
        granted."""
        key = _CONTROL_KEY.pack(0, ControlType.LEADER_CHANGE)
        voters = b"".join([voter.to_bytes(4, "big") + b"\0" for voter in self._voters])
        listed = bytes([len(self._voters) + 1]) + voters
        value = _LEADER_CHANGE.pack(0, self._node_id) + listed + listed + b"\0"
        return Record(0, self._clock.wall_ms(), key, value)

    # ---- writing ------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """Offset that the next record gets."""
        return self.log.log_end_offset

    def append(self, records: Sequence[Message]) -> int:
        """Append one operation as one batch and apply it to `latest`; return the log's end.

        StorageError if it cannot be written: nothing happened. ReplayError for records that do not
        fit: nothing was written.
        """
        if self._failed is not None:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log has failed")
        epoch = self.latest.leader_epoch
        latest = replay(
            self.latest,
            records,
            offset=self.next_offset + len(records) - 1,
            leader_epoch=epoch,
            controller_id=self._node_id,
        )
        now_ms = self._clock.wall_ms()
        values = [
            tables.encode_record(record, RECORD_VERSIONS.get(type(record), 0)) for record in records
        ]
        end = self._append_batch(
            [Record(index, now_ms, None, value) for index, value in enumerate(values)], epoch
        )
        assert end == latest.offset + 1
        self.latest = latest
        return end

    def _append_batch(self, records: Sequence[Record], epoch: int, *, control: bool = False) -> int:
        batch = build_batch(records, leader_epoch=epoch, control=control)
        now_ms = records[0].timestamp
        self.log.append_as_leader(
            memoryview(bytearray(batch)), leader_epoch=epoch, now_ms=now_ms, from_client=False
        )
        return self.log.log_end_offset

    async def commit(self, records: Sequence[Message] = ()) -> None:
        """Append one operation; return when it is on disk and the listeners were called.

        Without records: wait for everything appended so far, for decisions based on `latest`.
        """
        end = self.append(records) if records else self.next_offset
        if self._failed is not None:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log has failed")
        if self._published and end <= self.image.offset + 1:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((end, future))
        if self._flusher is None:
            self._flusher = loop.create_task(self._flush(), name="metadata-log-flush")
        await future

    async def _flush(self) -> None:
        """Flush appended batches, round by round, until no commit waits."""
        try:
            while self._waiting:
                image, end = self.latest, self.next_offset
                if await flush_log(self.log, self._executor, end):
                    self._durable.advance(end)
                self._flushed = end
                self.log.set_high_watermark(end)
                self._publish(image)
                self._maybe_snapshot()
                while self._waiting and self._waiting[0][0] <= end:
                    future = self._waiting.popleft()[1]
                    if not future.done():
                        future.set_result(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, what is on disk is unknown now
            self._fail(error)
        finally:
            self._flusher = None

    def _maybe_snapshot(self) -> None:
        """Begin a snapshot of `image` if the log has grown enough, or for long enough, since the
        last one."""
        if (
            self._snapshotting is None
            and self._transaction is None  # half a transaction is in no image
            and self._is_snapshot_due()
            and self.image.offset < self._flushed
        ):
            loop = asyncio.get_running_loop()
            self._snapshotting = loop.create_task(self._snapshot(), name="metadata-snapshot")

    def _is_snapshot_due(self) -> bool:
        if self.log.size_in_bytes - self._snapshot_size >= self._snapshot_bytes:
            return True
        interval_s = self._snapshot_interval_s
        return interval_s > 0 and self._clock.monotonic() - self._snapshot_at >= interval_s

    async def _snapshot(self) -> None:
        """Write one snapshot, then trim what the previous one covers (KIP-630)."""
        from tidelog.cluster.metadata.snapshots import trim, write_snapshot

        size, now_ms = self.log.size_in_bytes, self._clock.wall_ms()
        try:
            await self._executor.run(write_snapshot, self._files, self._folder, self.image, now_ms)
            if self._failed is None:
                trim(self._files, self._folder, self.log, now_ms)
                size = self.log.size_in_bytes
        except (OSError, StorageError) as error:
            if self._report is not None:
                self._report(f"no snapshot of the metadata: {error}")  # the log still has it
        finally:
            self._snapshot_size = size
            self._snapshot_at = self._clock.monotonic()
            self._snapshotting = None

    async def wait_for(self, offset: int) -> None:
        """Return when `image` shows everything up to `offset`."""
        if self.image.offset < offset:
            await self.commit()

    def _publish(self, image: ClusterImage) -> None:
        old = self.image if self._published else None
        if image is old:
            return
        delta = MetadataDelta(old, image)
        self.image = image
        self._published = True
        for listener in self._listeners:
            listener(delta, image)

    def _fail(self, error: BaseException) -> None:
        self._failed = error
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(
                    StorageError(ErrorCode.KAFKA_STORAGE_ERROR, f"metadata log: {error}")
                )
        if self._on_failure is not None:
            self._on_failure(error)

    async def close(self) -> None:
        """Wait for pending writes and close the log; later commits fail."""
        while (task := self._flusher or self._snapshotting) is not None:
            await asyncio.wait([task])
        if self._log is not None and self._failed is None:
            try:
                self._log.close()
            except Exception as error:  # noqa: BLE001 - whatever it is, the stop has to go on
                self._fail(error)
                return
            self._failed = RuntimeError("closed")
            self._durable.advance(self._log.log_end_offset)
            self._durable.close()


def bootstrap_records() -> list[Message]:
    """Return the first records of a new cluster (KIP-778, KIP-868)."""
    return [
        tables.BeginTransactionRecord(name="Bootstrap records"),
        tables.FeatureLevelRecord(name=METADATA_FEATURE, feature_level=METADATA_VERSION),
        tables.EndTransactionRecord(),
    ]


def decode_batch(batch: memoryview) -> Iterator[Message]:
    """Decode the metadata records of one batch; ProtocolError for unknown ones."""
    for record in iter_records(batch):
        if record.value is None:
            raise ProtocolError("metadata record has no value")
        yield tables.decode_record(record.value)[0]
