"""What must hold in the metadata quorum, whoever dies: epochs, votes, leaders, committed records.

Votes and epochs are compared across the lives of a node: they are promises of its disk, not of its
memory. Asked after every step of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.history import require
from tidelog.cluster.quorum.core import Role
from tidelog.cluster.quorum.events import NO_NODE

if TYPE_CHECKING:
    from collections.abc import Callable


class QuorumChecker:
    """All that is known of the quorum."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self.committed_end = 0  # the highest high watermark of the metadata log, anywhere
        self._leaders: dict[int, int] = {}  # by epoch
        self._epochs: dict[int, int] = {}  # by node, the newest that it was in
        self._ends: dict[int, int] = {}  # by node, where its log ended when it was last looked at
        self._kept: dict[int, int] = {}  # by node, how far it has what it knew to be committed
        self._votes: dict[tuple[int, int], int] = {}  # by node and epoch
        self._looks: dict[int, tuple[Any, ...]] = {}  # by node: what was seen last

    def epochs(self) -> list[int]:
        """The newest that each node was in."""
        return list(self._epochs.values())

    def kept(self, node_id: int) -> int:
        """How far a node's copy is known to be good and committed."""
        return self._kept.get(node_id, 0)

    def look(self, node_id: int, core: Any, metadata: Any) -> None:
        """A node's state machine and its log, between two of its steps."""
        if metadata.has_failed:
            return  # what it meant to do is not on its disk, and nobody hears of it
        log = metadata.log
        seen = (
            core.epoch,
            core.role,
            core.voted_id,
            core.leader_id,
            log.log_end_offset,
            log.high_watermark,
            metadata.flushed,
        )
        if self._looks.get(node_id) == seen:
            return  # most steps change nothing
        self._looks[node_id] = seen
        epoch = core.epoch
        newest = self._epochs.get(node_id, 0)
        if epoch < newest:
            require(False, f"quorum: {node_id} is in epoch {epoch}, and was in {newest}")
        self._epochs[node_id] = epoch
        self._check_vote(node_id, core)
        end = self._ends[node_id] = metadata.log_end()[1]
        kept = self._kept.get(node_id, 0)
        if end < kept:
            require(False, f"quorum: {node_id} knew of what was committed up to {kept}, has {end}")
        self._kept[node_id] = max(kept, min(metadata.high_watermark, metadata.flushed))
        if metadata.high_watermark > self.committed_end:
            self._check_majority(node_id, metadata)
        if core.role is Role.LEADER and epoch not in self._leaders:
            self._leaders[epoch] = node_id
            self._tell(f"broker-{node_id}", f"is the controller in epoch {epoch}")
            require(
                epoch < max(self._leaders) or end >= self.committed_end,
                f"quorum: {node_id} leads in epoch {epoch} with a log up to {end}, and"
                f" {self.committed_end} was committed",
            )
        elif core.role is Role.LEADER and self._leaders[epoch] != node_id:
            known = self._leaders[epoch]
            require(False, f"quorum: {known} and {node_id} lead in epoch {epoch}")

    def _check_majority(self, node_id: int, metadata: Any) -> None:
        """More was committed: most voters have it."""
        committed = self.committed_end = metadata.high_watermark
        having = [voter for voter in metadata.voters if self._ends.get(voter, 0) >= committed]
        require(
            2 * len(having) > len(metadata.voters),
            f"quorum: {node_id} takes {committed} for committed, and {having} alone have it",
        )

    def _check_vote(self, node_id: int, core: Any) -> None:
        """Who leads has voted for itself, though it says so no more."""
        vote = core.voted_id
        if core.leader_id == node_id:
            vote = node_id
        if vote == NO_NODE:
            return
        known = self._votes.setdefault((node_id, core.epoch), vote)
        if known != vote:
            require(
                False,
                f"quorum: {node_id} voted for {known} and for {vote} in epoch {core.epoch}",
            )
