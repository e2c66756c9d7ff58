"""Planted bugs of transactions: coordinators, markers, leaders that verify, logs that remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.produce_gate import ProduceGate
from tidelog.awaiting import first_answer_of
from tidelog.coordinators.groups.admin import GroupAdmin
from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.pending import PendingOffsets
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.transactions import coordinator
from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
from tidelog.coordinators.transactions.transaction import Transaction
from tidelog.coordinators.transactions.verification import Verifications
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.log import Log
from tidelog_storage.producer_state import CompletedTransaction, ProducerStateManager
from tidelog_storage.types import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[..., None]


def markers_before_the_decision_is_committed(patch: Patch) -> None:
    """A coordinator takes what it has written for committed."""
    original = TransactionCoordinator._append

    async def append(self: Any, shard: Any, records: Any) -> ErrorCode:
        commit = self.topic.commit

        def at_once(index: int, end_offset: int, settled: Any) -> None:
            self.topic.commit = commit
            commit(index, end_offset, lambda _error: None)
            settled(ErrorCode.NONE)

        self.topic.commit = at_once
        try:
            return await original(self, shard, records)
        finally:
            self.topic.commit = commit

    patch(TransactionCoordinator, "_append", append)


def epoch_not_bumped(patch: Patch) -> None:
    """Whoever takes a transactional id over gets the epoch of who had it before."""
    original = Transaction.prepare_increment

    def prepare_increment(self: Transaction, *args: Any) -> Any:
        target = original(self, *args)
        known = self.value.producer_epoch
        return target if target is None or known < 0 else target._replace(producer_epoch=known)

    patch(Transaction, "prepare_increment", prepare_increment)


def any_end_is_the_oldest(patch: Patch) -> None:
    """The marker of one producer ends the transaction of whoever began first."""

    def complete(self: ProducerStateManager, completed: CompletedTransaction) -> None:
        first = next(iter(self._ongoing))
        del self._ongoing[first]
        self._unreplicated[first] = completed.last_offset

    patch(ProducerStateManager, "complete_transaction", complete)


def aborted_in_the_first_segment(patch: Patch) -> None:
    """The list of aborted transactions ends with the segment that a fetch begins in."""

    def aborted(self: Log, offset: int, upper_bound: int) -> list[AbortedTransaction]:
        found: list[Any] = []
        self.transactions_of(self.segments.from_floor(offset)[0]).collect(
            offset, upper_bound, found
        )
        return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]

    patch(Log, "aborted_transactions", aborted)


def aborted_offsets_count(patch: Patch) -> None:
    """Offsets of a transaction that is aborted are committed."""
    original = PendingOffsets.end
    patch(
        PendingOffsets,
        "end",
        lambda self, producer_id, **_: original(self, producer_id, is_commit=True),
    )


def pending_offsets_not_loaded(patch: Patch) -> None:
    """A new group coordinator knows nothing of offsets whose transaction is open."""
    original = GroupShard.replay

    def replay(self: Any, change: Any, end: int, now: Any, producer_id: int | None = None) -> None:
        if producer_id is None:
            original(self, change, end, now)

    patch(GroupShard, "replay", replay)


def guard_not_checked(patch: Patch) -> None:
    """What the coordinator said once is good for ever."""
    patch(Verifications, "redeem", lambda *_, **_options: None)


def nothing_verified(patch: Patch) -> None:
    """Leaders of the first protocol take every batch for part of a transaction."""
    original = ProduceGate.guards

    def guards(self: ProduceGate, batches: Any, version: int) -> Any:
        return {} if version < 12 else original(self, batches, version)

    patch(ProduceGate, "guards", guards)


def markers_forgotten_at_load(patch: Patch) -> None:
    """A new coordinator serves, and leaves what was decided as it is."""
    patch(
        TransactionCoordinator, "_serve", lambda _self, shard: setattr(shard, "is_loading", False)
    )


def late_writes_are_given_up(patch: Patch) -> None:
    """As Apache Kafka's, a coordinator forgets what is not committed in time, in its log or not."""
    original = coordinator.append

    async def append(*args: Any) -> ErrorCode:
        return await first_answer_of(original(*args))

    patch(coordinator, "append", append)


def zombie_members_commit(patch: Patch) -> None:
    """Offsets are taken in a transaction from members that the group has gone on without."""
    patch(Group, "validate_transactional_commit", lambda *_: ErrorCode.NONE)


def open_offsets_are_stable(patch: Patch) -> None:
    """Who asks for stable offsets does not wait for open transactions."""
    patch(PendingOffsets, "of_group", lambda *_: set())


def stable_offsets_looked_at_late(patch: Patch) -> None:
    """What was there when offsets were asked for is waited for, and then the newest is told."""
    original = GroupAdmin.fetch

    async def fetch(self: Any, group_id: str, *member: Any, require_stable: bool) -> Any:
        fetched = await original(self, group_id, *member, require_stable=require_stable)
        shard = self._coordinator.shard_of(group_id)
        if not require_stable or fetched.error or not isinstance(shard, GroupShard):
            return fetched
        return fetched._replace(
            offsets=shard.committed.of_group(group_id), unstable=shard.pending.of_group(group_id)
        )

    patch(GroupAdmin, "fetch", fetch)


def epochs_begin_again(patch: Patch) -> None:
    """When its epochs are used up, a producer gets them once more."""
    original = Transaction.prepare_rotation

    def prepare_rotation(self: Transaction, _new: int, *args: Any, **options: Any) -> Any:
        return original(self, self.value.producer_id, *args, **options)

    patch(Transaction, "prepare_rotation", prepare_rotation)


MUTANTS = {
    "markers-before-the-decision-is-committed": markers_before_the_decision_is_committed,
    "epoch-not-bumped": epoch_not_bumped,
    "any-end-is-the-oldest": any_end_is_the_oldest,
    "aborted-in-the-first-segment": aborted_in_the_first_segment,
    "aborted-offsets-count": aborted_offsets_count,
    "pending-offsets-not-loaded": pending_offsets_not_loaded,
    "guard-not-checked": guard_not_checked,
    "nothing-verified": nothing_verified,
    "markers-forgotten-at-load": markers_forgotten_at_load,
    "zombie-members-commit": zombie_members_commit,
    "epochs-begin-again": epochs_begin_again,
}
# Chance seldom meets these; stories that are told step by step do each time.
TOLD_MUTANTS = {
    "late-writes-are-given-up": late_writes_are_given_up,
    "open-offsets-are-stable": open_offsets_are_stable,
    "stable-offsets-looked-at-late": stable_offsets_looked_at_late,
}
