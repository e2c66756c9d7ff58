"""Planted bugs of voters that change (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.quorum.driver import Quorum
from tidelog.cluster.quorum.voter_changes import VoterChanges
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.quorum.voter_changes import Outcome

    Patch = Callable[..., None]


def commit_by_the_old_majority(patch: Patch) -> None:
    """A leader goes on to count the voters that it was elected by."""
    original = Quorum._voters_changed

    def _voters_changed(self: Quorum) -> None:
        if not self.core.is_leader:
            original(self)

    patch(Quorum, "_voters_changed", _voters_changed)


def two_changes_at_once(patch: Patch) -> None:
    """A change does not wait until the one before it is committed."""
    original = VoterChanges._refusal

    def _refusal(self: VoterChanges, verb: str) -> Outcome | None:
        refusal = original(self, verb)
        is_early = refusal is not None and refusal.error is ErrorCode.REQUEST_TIMED_OUT
        return None if is_early and self._quorum.metadata.is_leader else refusal

    patch(VoterChanges, "_refusal", _refusal)


def truncated_voters_stay(patch: Patch) -> None:
    """Voters whose record was cut off go on to count."""
    original = MetadataLog.truncate

    def truncate(self: MetadataLog, epoch: int, end_offset: int) -> None:
        known, self._uncommitted = self._uncommitted, None
        try:
            original(self, epoch, end_offset)
        finally:
            self._uncommitted = known

    patch(MetadataLog, "truncate", truncate)


MUTANTS = {
    "commit-by-the-old-majority": commit_by_the_old_majority,
    "truncated-voters-stay": truncated_voters_stay,
    "two-changes-at-once": two_changes_at_once,
}
