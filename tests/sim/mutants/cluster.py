"""Planted bugs of a cluster: replication, elections, the metadata quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller import brokers as controller_brokers
from tidelog.cluster.controller import partitions as controller_partitions
from tidelog.cluster.controller.changes import PartitionDraft, Rules
from tidelog.cluster.controller.partitions import Changes
from tidelog.cluster.controller.sessions import Sessions
from tidelog.cluster.lifecycle import BrokerLifecycle
from tidelog.cluster.metadata.durable import DurableEnd
from tidelog.cluster.metadata.image import NO_LEADER
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.quorum.core import QuorumCore
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.replication import internal_topics, replica_fetcher
from tidelog.replication import partition as partition_module
from tidelog.replication.assigned_logs import AssignedLogs
from tidelog.replication.directory_assignment import DirectoryAssignments
from tidelog.replication.lost_logs import LostLogs
from tidelog.replication.partition import Partition
from tidelog.replication.truncation import Truncation
from tidelog_storage import recovery, replicated, scan
from tidelog_storage.compaction import rewriting
from tidelog_storage.directory import LogDirectory
from tidelog_storage.epochs import LeaderEpochCache
from tidelog_storage.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_storage.flush import FlushTask

    Patch = Callable[..., None]


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """KIP-101's first failure: who becomes follower drops what it does not know to be committed."""
    original = Partition.update

    def update(self: Partition, image: Any) -> None:
        is_new = image.leader_epoch > self.leader_epoch
        original(self, image)
        if is_new and not self.is_leader:
            self.log.truncate_to(self.log.high_watermark, 0)

    patch(Partition, "update", update)


def skip_the_divergence_check(patch: Patch) -> None:
    """KIP-101's second failure: a leader serves whoever has an offset, whatever lies before it."""
    patch(Partition, "_diverges", lambda *_: False)


def cut_nothing(patch: Patch) -> None:
    """A follower that is told to cut its log does not."""
    patch(
        replica_fetcher,
        "follower_truncation",
        lambda *_, log_end_offset, **_rest: Truncation(log_end_offset, done=True),
    )


def high_watermark_before_the_shrink(patch: Patch) -> None:
    """A proposed shrink of the ISR counts before the controller has made it."""

    def maximal_isr(self: Partition) -> tuple[int, ...]:
        change = self.pending_change
        return self.isr if change is None else change.isr

    patch(Partition, "maximal_isr", property(maximal_isr))


def high_watermark_of_the_leader_alone(patch: Patch) -> None:
    """What the leader has counts as committed."""
    patch(partition_module, "committed_end", lambda _id, end, *_: end)


def forget_the_minimum(patch: Patch) -> None:
    """min.insync.replicas is forgotten: after a shrink the last replica commits alone."""
    original = Partition.config_changed

    def config_changed(self: Partition) -> None:
        original(self)
        self.min_isr = 1
        self.advance_high_watermark()

    patch(Partition, "config_changed", config_changed)


def follower_commits_all_it_has(patch: Patch) -> None:
    """A follower takes everything it has for committed."""
    original = Partition.advance_as_follower

    def advance_as_follower(self: Partition, _high_watermark: int, log_start: int) -> bool:
        return original(self, self.log.log_end_offset, log_start)

    patch(Partition, "advance_as_follower", advance_as_follower)


def lose_the_epoch_checkpoint(patch: Patch) -> None:
    """The file of leader epochs is written once: later ones are not there after a restart.

    A file that is lost altogether harms nobody: the epochs are read from the records then.
    """
    flush = LeaderEpochCache.flush

    def flush_once(self: LeaderEpochCache, end_offset: int) -> None:
        if len(self) <= 1:
            flush(self, end_offset)

    patch(LeaderEpochCache, "flush", flush_once)


def flush_past_the_epochs(patch: Patch) -> None:
    """The recovery point passes epochs that are only in memory: a crash loses them."""
    flush = LeaderEpochCache.flush
    prepare = Log.prepare_flush
    is_preparing = False

    def prepare_flush(self: Log, *args: Any, **options: Any) -> FlushTask | None:
        nonlocal is_preparing
        is_preparing = not options.get("closing")
        try:
            return prepare(self, *args, **options)
        finally:
            is_preparing = False

    def flush_otherwise(self: LeaderEpochCache, end_offset: int) -> None:
        if not is_preparing:
            flush(self, end_offset)

    patch(Log, "prepare_flush", prepare_flush)
    patch(LeaderEpochCache, "flush", flush_otherwise)


def trust_the_epoch_checkpoint(patch: Patch) -> None:
    """After a crash the epochs are those of the file, though it may be old."""
    find = recovery._Loader._epochs_found

    def epochs_found(self: Any, *args: Any) -> LeaderEpochCache:
        self._recovered_epochs, self._recovered_from = recovery.RecoveredEpochs(), None
        return find(self, *args)

    patch(recovery._Loader, "_epochs_found", epochs_found)


