"""This node's copy of the metadata log. `tidelog.cluster.quorum` decides what is appended and
committed.

It has the methods of `MetadataLog`, but `commit` returns when a majority has the records on disk,
and raises NotControllerError on a node that does not lead or loses leadership. `quorum/driver.py`
calls the rest: begin an epoch, append fetched records, truncate, move the high watermark, lead,
step down.

Images. Below the high watermark nothing ever changes, so `image` is made of that part alone. While
this node leads, `latest` runs ahead of it by what is appended and not yet committed (`_pending`);
otherwise it is `image`. A node leads, for the controller, only from when all that may have been
committed before its epoch is in `image`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.durable import flush_log
from tidelog.cluster.metadata.image import NO_CONTROLLER, ClusterImage
from tidelog.cluster.metadata.log import (
    METADATA_FEATURE,
    MetadataLog,
    NotControllerError,
    bootstrap_records,
)
from tidelog.cluster.metadata.quorum_state import (
    QUORUM_STATE,
    Election,
    QuorumStateError,
    read_quorum_state,
    write_quorum_state,
)
from tidelog.cluster.metadata.replay import ImageBuilder
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.records import ControlType, control_type, iter_records
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import UNDEFINED_OFFSET, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.cluster.metadata.snapshots import SnapshotId
    from tidelog_protocol.schema import Message
    from tidelog_storage.types import ReadOutcome

__all__ = ["ReplicatedMetadataLog"]

READ_BYTES_MAX = 8 << 20  # of one fetch; KRaft's MAX_FETCH_SIZE


def superseded(node_id: int, own_epoch: int, epoch: int) -> StorageError:
    """Return the error of a broker that the cluster knows by another epoch; -1: by none."""
    what = (
        f"broker {node_id} was unregistered: this process, with epoch {own_epoch}, ends. Its next"
        " start registers it again"
        if epoch < 0
        else f"another process has registered as broker {node_id}, with epoch {epoch}: this one,"
        f" with epoch {own_epoch}, ends. Give each process a node.id and directories of its own"
    )
    return StorageError(ErrorCode.STALE_BROKER_EPOCH, what)


class ReplicatedMetadataLog(MetadataLog):
    """This node's copy of the metadata log.

    Invariants: `image.offset` < high watermark <= log end; `is_leader` implies that only this node
    appends; the high watermark never goes back, nor is anything below it ever cut.
    """

    def __init__(self, *, voters: Sequence[int], **rest: Any) -> None:
        """`rest` as for `MetadataLog`."""
        super().__init__(**rest)
        self._voters = tuple(sorted(voters))
        self._leading = False
        self._leader_id = NO_CONTROLLER
        self._leader_epoch = 0
        self._cuts = 0  # number of truncations: a flush begun before one does not count
        self._pending: deque[ClusterImage] = deque()
        self._watching: list[tuple[int, asyncio.Future[None]]] = []
        self._publishing = False
        self._broker_epoch = -1
        self.on_append: Callable[[], None] | None = None
        """Called after each append of this node's own: to be flushed and sent to the others."""

    # ---- leadership ---------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        return self._leading and self._failed is None

    @property
    def leader_id(self) -> int:
        """The active controller as far as this node knows, -1 if there is none."""
        return self._leader_id

    @property
    def leader_epoch(self) -> int:
        """The epoch of `leader_id`."""
        return self._leader_epoch

    @property
    def voters(self) -> Sequence[int]:
        """The nodes that vote and whose copies count, by id."""
        return self._voters

    @property
    def has_failed(self) -> bool:
        """Whether it was closed or the state of the disk is unknown: it takes no part in the
        quorum."""
        return self._failed is not None

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed."""
        return self.log.high_watermark

    # ---- starting -----------------------------------------------------------------------------

    def open(self) -> ClusterImage:
        """Load the log. A leader reports later what is committed."""
        log = self._load()
        log.set_high_watermark(max(log.log_start_offset, self.image.offset + 1))
        self.latest = self.image
        return self.image

    def read_election(self) -> Election:
        """Return this node's election state, at least the newest epoch of its log.

        QuorumStateError if it cannot know how it voted: a file that is damaged, or missing beside a
        log with records. Kafka takes a missing file for a node that never voted.
        """
        stored = read_quorum_state(self._files, self._folder)
        epoch = self.log_end()[0]
        if stored is None:
            if epoch and self._node_id in self._voters:
                path = f"{self._folder}/{QUORUM_STATE}"
                raise QuorumStateError(path, "is missing beside a metadata log with records")
            stored = Election()
        return stored if stored.epoch >= epoch else Election(epoch)

    def write_election(self, election: Election) -> None:
        """Write durably; if the disk fails, this node leaves the quorum."""
        try:
            write_quorum_state(self._files, self._folder, election, self._voters)
        except OSError as error:
            if not lacks_descriptors(error):
                self._fail(error)
            raise

    def log_end(self) -> tuple[int, int]:
        """Epoch of the last record (0 without one) and the log's end, flushed or not."""
        epoch = self.log.epochs.latest_epoch
        return (epoch if epoch >= 0 else self._snapshot_epoch), self.log.log_end_offset

    def start_publishing(self, broker_epoch: int = -1) -> None:
        """Call the listeners with `image` now, and from now on after every change.

        Call it when the image has the broker's registration of this epoch: listeners must not act
        on an earlier run, nor on another process that registers with its id, which ends this one.
        -1 means that there is no broker here.
        """
        if not self._publishing:
            self._publishing, self._broker_epoch = True, broker_epoch
            super()._publish(self.image)

    # ---- operations of the quorum --------------------------------------------------------------

    def leader_is(self, leader_id: int, epoch: int) -> None:
        """Record the leader; -1 for none."""
        self._leader_id, self._leader_epoch = leader_id, epoch

    def begin_epoch(self, epoch: int) -> None:
        """Append the first record of an epoch of this node's; OSError or StorageError if the disk
        refuses: the epoch has no record then."""
        self.log.assign_epoch(epoch)
        self._append_batch([self._leader_change()], epoch, control=True)
        if self.on_append is not None:
            self.on_append()

    def lead(self) -> None:
        """Begin to decide: everything before this node's epoch is committed and in `image`."""
        assert not self._leading
        assert self.image.offset + 1 == self.log.high_watermark == self.log.log_end_offset
        assert self.image.leader_epoch == self._leader_epoch
        self.latest = self.image
        self._leading = True
        if METADATA_FEATURE not in self.latest.features:
            self.append(bootstrap_records())
        for listener in self._leadership_listeners:
            listener(True, self._leader_epoch)

    def step_down(self) -> None:
        """Stop leading: uncommitted records may be lost, and pending commits fail."""
        if not self._leading:
            return
        self._leading = False
        self._pending.clear()
        self.latest = self.image
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(NotControllerError("a new controller was elected"))
        for listener in self._leadership_listeners:
            listener(False, self._leader_epoch)

    def append_fetched(self, records: memoryview, epoch: int) -> None:
        """Append the leader's batches unchanged; StorageError if they do not fit."""
        self.log.append_as_follower(records, leader_epoch=epoch, now_ms=self._clock.wall_ms())

    def truncate(self, epoch: int, end_offset: int) -> None:
        """Truncate what the leader, whose records of `epoch` end at `end_offset`, does not have.

        StorageError if that were committed records: then a voter has lost what it acknowledged.
        """
        own = self.log.end_offset_for_epoch(epoch)
        cut = min(end_offset, self.log.log_end_offset)
        if own.offset != UNDEFINED_OFFSET:
            cut = min(cut, own.offset)
        if cut < self.log.high_watermark:
            error = StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the metadata log is to be cut to {cut}, below what was committed,"
                f" {self.log.high_watermark}: another controller has lost records",
            )
            self._fail(error)
            raise error
        if cut < self.log.log_end_offset:
            self._cuts += 1
            self._flushed = min(self._flushed, cut)
            self._durable.lower(self._flushed)
        self.log.truncate_to(cut, self._clock.wall_ms())

    async def flush(self) -> int:
        """Make the current log durable; return the offset below which it is."""
        end, cuts = self.log.log_end_offset, self._cuts
        try:
            await flush_log(self.log, self._executor, end)
        except Exception as error:
            self._fail(error)
            raise
        if cuts == self._cuts and end > self._flushed and not self.has_failed:
            self._flushed = end
            self._durable.advance(end)
        return self._flushed

    def read(self, offset: int) -> ReadOutcome:
        """Read batches for a follower at `offset`, committed or not."""
        end = self.log.log_end_offset
        return self.log.read(offset, READ_BYTES_MAX, upper_bound=end, min_one_batch=True)

    def newest_snapshot(self) -> tuple[int, int] | None:
        """Return end offset and epoch of the newest snapshot on disk."""
        return next(reversed(self._snapshots()), None)

    def oldest_snapshot(self) -> tuple[int, int] | None:
        """Return those of the oldest one: a log that does not start at 0 starts at its end."""
        return next(iter(self._snapshots()), None)

    def _snapshots(self) -> list[SnapshotId]:
        from tidelog.cluster.metadata.snapshots import list_snapshots  # noqa: PLC0415 - as in `log`

        return list_snapshots(self._files, self._folder)

    def read_snapshot(
        self, end_offset: int, epoch: int, position: int, size_max: int
    ) -> tuple[int, bytes]:
        """Read the size of a snapshot, and its bytes from a position on. FileNotFoundError without
        it."""
        from tidelog.cluster.metadata.snapshots import SnapshotId  # noqa: PLC0415 - as in `log`

        file = self._files.open(f"{self._folder}/{SnapshotId(end_offset, epoch).file_name}")
        try:
            return file.size(), file.pread(position, size_max)
        finally:
            file.close()

    def install_snapshot(self, end_offset: int, epoch: int, data: bytes) -> None:
        """Restart the log from a leader's snapshot; ProtocolError if it is damaged.

        It replaces everything here, because the records of the snapshot are committed. Once it is
        written, the next start completes this after a crash (`_load`).
        """
        from tidelog.cluster.metadata.snapshots import (  # noqa: PLC0415 - as in `log`
            SnapshotId,
            decode_snapshot,
            remove_before,
        )

        snapshot = SnapshotId(end_offset, epoch)
        image = decode_snapshot(snapshot, data, self.image.cluster_id)
        if end_offset <= self.image.offset:
            return  # nothing here is older
        self._cuts += 1
        self._durable.lower(0)
        self._files.write_atomic(f"{self._folder}/{snapshot.file_name}", data)
        self.log.truncate_fully_and_start_at(end_offset, now_ms=self._clock.wall_ms())
        remove_before(self._files, self._folder, snapshot)
        self._flushed = end_offset
        self._durable.advance(end_offset)
        self._snapshot_epoch, self._snapshot_size = epoch, 0
        self._transaction = None
        self.log.set_high_watermark(end_offset)
        self.latest = image
        self._publish(image)

    def advance(self, offset: int) -> None:
        """Everything below `offset` is committed: apply it and complete the commits that wait.

        If the records on disk have changed, this node leaves the quorum.
        """
        offset = min(offset, self.log.log_end_offset)
        if offset <= self.log.high_watermark and offset <= self.image.offset + 1:
            return
        self.log.set_high_watermark(offset)
        if self._leading:
            image = self.image
            while self._pending and self._pending[0].offset < offset:
                image = self._pending.popleft()
        else:
            try:
                image = self.latest = self._apply(offset)
            except (ProtocolError, StorageError) as error:  # the disk returns other bytes
                self.fail(error)
                return
        self._publish(image)
        self._maybe_snapshot()
        while self._waiting and self._waiting[0][0] <= offset:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def _apply(self, offset: int) -> ClusterImage:
        """Return the image with all batches below `offset`."""
        builder = ImageBuilder(self.image)
        epoch, controller_id = self.image.leader_epoch, self.image.controller_id
        for header, batch in self._batches(self.image.offset + 1, offset):
            if not header.is_control:
                self._apply_batch(builder, batch)
                continue
            record = next(iter_records(batch))
            if control_type(record) == ControlType.LEADER_CHANGE and record.value is not None:
                epoch = header.leader_epoch
                controller_id = int.from_bytes(record.value[2:6], "big", signed=True)
                self._transaction = None  # a new leader does not continue another's transaction
        return builder.build(offset=offset - 1, leader_epoch=epoch, controller_id=controller_id)

    # ---- writing ------------------------------------------------------------------------------

    def append(self, records: Sequence[Message]) -> int:
        """Like `MetadataLog.append`; NotControllerError if this node does not lead."""
        if not self.is_leader:
            raise NotControllerError
        end = super().append(records)
        self._pending.append(self.latest)
        if self.on_append is not None:
            self.on_append()
        return end

    async def commit(self, records: Sequence[Message] = ()) -> None:
        """Append one operation; return when a majority has it and the listeners were called.

        NotControllerError if this node does not lead, or ceases to before it knows: then the
        operation may or may not happen.
        """
        if not self.is_leader:
            raise NotControllerError
        end = self.append(records) if records else self.next_offset
        if end <= self.image.offset + 1:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end, future))
        await future

    async def wait_for(self, offset: int) -> None:
        """Return when `image` shows everything up to `offset`, under any leader.

        Any time may pass; the caller bounds it.
        """
        if self.image.offset < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watching.append((offset, future))
            await future

    def _publish(self, image: ClusterImage) -> None:
        registered = image.brokers.get(self._node_id)
        epoch = -1 if registered is None else registered.epoch
        if self._publishing and self._broker_epoch not in (-1, epoch):
            self.fail(superseded(self._node_id, self._broker_epoch, epoch))
            return
        if self._publishing:
            super()._publish(image)
        else:
            self.image = image
        if self._watching:
            still = []
            for offset, future in self._watching:
                if offset > image.offset and not future.done():
                    still.append((offset, future))
                elif not future.done():
                    future.set_result(None)
            self._watching = still

    def fail(self, error: BaseException) -> None:
        """Fail the log: this node leaves the quorum, and the broker must stop."""
        if self._failed is None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._leading = False
        super()._fail(error)

    async def close(self) -> None:
        """Close the log, after the quorum has stopped."""
        self.step_down()
        for _, future in self._watching:
            future.cancel()
        self._watching.clear()
        await super().close()
