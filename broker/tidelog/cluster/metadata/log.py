"""`__cluster_metadata-0`: this node's copy of the log of the cluster's metadata, and the image
built from it.

In Kafka's own record format over a plain `Log`, with the files Kafka keeps beside it
(`partition.metadata`, `leader-epoch-checkpoint`, `quorum-state`). The active controller writes it;
`quorum/driver.py` decides what is appended, committed and truncated, and which node leads.

One operation is one batch: after a crash it is there whole or not at all. `append` puts it into
the log and into `latest`, the image that the controller decides by; `commit` also waits until a
majority of the voters has the batch on disk. Then the image is published as `image` and the
listeners are called, in the order they subscribed, and only after that does `commit` return.
Batches appended while an fsync runs share the next one.

Images. Below the high watermark nothing ever changes, so `image` is made of that part alone. While
this node leads, `latest` runs ahead of it by what is appended and not yet committed (`_pending`);
otherwise it is `image`. A node leads, for the controller, only from when all that may have been
committed before its epoch is in `image`. The only voter has that in its log: it leads at once, and
its first commit flushes what it begins with.

Failures: a refused append (disk full) fails that commit alone. A failed fsync leaves unknown what
is on disk: everything waiting fails, nothing is accepted any more, and `on_failure` ends the
broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from tidelog.cluster.metadata import log_replay
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.durable import DurableEnd, flush_log
from tidelog.cluster.metadata.features import METADATA_FEATURE
from tidelog.cluster.metadata.image import NO_CONTROLLER, ClusterImage
from tidelog.cluster.metadata.loading import Formatted, formatted, load_metadata_log
from tidelog.cluster.metadata.log_replay import LogReplay
from tidelog.cluster.metadata.quorum_state import (
    EPOCH_MAX,
    QUORUM_STATE,
    Election,
    QuorumStateError,
    read_quorum_state,
    write_quorum_state,
)
from tidelog.cluster.metadata.records import (
    bootstrap_records,
    encode,
    leader_change,
    levels_after,
)
from tidelog.cluster.metadata.replay import ReplayError, replay
from tidelog.cluster.metadata.snapshotter import Snapshotter
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.records import (
    Record,
    build_batch,
    iter_records,
)
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import UNDEFINED_OFFSET, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.cluster.metadata.levels_on_disk import ReadSnapshot
    from tidelog.cluster.metadata.settings import MetadataLogSettings
    from tidelog.cluster.metadata.snapshots import SnapshotId
    from tidelog.cluster.metadata.voters import UncommittedVoters, Voter, Voters
    from tidelog_protocol.schema import Message
    from tidelog_storage.log import Log
    from tidelog_storage.types import ReadOutcome

    Listener = Callable[[MetadataDelta, ClusterImage], None]
    LeadershipListener = Callable[[bool, int], None]

__all__ = ["MetadataLog", "NotControllerError"]

_logger = logging.getLogger(__name__)

READ_BYTES_MAX = 1 << 20  # of one fetch; Kafka's controller.quorum.fetch.max.bytes


class NotControllerError(StorageError):
    """This node does not lead the metadata quorum (any more): what was asked may or may not happen.

    Its code is NOT_CONTROLLER, which clients answer by asking the active controller.
    """

    def __init__(self, message: str = "this node is not the active controller") -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


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


class MetadataLog:
    """This node's copy of the metadata log.

    Invariants: `image.offset` < high watermark <= log end, but for the only voter before its first
    commit; `is_leader` implies that only this node appends; the high watermark never goes back, nor
    is anything below it ever cut.
    """

    def __init__(self, settings: MetadataLogSettings) -> None:
        self._settings = settings
        self._node_id = settings.node_id
        self._executor = settings.executor
        self._clock = settings.clock
        self._log: Log | None = None
        self._durable = DurableEnd(settings.files, settings.folder)
        self._snapshotter = Snapshotter(settings)
        self._listeners: list[Listener] = []
        self._leadership_listeners: list[LeadershipListener] = []
        self._leading = False
        self._leader_id = NO_CONTROLLER
        self._leader_epoch = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # for commits
        self._watching: list[tuple[int, asyncio.Future[None]]] = []  # for images
        self._pending: deque[ClusterImage] = deque()
        self._failed: BaseException | None = None
        self.flushed = 0  # all records below are on disk; the recovery point may be lower
        self._cuts = 0  # number of truncations: a flush begun before one does not count
        self._replay: LogReplay  # of `log`
        self._replaying: Iterator[ClusterImage | None] | None = None  # in the middle of a batch
        self._more: asyncio.Handle | None = None  # the next turn that applies what is committed
        self._publishing = False
        self._broker_epoch = -1
        self._formatted = Formatted({}, [])  # if this node begins the cluster
        self._uncommitted: UncommittedVoters | None = None  # None: static voters
        self.on_voters: list[Callable[[], None]] = []
        """Called when `voters` may have changed (KIP-853)."""
        self.on_applied: Callable[[], None] | None = None
        """Called after each turn that applies what an earlier `advance` left."""
        self.on_append: Callable[[], None] | None = None
        """Called after each append of this node's own: to be flushed and sent to the others."""
        self.image = ClusterImage(cluster_id=settings.cluster_id, listener=settings.listener)
        self.latest = self.image

    @property
    def is_open(self) -> bool:
        """Whether `log` is there."""
        return self._log is not None

    @property
    def log(self) -> Log:
        """The log; only after `open`."""
        assert self._log is not None, "open() comes first"
        return self._log

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(delta, image)` after each change of `image`.

        The first delta is everything. It comes with `start_publishing`, so that no listener acts on
        leaders of the run before.
        """
        self._listeners.append(listener)

    # ---- leadership ---------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller, and its `latest` holds all that is committed.

        Invariant: while it is, only this node appends, and `commit` may be called.
        """
        return self._leading and self._failed is None

    @property
    def leader_id(self) -> int:
        """The active controller as far as this node knows, -1 if there is none."""
        return self._leader_id

    @property
    def leader_epoch(self) -> int:
        """The epoch of `leader_id`; grows with every election."""
        return self._leader_epoch

    @property
    def voters(self) -> Sequence[int]:
        """The nodes that vote and whose copies count, by id."""
        if not self.names_voters:
            return self._settings.voters
        return [voter.node_id for voter in self.voter_set]

    @property
    def names_voters(self) -> bool:
        """Whether the log names the voters, committed or not; else they are those of the
        settings."""
        return not self._settings.voters or bool(self.voter_set)

    @property
    def own(self) -> Voter | None:
        """This node as a voter that the log may name; None while the voters are static."""
        return self._settings.own if self.names_voters else None

    @property
    def own_entry(self) -> Voter | None:
        """This node as a voter that the log may name, now or after an upgrade of `kraft.version`;
        None if it is alone."""
        return self._settings.own

    @property
    def _is_only_voter(self) -> bool:
        return self._settings.is_only_voter and not self.names_voters

    @property
    def voter_set(self) -> Voters:
        """The voters that the log names, committed or not (KIP-853); empty if they are static."""
        if self._uncommitted is not None and self._uncommitted.latest is not None:
            return self._uncommitted.latest
        return self.image.voters

    @property
    def previous_voters(self) -> Voters:
        """The voters before `voter_set`, which are committed while those may not be; the same if
        those are."""
        before = None if self._uncommitted is None else self._uncommitted.before_latest
        return self.image.voters if before is None else before

    @property
    def has_uncommitted_voters(self) -> bool:
        """Whether the newest voters may still be replaced by those before them."""
        return self._uncommitted is not None and self._uncommitted.latest is not None

    def voter(self, node_id: int) -> Voter | None:
        """Return a voter that the log names."""
        return next((each for each in self.voter_set if each.node_id == node_id), None)

    @property
    def has_failed(self) -> bool:
        """Whether it was closed or the state of the disk is unknown: it takes no part in the
        quorum."""
        return self._failed is not None

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed."""
        return self.log.high_watermark

    def subscribe_leadership(self, listener: LeadershipListener) -> None:
        """Call `listener(is_leader, epoch)` whenever this node begins or ceases to lead.

        A node that begins has applied everything committed to `latest`.
        """
        self._leadership_listeners.append(listener)

    # ---- starting -----------------------------------------------------------------------------

    def open(self, already_read: ReadSnapshot | None = None) -> ClusterImage:
        """Load the log; return the image of its newest snapshot, of the only voter that of all. A
        leader reports later what is committed. `already_read` is a snapshot that need not be read
        again.

        Nothing is written to a log that cannot be understood: ProtocolError, ReplayError or
        StorageError.
        """
        self._log, self.image = load_metadata_log(
            self._settings, self._durable, self._snapshotter, already_read
        )
        self._replay = LogReplay(self._log)
        if self._settings.own is not None:
            from tidelog.cluster.metadata.voters import UncommittedVoters  # noqa: PLC0415 - few do

            self._uncommitted = UncommittedVoters()
            self._find_voters(self.image.offset + 1)
        if self._is_only_voter:
            self.image = self._replay.image(self.image, self._log.log_end_offset)
        if METADATA_FEATURE not in self.image.features:
            self._formatted = formatted(self._settings)
        self.latest = self.image
        return self.image

    def levels_at_end(self) -> dict[str, int]:
        """Return the levels of features with all records of the log, committed or not, so that a
        node that cannot keep them neither votes nor writes. ProtocolError for an unknown record."""
        batches = self._replay.batches(self.image.offset + 1, self.log.log_end_offset)
        levels = levels_after(
            self.image.features, (batch for header, batch in batches if not header.is_control)
        )
        return levels or self._formatted.levels

    def read_election(self) -> Election:
        """Return this node's election state, at least the newest epoch of its log.

        QuorumStateError if it cannot know how it voted: a file that is damaged, or missing beside a
        log with records; also if the log or its snapshot ends in the last epoch there is. Kafka
        takes a missing file for a node that never voted. The only voter does not need to know: the
        log's epochs replace its file.
        """
        settings = self._settings
        epoch = self.log_end()[0]
        if epoch >= EPOCH_MAX:
            raise QuorumStateError(
                settings.folder, f"ends in epoch {epoch}, which no election can follow"
            )
        try:
            stored = read_quorum_state(settings.files, settings.folder)
            if stored is None and epoch and self._node_id in self.voters:
                path = f"{settings.folder}/{QUORUM_STATE}"
                raise QuorumStateError(path, "is missing beside a metadata log with records")
        except QuorumStateError as error:
            if not self._is_only_voter:
                raise
            _logger.warning("rewriting quorum-state: %s", error)
            stored = None
        stored = stored or Election()
        return stored if stored.epoch >= epoch else Election(epoch)

    def write_election(self, election: Election) -> None:
        """Write durably; if the disk fails, this node leaves the quorum."""
        settings = self._settings
        try:
            voters = None if self.names_voters else settings.voters
            write_quorum_state(settings.files, settings.folder, election, voters)
        except OSError as error:
            if not lacks_descriptors(error):
                self.fail(error)
            raise

    def log_end(self) -> tuple[int, int]:
        """Epoch of the last record (0 without one) and the log's end, flushed or not."""
        epoch = self.log.epochs.latest_epoch
        return (epoch if epoch >= 0 else self._snapshotter.epoch), self.log.log_end_offset

    def start_publishing(self, broker_epoch: int = -1) -> None:
        """Call the listeners with `image` now, and from now on after every change.

        Call it when the image has the broker's registration of this epoch: listeners must not act
        on an earlier run, nor on another process that registers with its id, which ends this one.
        -1 means that there is no broker here.
        """
        assert self.image.offset >= broker_epoch, "the registration is in the image"
        if not self._publishing:
            self._publishing, self._broker_epoch = True, broker_epoch
            self._tell(None)

    # ---- operations of the quorum --------------------------------------------------------------

    def leader_is(self, leader_id: int, epoch: int) -> None:
        """Record the leader; -1 for none."""
        self._leader_id, self._leader_epoch = leader_id, epoch

    def begin_epoch(self, epoch: int) -> None:
        """Append the first record of an epoch of this node's; OSError or StorageError if the disk
        refuses: the epoch has no record then."""
        self.log.assign_epoch(epoch)
        start = self.next_offset
        now_ms = self._clock.wall_ms()
        first = leader_change(self._node_id, self.voters, now_ms)
        self._append_batch([first, *self._first_voters(now_ms)], epoch, control=True)
        self._find_voters(start)
        if self.on_append is not None:
            self.on_append()

    def _first_voters(self, now_ms: int) -> list[Record]:
        """Return the records of the voters that a leader begins with: its log has none but in the
        snapshot of `tidelog format`, or other addresses of this node (Kafka's
        LeaderState.appendStartOfEpochControlRecords)."""
        own, voters = self.own, self.voter_set
        known = self.voter(self._node_id)
        if own is None or known is None or known.directory_id != own.directory_id:
            return []
        if known == own and (self.image.offset >= 0 or self.has_uncommitted_voters):
            return []
        from tidelog.cluster.metadata.voters import (  # noqa: PLC0415 - few logs name voters
            level_and_voters,
            without,
        )

        voters = tuple(sorted((*without(voters, self._node_id), own)))
        return level_and_voters(voters, now_ms, offset=1)

    def _find_voters(self, start: int) -> None:
        """Find the voters that records from `start` on name."""
        if self._uncommitted is None:
            return
        from tidelog.cluster.metadata.voters import voters_in  # noqa: PLC0415 - as above

        for header, batch in self._replay.batches(start, self.log.log_end_offset):
            for record in iter_records(batch) if header.is_control else ():
                voters = voters_in(record)
                if voters is not None:
                    self._uncommitted.add(record.offset, voters)
        self._voters_changed()

    def _voters_changed(self) -> None:
        for listener in self.on_voters:
            listener()

    def lead(self) -> None:
        """Begin to decide: everything before this node's epoch is committed and in `image`.

        ProtocolError or StorageError if the log of the only voter cannot be understood.
        """
        assert not self._leading
        is_alone = self._is_only_voter
        if is_alone:
            self.image = self._replay.image(self.image, self.log.log_end_offset)
        assert self.image.offset + 1 == self.log.log_end_offset
        assert is_alone or self.log.high_watermark == self.log.log_end_offset
        assert self.image.leader_epoch == self._leader_epoch
        self.latest = self.image
        self._leading = True
        if METADATA_FEATURE not in self.latest.features:
            min_isr = self._settings.min_insync_replicas
            self.append(bootstrap_records(*self._formatted, min_insync_replicas=min_isr))
        if is_alone:
            self.image = self.latest
        for listener in self._leadership_listeners:
            listener(True, self._leader_epoch)

    def step_down(self) -> None:
        """Stop leading: uncommitted records may be lost, and pending commits fail."""
        if not self._leading:
            return
        self._leading = False
        self._pending.clear()
        self.latest = self.image
        self._fail_commits(NotControllerError("a new controller was elected"))
        for listener in self._leadership_listeners:
            listener(False, self._leader_epoch)

    def append_fetched(self, records: memoryview, epoch: int) -> None:
        """Append the leader's batches unchanged; StorageError if they do not fit."""
        start = self.next_offset
        self.log.append_as_follower(records, leader_epoch=epoch, now_ms=self._clock.wall_ms())
        self._find_voters(start)

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
            self.fail(error)
            raise error
        if cut < self.log.log_end_offset:
            self._cuts += 1
            self.flushed = min(self.flushed, cut)
            self._durable.lower(self.flushed)
        self.log.truncate_to(cut, self._clock.wall_ms())
        if self._uncommitted is not None:
            self._uncommitted.truncate_to(cut)
            self._voters_changed()

    async def flush(self) -> int:
        """Make the current log durable; return the offset below which it is."""
        end, cuts = self.log.log_end_offset, self._cuts
        try:
            await flush_log(self.log, self._executor, end)
        except Exception as error:
            self.fail(error)
            raise
        if cuts == self._cuts and end > self.flushed and not self.has_failed:
            self.flushed = end
            self._durable.advance(end)
        return self.flushed

    def read(self, offset: int) -> ReadOutcome:
        """Read batches for a follower at `offset`, committed or not."""
        end = self.log.log_end_offset
        return self.log.read(offset, READ_BYTES_MAX, upper_bound=end, min_one_batch=True)

    @property
    def snapshotter(self) -> Snapshotter:
        """The snapshots of this log."""
        return self._snapshotter

    async def decode_snapshot(self, snapshot: SnapshotId, data: bytes) -> ClusterImage:
        """Decode a leader's snapshot, off the loop; ProtocolError if it is damaged."""
        from tidelog.cluster.metadata.snapshots import (  # noqa: PLC0415 - with the first of them
            decode_snapshot,
        )

        cluster_id, listener = self.image.cluster_id, self.image.listener
        image: ClusterImage = await self._executor.run(
            decode_snapshot, snapshot, data, cluster_id, listener
        )
        return image

    def install_snapshot(self, snapshot: SnapshotId, data: bytes, image: ClusterImage) -> None:
        """Restart the log from a leader's snapshot, of which this is the image.

        It replaces everything here, because the records of the snapshot are committed. Once it is
        written, the next start completes this after a crash (`load_metadata_log`).
        """
        end_offset = snapshot.end_offset
        if end_offset <= self.image.offset:
            return  # nothing here is older
        self._cuts += 1
        self._durable.lower(0)
        self._snapshotter.install(snapshot, data, self.log)
        self.flushed = end_offset
        self._durable.advance(end_offset)
        self._replay.transactions.forget()
        self._replaying = None
        self.log.set_high_watermark(end_offset)
        self.latest = image
        if self._uncommitted is not None:
            self._uncommitted.clear()
        self._publish(image)
        self._voters_changed()

    def advance(self, offset: int) -> None:
        """Everything below `offset` is committed: apply it and complete the commits that wait. More
        than a turn's records are applied in the next turns, until `has_applied_all`.

        If the records on disk have changed, this node leaves the quorum.
        """
        offset = min(offset, self.log.log_end_offset)
        if offset > self.log.high_watermark:
            self.log.set_high_watermark(offset)
        elif offset <= self.image.offset + 1:
            return
        if self._more is None:
            self._apply_some()

    @property
    def has_applied_all(self) -> bool:
        """Whether all that is known as committed is in `image`."""
        if self._leading:
            return not self._pending or self._pending[0].offset >= self.log.high_watermark
        return self.image.offset + 1 >= self.log.high_watermark

    def _apply_more(self) -> None:
        self._more = None
        if self._failed is None:
            self._apply_some()
            if self.on_applied is not None:
                self.on_applied()

    def _apply_some(self) -> None:
        """Apply what one turn of the loop has time for."""
        try:
            image = self._next_pending() if self._leading else self._next_replayed()
        except (ProtocolError, ReplayError, StorageError) as error:  # the disk returns other bytes
            self.fail(error)
            return
        if image is not None:
            self._publish(image)
            # Half a transaction is in no image.
            if not self._replay.transactions.is_open and self.image.offset < self.flushed:
                self._snapshotter.maybe_take(self.log, self.image, lambda: self.has_failed)
            done = min(self.log.high_watermark, self.image.offset + 1)
            while self._waiting and self._waiting[0][0] <= done:
                _resolve(self._waiting.popleft()[1])
        if self._failed is None and not self.has_applied_all:
            self._more = asyncio.get_running_loop().call_soon(self._apply_more)

    def _next_pending(self) -> ClusterImage:
        """Return the next image to publish of those that this leader has made."""
        image, end = self.image, self.image.offset + 1 + log_replay.RECORDS_AT_ONCE
        committed = self.log.high_watermark
        while self._pending and self._pending[0].offset < committed:
            if image is not self.image and self._pending[0].offset >= end:
                break
            image = self._pending.popleft()
        return image

    def _next_replayed(self) -> ClusterImage | None:
        """Return the next image of the log, None in the middle of a batch."""
        replaying = self._replaying or self._replay.images(self.image, self.log.high_watermark)
        image = next(replaying, self.image)
        self._replaying = replaying if image is None else None
        if image is not None:
            self.latest = image
        return image

    # ---- writing ------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """Offset that the next record gets."""
        return self.log.log_end_offset

    def append(self, records: Sequence[Message]) -> int:
        """Append one operation as one batch and apply it to `latest`; return the log's end.

        NotControllerError if this node does not lead. StorageError if it cannot be written: nothing
        happened. ReplayError for records that do not fit: nothing was written.
        """
        self._check_leads()
        epoch = self.latest.leader_epoch
        latest = replay(
            self.latest,
            records,
            offset=self.next_offset + len(records) - 1,
            leader_epoch=epoch,
            controller_id=self._node_id,
        )
        now_ms = self._clock.wall_ms()
        values = [encode(record, latest.features) for record in records]
        self._append_batch(
            [Record(index, now_ms, None, value) for index, value in enumerate(values)], epoch
        )
        assert self.next_offset == latest.offset + 1
        self.latest = latest
        self._pending.append(latest)
        if self.on_append is not None:
            self.on_append()
        return self.next_offset

    def append_voters(self, voters: Voters) -> int:
        """Append a new set of voters, which counts from now on, the first one with its level of
        `kraft.version`; return the log's end.

        NotControllerError if this node does not lead, StorageError if it cannot be written.
        """
        from tidelog.cluster.metadata.voters import (  # noqa: PLC0415 - few logs name voters
            level_and_voters,
            voters_record,
        )

        self._check_leads()
        start, now_ms = self.next_offset, self._clock.wall_ms()
        records = [voters_record(voters, now_ms)]
        if not self.names_voters:
            records = level_and_voters(voters, now_ms, offset=0)
        self._append_batch(records, self.latest.leader_epoch, control=True)
        self.latest = self.latest._replace(offset=start + len(records) - 1, voters=voters)
        self._pending.append(self.latest)
        self._find_voters(start)
        if self.on_append is not None:
            self.on_append()
        return self.next_offset

    def _append_batch(
        self, records: Sequence[Record], epoch: int, *, control: bool = False
    ) -> None:
        batch = build_batch(records, leader_epoch=epoch, control=control)
        now_ms = records[0].timestamp
        self.log.append_as_leader(
            memoryview(bytearray(batch)), leader_epoch=epoch, now_ms=now_ms, from_client=False
        )

    async def commit(self, records: Sequence[Message] = ()) -> None:
        """Append one operation; return when a majority has it and the listeners were called.

        Without records: wait for everything appended so far, for decisions based on `latest`.
        NotControllerError if this node does not lead, or ceases to before it knows: then the
        operation may or may not happen.
        """
        self._check_leads()
        end = self.append(records) if records else self.next_offset
        if end <= min(self.log.high_watermark, self.image.offset + 1):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end, future))
        if not records and self.on_append is not None:
            self.on_append()  # the first commit of the only voter may have none
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
        old, self.image = self.image, image
        if self._uncommitted is not None and self._uncommitted.latest is not None:
            self._uncommitted.committed(image.offset)
            self._voters_changed()
        if self._publishing and image is not old:
            self._tell(old)
        if self._watching:
            still = []
            for offset, future in self._watching:
                if offset > image.offset and not future.done():
                    still.append((offset, future))
                else:
                    _resolve(future)
            self._watching = still

    def _tell(self, old: ClusterImage | None) -> None:
        delta = MetadataDelta(old, self.image)
        for listener in self._listeners:
            listener(delta, self.image)

    # ---- the end ------------------------------------------------------------------------------

    def _check_leads(self) -> None:
        if self._failed is not None and self._is_only_voter:  # no other node will lead
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log has failed")
        if not self.is_leader:
            raise NotControllerError

    def fail(self, error: BaseException) -> None:
        """Fail the log: this node leaves the quorum, and the broker must stop."""
        if self._failed is not None:
            return
        self._failed = error
        self._leading = False
        self._fail_commits(StorageError(ErrorCode.KAFKA_STORAGE_ERROR, f"metadata log: {error}"))
        if self._settings.on_failure is not None:
            self._settings.on_failure(error)

    def _fail_commits(self, error: StorageError) -> None:
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        """Close the log, after the quorum has stopped; later commits fail."""
        self.step_down()
        for _, future in self._watching:
            future.cancel()
        self._watching.clear()
        while (task := self._snapshotter.task) is not None:
            await asyncio.wait([task])
        if self._log is not None and self._failed is None:
            try:
                self._log.close()
            except Exception as error:  # noqa: BLE001 - whatever it is, the stop has to go on
                self.fail(error)
                return
            self._failed = RuntimeError("closed")
            self._durable.advance(self._log.log_end_offset)
            self._durable.close()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