def epochs_are_synced_on_the_loop(patch: Patch) -> None:
    """Each new leader epoch is on disk before anything else happens: a failover stops the loop."""
    assign = Log.assign_epoch

    def assign_epoch(self: Log, epoch: int) -> None:
        assign(self, epoch)
        self.epochs.flush(self.log_end_offset + 1)

    patch(Log, "assign_epoch", assign_epoch)


def acknowledge_before_replication(patch: Patch) -> None:
    """acks=all is answered as acks=1."""
    patch(Partition, "acknowledged", lambda *_: 0)


def join_without_catching_up(patch: Patch) -> None:
    """Whoever fetches joins the in-sync replicas, however far it is behind."""
    patch(partition_module, "has_reached", lambda *_: True)


def elect_anybody(patch: Patch) -> None:
    """Elections take any living replica."""

    def is_clean_choice(self: PartitionDraft, replica: int) -> bool:
        return replica in self.replicas and self._rules.may_lead(self.partition, replica)

    original = PartitionDraft._elect

    def elect(self: PartitionDraft) -> None:
        original(self)
        leader = self._record.leader
        if leader >= 0 and leader not in self.isr:
            self.isr = [leader]

    patch(PartitionDraft, "_is_clean_choice", is_clean_choice)
    patch(PartitionDraft, "_elect", elect)


def trust_who_crashed(patch: Patch) -> None:
    """A broker back from a power failure stays in sync and leads again."""
    original = controller_brokers.fence

    def fence(*args: Any, is_silent: bool = True) -> list[Any]:
        records = original(*args, is_silent=is_silent)
        return records if is_silent else records[-1:]  # the fence alone: its life before has ended

    patch(controller_brokers, "fence", fence)
    patch(controller_brokers, "_end_of_life", lambda *_: [])


def any_partition_epoch(patch: Patch) -> None:
    """AlterPartition is done whatever state it was asked for in."""
    patch(controller_partitions, "_epoch_error", lambda *_: None)


def vote_in_memory(patch: Patch) -> None:
    """Votes are not on disk: after a restart a voter votes again in the same epoch."""
    patch(MetadataLog, "write_election", lambda *_: None)


def commit_without_a_majority(patch: Patch) -> None:
    """The quorum's leader commits what it alone has."""
    patch(QuorumCore, "majority", property(lambda _self: 1))


def metadata_before_fsync(patch: Patch) -> None:
    """What a voter has fetched counts before it is on disk."""

    async def flush(self: MetadataLog) -> int:
        end = self.flushed = self.log.log_end_offset
        self._durable.advance(end)
        return end

    patch(MetadataLog, "flush", flush)


def follow_without_producers(patch: Patch) -> None:
    """A follower does not remember producers: after an election, what is sent again is doubled."""
    original = Partition.append_as_follower

    def append_as_follower(self: Partition, *args: Any, **options: Any) -> Any:
        result = original(self, *args, **options)
        self.log.producers.producers.clear()
        return result

    patch(Partition, "append_as_follower", append_as_follower)


def begin_where_the_deleted_ended(patch: Patch) -> None:
    """A topic of a deleted name begins with the checkpoints of the one that was deleted."""
    patch(LogDirectory, "clear_for", lambda *_: None)


def believe_every_offset(patch: Patch) -> None:
    """A new group coordinator tells offsets before it knows what was committed after them."""
    patch(GroupShard, "knows_committed", property(lambda _self: True))


def believe_every_checksum(patch: Patch) -> None:
    """Nobody looks at checksums: what has rotted is copied, compacted and loaded."""
    for module in (replicated, rewriting, scan, internal_topics):
        patch(module, "crc_is_valid", lambda *_: True)


def cut_rotten_metadata(patch: Patch) -> None:
    """A voter whose log is damaged goes on with what lies before the damage."""
    patch(DurableEnd, "read", lambda _self: 0)


def keep_strays(patch: Patch) -> None:
    """Logs of topics and replicas that went while a broker was away stay there for good."""
    patch(AssignedLogs, "set_strays_aside", lambda *_: None)


def ignore_the_log_start(patch: Patch) -> None:
    """A follower keeps what its leader has deleted."""
    original = Partition.advance_as_follower

    def advance_as_follower(self: Partition, high_watermark: int, _log_start: int) -> bool:
        return original(self, high_watermark, 0)

    patch(Partition, "advance_as_follower", advance_as_follower)


