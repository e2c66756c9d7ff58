"""Planted bugs of share groups: locks, acknowledgements, deliveries, the stored state.

They are looked for where one share group is served and little else is done (`sim/share_groups.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.mutants.groups import not_loaded
from tidelog.coordinators.groups.share import draft
from tidelog.coordinators.share.records import Snapshot
from tidelog.coordinators.share.shard import ShareShard
from tidelog.coordinators.share.values import StateBatch
from tidelog.replication.reads import HIGH_WATERMARK
from tidelog.shares import acquiring, fetch_work, partition_state, settings
from tidelog.shares.in_flight import InFlight
from tidelog.shares.led_partition import LedPartition
from tidelog.shares.partition_state import SharePartitionState
from tidelog.shares.records import Acquired, RecordState, Span
from tidelog_protocol.messages.share_group_records import ShareGroupStatePartitionMetadataKey

Patch = Callable[..., None]


def acknowledgements_in_memory(patch: Patch) -> None:
    """What members acknowledge is never stored."""

    async def written(*_: Any) -> None:
        return None

    patch(LedPartition, "_written", written)


def answered_before_it_is_stored(patch: Patch) -> None:
    """An acknowledgement is answered while the share coordinator writes it."""
    original = LedPartition._write

    def write(self: LedPartition, change: Any, on_done: Any) -> None:
        original(self, change, None)
        if on_done is not None:
            on_done(None)

    patch(LedPartition, "_write", write)


def any_member_acknowledges(patch: Patch) -> None:
    """A member that has lost its lock answers for the one that has the record now."""
    original = SharePartitionState._check_owner
    patch(
        SharePartitionState,
        "_check_owner",
        lambda self, span, _member_id: original(self, span, span.member_id),
    )


def locks_never_end(patch: Patch) -> None:
    """A record that a member forgets is locked for ever."""
    patch(LedPartition, "changed", lambda _self: None)


def locks_end_together(patch: Patch) -> None:
    """With the first lock that ends, all do."""
    original = SharePartitionState.expire
    patch(
        SharePartitionState, "expire", lambda self, now, limits: original(self, now + 3600, limits)
    )


def a_member_that_leaves_frees_all(patch: Patch) -> None:
    """The end of a session releases what other members hold, too."""
    original = SharePartitionState.release

    def release(self: SharePartitionState, _member_id: str, limits: Any) -> Any:
        holders = dict.fromkeys(span.member_id for span in self._held())
        change = original(self, "", limits)
        for member_id in holders:
            other = original(self, member_id, limits)
            change.spans.extend(other.spans)
            change.batches.extend(other.batches)
        return change

    patch(SharePartitionState, "release", release)


def deliveries_are_not_counted(patch: Patch) -> None:
    """Each delivery is the first one."""
    original = Span.acquire

    def acquire(self: Span, member_id: str, lock_until: float) -> Acquired:
        self.delivery_count = 0
        return original(self, member_id, lock_until)

    patch(Span, "acquire", acquire)


def no_delivery_is_the_last(patch: Patch) -> None:
    """A record comes again for ever."""
    patch(partition_state, "_released", lambda *_: RecordState.AVAILABLE)


def delivery_counts_are_not_stored(patch: Patch) -> None:
    """A new leader counts deliveries from the beginning."""
    original = Span.begin
    patch(Span, "begin", lambda self, target: original(self, target)._replace(delivery_count=0))


def renewals_renew_nothing(patch: Patch) -> None:
    """A lock ends at its time, though it was renewed."""
    original = SharePartitionState.acknowledge

    def acknowledge(self: Any, member_id: str, acks: Any, limits: Any, now: float) -> Any:
        return original(self, member_id, acks, limits, now - limits.lock_ms / 1000 + 0.001)

    patch(SharePartitionState, "acknowledge", acknowledge)


def aborted_records_are_given_out(patch: Patch) -> None:
    """What was aborted counts as any record."""
    patch(fetch_work, "aborted_ranges", lambda *_: [])


def open_transactions_are_read(patch: Patch) -> None:
    """Groups that read what is committed read up to the high watermark."""
    patch(settings, "TRANSACTION_COMMITTED", HIGH_WATERMARK)


def stored_states_are_not_loaded(patch: Patch) -> None:
    """A new leader knows where to begin, and nothing of what is done behind that."""
    original = SharePartitionState.__init__

    def init(self: Any, start_offset: int, batches: Any = ()) -> None:
        del batches
        original(self, start_offset)

    patch(SharePartitionState, "__init__", init)


def gaps_are_done(patch: Patch) -> None:
    """A new leader passes over the records that the last one had given out, and stored nothing of,
    if something behind them is stored."""
    original = SharePartitionState.__init__

    def init(self: Any, start_offset: int, batches: Any = ()) -> None:
        whole: list[StateBatch] = []
        expected = start_offset
        for each in batches:
            if each.first_offset > expected:
                whole.append(StateBatch(expected, each.first_offset - 1, RecordState.ARCHIVED, 1))
            whole.append(each)
            expected = each.last_offset + 1
        original(self, start_offset, whole)

    patch(SharePartitionState, "__init__", init)


def released_records_stay_behind(patch: Patch) -> None:
    """Reading goes on behind all that was ever given out."""
    patch(
        SharePartitionState, "next_fetch_offset", property(lambda self: self.in_flight.next_offset)
    )


def the_log_start_is_not_followed(patch: Patch) -> None:
    """A group whose next record was deleted asks for it for ever."""
    patch(SharePartitionState, "move_start", lambda *_: False)


def limits_of_records_are_hints(patch: Patch) -> None:
    """A member that asks for at most so many records gets whole batches."""
    original = acquiring.acquire
    patch(
        fetch_work,
        "acquire",
        lambda state, wish, *rest: original(state, wish._replace(is_strict=False), *rest),
    )


def the_start_passes_what_is_held(patch: Patch) -> None:
    """The start offset moves behind the last record that is done."""

    def advance(self: InFlight) -> bool:
        done = [number for number, span in enumerate(self.spans, 1) if span.is_done]
        if not done or any(span.target is not None for span in self.spans[: done[-1]]):
            return False
        self.start_offset = self.spans[done[-1] - 1].last + 1
        del self.spans[: done[-1]]
        return True

    patch(InFlight, "advance", advance)


def a_share_partition_is_left_out(patch: Patch) -> None:
    """The assignor forgets the last partition."""
    original = draft.simple_assignor

    def assign(members: Any, assignable: Any) -> Any:
        fewer = {
            topic: partitions - {max(partitions)} if len(partitions) > 1 else partitions
            for topic, partitions in assignable.items()
        }
        return original(members, fewer)

    patch(draft, "simple_assignor", assign)


def snapshots_forget_what_is_in_flight(patch: Patch) -> None:
    """The state that the share coordinator snapshots has its latest change alone."""
    original = ShareShard._record

    def record(self: ShareShard, key: Any, entry: Any, update: Any, now_ms: int) -> Any:
        made = original(self, key, entry, update, now_ms)
        if isinstance(made.value, Snapshot):
            made = made._replace(value=made.value._replace(batches=update.batches))
        return made

    patch(ShareShard, "_record", record)


def snapshots_begin_where_the_last_began(patch: Patch) -> None:
    """The state that the share coordinator snapshots has an old start offset."""
    original = ShareShard._record

    def record(self: ShareShard, key: Any, entry: Any, update: Any, now_ms: int) -> Any:
        made = original(self, key, entry, update, now_ms)
        if isinstance(made.value, Snapshot):
            start_offset = entry.state.start_offset
            made = made._replace(value=made.value._replace(start_offset=start_offset))
        return made

    patch(ShareShard, "_record", record)


def the_last_delivery_is_left_out(patch: Patch) -> None:
    """A record is given up with one try left."""
    original = partition_state._released

    def released(span: Span, limits: Any) -> RecordState:
        return original(span, limits._replace(deliveries_max=limits.deliveries_max - 1))

    patch(partition_state, "_released", released)


def share_partitions_are_not_loaded(patch: Patch) -> None:
    """The next group coordinator begins the states of all partitions again."""
    not_loaded(patch, ShareGroupStatePartitionMetadataKey)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    "a-member-that-leaves-frees-all": a_member_that_leaves_frees_all,
    "a-share-partition-is-left-out": a_share_partition_is_left_out,
    "aborted-records-are-given-out": aborted_records_are_given_out,
    "acknowledgements-in-memory": acknowledgements_in_memory,
    "answered-before-it-is-stored": answered_before_it_is_stored,
    "any-member-acknowledges": any_member_acknowledges,
    "deliveries-are-not-counted": deliveries_are_not_counted,
    "delivery-counts-are-not-stored": delivery_counts_are_not_stored,
    "gaps-are-done": gaps_are_done,
    "limits-of-records-are-hints": limits_of_records_are_hints,
    "locks-end-together": locks_end_together,
    "locks-never-end": locks_never_end,
    "no-delivery-is-the-last": no_delivery_is_the_last,
    "open-transactions-are-read": open_transactions_are_read,
    "released-records-stay-behind": released_records_stay_behind,
    "renewals-renew-nothing": renewals_renew_nothing,
    "share-partitions-are-not-loaded": share_partitions_are_not_loaded,
    "snapshots-begin-where-the-last-began": snapshots_begin_where_the_last_began,
    "snapshots-forget-what-is-in-flight": snapshots_forget_what_is_in_flight,
    "stored-states-are-not-loaded": stored_states_are_not_loaded,
    "the-last-delivery-is-left-out": the_last_delivery_is_left_out,
    "the-log-start-is-not-followed": the_log_start_is_not_followed,
    "the-start-passes-what-is-held": the_start_passes_what_is_held,
}
