"""One partition's next state: its leader, in-sync replicas and epochs (Kafka's
PartitionChangeBuilder).

Every change of a partition goes through `PartitionDraft`: the caller sets the new replicas and
in-sync replicas, and `record` derives the rest: a leader that is alive and in sync, the end of a
reassignment whose new replicas are in sync, and the eligible leader replicas. It is pure and
knows nothing of requests.

Invariants of the result, with eligible leader replicas off: the ISR is never empty (its last member
stays, without leading); the leader is in the ISR or there is none; a new leader, or a removed
replica, begins a new leader epoch.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import NO_LEADER
from tidelog.cluster.metadata.replay import NO_LEADER_CHANGE
from tidelog_protocol.messages.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.cluster.metadata.image import PartitionImage

RECOVERED, RECOVERING = 0, 1  # leader recovery states (KIP-704)


class Election(Enum):
    """How far an election may go to find a leader."""

    PREFERRED = "the first replica if it is in sync, else a leader that is in sync"
    ONLINE = "the present leader, else the first replica in sync"
    UNCLEAN = "as ONLINE, else the first living replica, losing what it lacks"


class Rules:
    """The settings of the partition's topic and the current states of the brokers."""

    __slots__ = ("default_directory", "election", "eligible_enabled", "may_lead", "min_isr")

    def __init__(
        self,
        *,
        may_lead: Callable[[PartitionImage, int], bool],
        default_directory: Callable[[int], bytes],
        min_isr: int = 1,
        eligible_enabled: bool = False,
        election: Election = Election.ONLINE,
    ) -> None:
        """`may_lead(partition, broker)`: the broker is active and has the replica's directory.

        `min_isr` is the effective one, at most the replication factor. `eligible_enabled`: eligible
        leader replicas (KIP-966) are kept.
        """
        self.may_lead = may_lead
        self.default_directory = default_directory
        self.min_isr = min_isr
        self.eligible_enabled = eligible_enabled
        self.election = election