def a_new_controller_settles_nothing(patch: Patch) -> None:
    """What the last controller did by half stays so."""
    original = Sessions.__init__

    def init(self: Sessions, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        self.is_settled = True

    patch(Sessions, "__init__", init)


def a_half_fenced_life_goes_on(patch: Patch) -> None:
    """A fenced broker's next life keeps what the fencing has not come to."""
    original = controller_brokers._end_of_life

    def end_of_life(image: Any, config: Any, old: Any, *rest: Any) -> Any:
        return [] if old.fenced else original(image, config, old, *rest)

    patch(controller_brokers, "_end_of_life", end_of_life)


def failed_directories_are_not_told(patch: Patch) -> None:
    """A heartbeat does not name a failed directory: its replicas stay leaders."""
    patch(BrokerLifecycle, "_offline_directories", lambda _self: [])


def directories_of_replicas_are_not_told(patch: Patch) -> None:
    """The controller does not know which replicas a failed directory has."""
    patch(DirectoryAssignments, "on_image", lambda *_: None)


def unread_logs_begin_anew(patch: Patch) -> None:
    """A log in a directory that cannot be read at the start begins empty in another one."""
    patch(LostLogs, "_find_unread", lambda *_: None)


def a_crash_keeps_the_eligible(patch: Patch) -> None:
    """A broker that crashed leaves the in-sync replicas, and stays eligible with what is left."""
    patch(Changes, "without_unclean", Changes.without)


def eligible_whatever_the_minimum(patch: Patch) -> None:
    """Whoever leaves the in-sync replicas is eligible, also where the others go on without it."""
    original = Rules.__init__

    def init(self: Rules, **named: Any) -> None:
        original(self, **{**named, "min_isr": 1 << 30})

    patch(Rules, "__init__", init)


def the_last_leader_does_not_lead(patch: Patch) -> None:
    """A partition that nobody is left of has no leader for ever."""
    patch(PartitionDraft, "_last_known_leader", lambda _self: NO_LEADER)


def anybody_is_the_last_leader(patch: Patch) -> None:
    """The first replica that lives leads in the place of the last leader."""
    original = PartitionDraft._last_known_leader

    def last_known_leader(self: PartitionDraft) -> int:
        if self.isr or self._eligible or not self.partition.last_known_eligible_leader_replicas:
            return original(self)
        living = (one for one in self.replicas if self._rules.may_lead(self.partition, one))
        return next(living, NO_LEADER)

    patch(PartitionDraft, "_last_known_leader", last_known_leader)


MUTANTS = {
    "begin-where-the-deleted-ended": begin_where_the_deleted_ended,
    "believe-every-checksum": believe_every_checksum,
    "believe-every-offset": believe_every_offset,
    "cut-rotten-metadata": cut_rotten_metadata,
    "ignore-the-log-start": ignore_the_log_start,
    "keep-strays": keep_strays,
    "truncate-to-the-high-watermark": truncate_to_the_high_watermark,
    "skip-the-divergence-check": skip_the_divergence_check,
    "cut-nothing": cut_nothing,
    "high-watermark-before-the-shrink": high_watermark_before_the_shrink,
    "high-watermark-of-the-leader-alone": high_watermark_of_the_leader_alone,
    "forget-the-minimum": forget_the_minimum,
    "follower-commits-all-it-has": follower_commits_all_it_has,
    "lose-the-epoch-checkpoint": lose_the_epoch_checkpoint,
    "flush-past-the-epochs": flush_past_the_epochs,
    "trust-the-epoch-checkpoint": trust_the_epoch_checkpoint,
    "acknowledge-before-replication": acknowledge_before_replication,
    "join-without-catching-up": join_without_catching_up,
    "elect-anybody": elect_anybody,
    "trust-who-crashed": trust_who_crashed,
    "any-partition-epoch": any_partition_epoch,
    "vote-in-memory": vote_in_memory,
    "commit-without-a-majority": commit_without_a_majority,
    "metadata-before-fsync": metadata_before_fsync,
    "follow-without-producers": follow_without_producers,
}
ELIGIBLE = {
    "a-crash-keeps-the-eligible": a_crash_keeps_the_eligible,
    "anybody-is-the-last-leader": anybody_is_the_last_leader,
    "eligible-whatever-the-minimum": eligible_whatever_the_minimum,
    "the-last-leader-does-not-lead": the_last_leader_does_not_lead,
}
HALF_FENCED = {
    "a-half-fenced-life-goes-on": a_half_fenced_life_goes_on,
    "a-new-controller-settles-nothing": a_new_controller_settles_nothing,
}
DIRECTORIES = {
    "directories-of-replicas-are-not-told": directories_of_replicas_are_not_told,
    "failed-directories-are-not-told": failed_directories_are_not_told,
    "unread-logs-begin-anew": unread_logs_begin_anew,
}
SLOW_DISK = {"epochs-are-synced-on-the-loop": epochs_are_synced_on_the_loop}
