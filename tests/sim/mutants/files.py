"""Planted bugs of what a broker makes of damaged files, and of operations that fail for them.

`sim/cluster/file_rot.py` damages files in random runs; `test_file_mutants.py` plays each of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.replication.purgatory import Purgatory
from tidelog_storage import log as log_module
from tidelog_storage import recovery, segment
from tidelog_storage.log import Log
from tidelog_storage.replicated import check_replicated
from tidelog_storage.scan import batch_places
from tidelog_storage.types import UNDEFINED_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replication.purgatory import DelayedOperation
    from tidelog_storage.segment import Segment

    Patch = Callable[..., None]


def log_start_of_the_lost_checkpoint(patch: Patch) -> None:
    """Without a checkpoint, a tiered log begins with its first local segment."""
    patch(recovery._Loader, "with_start_of_epochs", lambda _self, known, *_: known)


def made_up_start_is_checkpointed(patch: Patch) -> None:
    """A log that was refused, since its epochs are lost, leaves a start behind that is believed."""
    patch(Log, "has_lost_epochs", False)


def transaction_index_not_checked(patch: Patch) -> None:
    """What the file has is taken for all aborted transactions."""
    patch(Log, "transactions_of", lambda _self, held: held.transaction_index)


def offset_index_not_checked(patch: Patch) -> None:
    """A search begins wherever an entry says."""

    def places(held: Segment, entry_of: Any, position: int = 0) -> Any:
        entry = entry_of(held.offset_index)
        position = position if entry is None else max(position, entry[1])
        return batch_places(held.records, position, held.size)

    patch(segment.Segment, "places_from", places)
    patch(segment, "check_opened", lambda *_: None)


def time_index_not_checked(patch: Patch) -> None:
    """The newest timestamp of a segment is what its last entry says."""
    patch(segment, "check_opened", lambda *_: None)


def rotten_epoch_is_taken_over(patch: Patch) -> None:
    """A follower takes any leader epoch that is not above its leader's."""

    def check(records: Any, log_end_offset: int, leader_epoch: int, _latest_epoch: int) -> Any:
        return check_replicated(records, log_end_offset, leader_epoch, UNDEFINED_EPOCH)

    patch(log_module, "check_replicated", check)


def failure_reaches_the_waker(patch: Patch) -> None:
    """The exception of a parked operation goes to whose event has woken it."""

    def complete(self: Any, operation: DelayedOperation[Any], *, expired: bool) -> None:
        self._unwatch(operation)
        operation.complete(expired=expired)

    patch(Purgatory, "_complete", complete)


def expiry_ends_with_a_failure(patch: Patch) -> None:
    """What is due behind an operation that fails stays where it is."""
    original: Any = Purgatory._complete

    def complete(self: Any, operation: DelayedOperation[Any], *, expired: bool) -> None:
        if expired:
            self._unwatch(operation)
            operation.complete(expired=True)
        else:
            original(self, operation, expired=False)

    patch(Purgatory, "_complete", complete)


PLAYED: dict[str, Callable[[Patch], None]] = {
    "expiry-ends-with-a-failure": expiry_ends_with_a_failure,
    "failure-reaches-the-waker": failure_reaches_the_waker,
    "log-start-of-the-lost-checkpoint": log_start_of_the_lost_checkpoint,
    "made-up-start-is-checkpointed": made_up_start_is_checkpointed,
    "offset-index-not-checked": offset_index_not_checked,
    "rotten-epoch-is-taken-over": rotten_epoch_is_taken_over,
    "time-index-not-checked": time_index_not_checked,
    "transaction-index-not-checked": transaction_index_not_checked,
}