class PartitionDraft:
    """The next state of a partition: set its fields, then call `record`."""

    __slots__ = (
        "_eligible",
        "_record",
        "_rules",
        "_unclean",
        "adding",
        "assigned",
        "isr",
        "partition",
        "recovery_state",
        "refreshed",
        "removing",
        "replicas",
        "unclean_shutdowns",
    )

    def __init__(self, partition: PartitionImage, rules: Rules) -> None:
        self.partition = partition
        self.isr: list[int] = list(partition.isr)
        self.replicas: list[int] = list(partition.replicas)
        self.adding: list[int] = list(partition.adding_replicas)
        self.removing: list[int] = list(partition.removing_replicas)
        self.recovery_state = partition.leader_recovery_state
        self.unclean_shutdowns: Sequence[int] = ()
        """Brokers whose logs may lack acknowledged records: they are no longer eligible."""
        self.refreshed: Sequence[int] = ()
        """Brokers that have the replica in another directory than the known one."""
        self.assigned: dict[int, bytes] = {}
        """Directories of the replica that its brokers have reported."""
        self._rules = rules
        self._eligible: list[int] = list(partition.eligible_leader_replicas)
        self._unclean = False
        self._record = PartitionChangeRecord()

    def record(self, topic_id: bytes) -> PartitionChangeRecord | None:
        """Return the change, or None if nothing changes. Call it once."""
        old = self.partition
        record = self._record = PartitionChangeRecord(topic_id=topic_id, partition_id=old.partition)
        self._complete_reassignment()
        self._collect_eligible()
        self._elect()
        if record.leader == NO_LEADER_CHANGE and not set(old.replicas) <= set(self.replicas):
            # A new leader epoch, because a removed replica must not count as part of the old one.
            record.leader = old.leader
        self._set_eligible()
        if (
            record.isr is None
            and (self.isr or self._rules.eligible_enabled)
            and self.isr != list(old.isr)
        ):
            record.isr = list(self.isr)
        self._set_last_known_leader()
        self._set_assignment()
        if self.recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        unchanged = PartitionChangeRecord(topic_id=topic_id, partition_id=old.partition)
        return None if record == unchanged else record

    # ---- reassignment -------------------------------------------------------------------------

    def _complete_reassignment(self) -> None:
        """End a reassignment when its new replicas are in sync (KIP-455); all the replicas it
        keeps must be, too, if it removes more than it adds (PartitionReassignmentReplicas)."""
        if not self.adding and not self.removing:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        awaited = self.adding if len(self.adding) >= len(self.removing) else replicas
        if isr and replicas and {*self.adding, *awaited} <= set(isr):
            self.isr, self.replicas = isr, replicas
            self.adding, self.removing = [], []

    # ---- elections ----------------------------------------------------------------------------

    def _elect(self) -> None:
        leader = self._new_leader()
        if leader == self.partition.leader:
            return
        record = self._record
        record.leader = leader
        if leader in self._eligible:
            self.isr = [leader]
            self._eligible.remove(leader)
        elif self._unclean:
            record.isr = [leader]
            self.isr = [leader]
            if self.partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _new_leader(self) -> int:
        present = self.partition.leader
        if self._rules.election is Election.PREFERRED and self._is_clean_choice(self.replicas[0]):
            return self.replicas[0]
        if self._is_clean_choice(present):
            return present
        for replica in self.replicas:
            if self._is_clean_choice(replica):
                return replica
        last = self._last_known_leader()
        if last != NO_LEADER:
            self._unclean = True
            return last
        if self._rules.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._rules.may_lead(self.partition, replica):
                    self._unclean = True
                    return replica
        return NO_LEADER

    def _is_clean_choice(self, replica: int) -> bool:
        known = replica in self.isr or (not self.isr and replica in self._eligible)
        return known and self._rules.may_lead(self.partition, replica)

    def _last_known_leader(self) -> int:
        """Return the last leader of a partition without in-sync or eligible replicas (KIP-966,
        balanced recovery)."""
        known = self.partition.last_known_eligible_leader_replicas
        if (
            self._rules.eligible_enabled
            and not self.isr
            and not self._eligible
            and len(known) == 1
            and self._rules.may_lead(self.partition, known[0])
        ):
            return known[0]
        return NO_LEADER

    # ---- eligible leader replicas (KIP-966) ---------------------------------------------------

    def _collect_eligible(self) -> None:
        """Keep replicas that leave an ISR below the minimum: they have all committed records.

        Not those that a reassignment has removed, which Kafka keeps: one would still count when it
        is added again, with an empty log.
        """
        if not self._rules.eligible_enabled:
            return
        if len(self.isr) >= self._rules.min_isr:
            self._eligible = []
            return
        candidates = sorted({*self._eligible, *self.partition.isr})
        self._eligible = [
            replica
            for replica in candidates
            if replica in self.replicas
            and replica not in self.isr
            and replica not in self.unclean_shutdowns
        ]

    def _set_eligible(self) -> None:
        if self._unclean or not self._rules.eligible_enabled:
            self._eligible = []
        if self._eligible != list(self.partition.eligible_leader_replicas):
            self._record.eligible_leader_replicas = list(self._eligible)

    def _set_last_known_leader(self) -> None:
        """Record the leader when there is none any more, until there is a new one."""
        if not self._rules.eligible_enabled:
            return
        record, known = self._record, self.partition.last_known_eligible_leader_replicas
        if record.leader == NO_LEADER != self.partition.leader and not known:
            record.last_known_elr = [self.partition.leader]
        elif record.leader >= 0 and known:
            record.last_known_elr = []

    # ---- assignment ---------------------------------------------------------------------------

    def _set_assignment(self) -> None:
        record, old = self._record, self.partition
        known = dict(zip(old.replicas, old.directories, strict=False))
        for replica in self.refreshed:
            known.pop(replica, None)
        known |= self.assigned
        if old.directories or self.assigned or self.replicas != list(old.replicas):
            directories = [
                known[replica] if replica in known else self._rules.default_directory(replica)
                for replica in self.replicas
            ]
            if directories != list(old.directories):
                record.directories = directories
        if self.replicas != list(old.replicas):
            record.replicas = list(self.replicas)
        if self.removing != list(old.removing_replicas):
            record.removing_replicas = list(self.removing)
        if self.adding != list(old.adding_replicas):
            record.adding_replicas = list(self.adding)
