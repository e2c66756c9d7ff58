"""The inputs of a voter's state machine (events) and its outputs (effects).

`QuorumCore.step` takes an event and returns effects, to be performed in order, `Persist` first:
nothing may leave the node that a crash could undo.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.cluster.metadata.quorum_state import NO_DIRECTORY, NO_NODE, Election
from tidelog_protocol.errors import ErrorCode

__all__ = [
    "NO_DIRECTORY",
    "NO_NODE",
    "AskVotes",
    "BeginEpoch",
    "Effect",
    "Election",
    "EndEpoch",
    "EpochBegun",
    "EpochEnded",
    "EpochTold",
    "Event",
    "HighWatermarkMoved",
    "LeaderAnswered",
    "LeaderLost",
    "Leave",
    "LocalFlushed",
    "LogEnd",
    "Persist",
    "ReplicaFetched",
    "Reply",
    "RoleChanged",
    "Seat",
    "Tick",
    "VoteAnswered",
    "VoteAsked",
    "VotersChanged",
]


class LogEnd(NamedTuple):
    """The end of a log. It compares as in elections: the epoch of the last record first."""

    epoch: int
    offset: int


# ---- events --------------------------------------------------------------------------------------


class Tick(NamedTuple):
    """Time has passed; due at `QuorumCore.deadline`, harmless at any time."""


class VoteAsked(NamedTuple):
    """A Vote request (KIP-595; `pre_vote` KIP-996): answered by one `Reply`."""

    candidate_id: int
    epoch: int
    log_end: LogEnd
    pre_vote: bool
    directory_id: bytes = NO_DIRECTORY


class VoteAnswered(NamedTuple):
    """A voter's answer to the vote asked in `asked_epoch`; `epoch` and `leader_id` are the
    voter's."""

    voter_id: int
    asked_epoch: int
    pre_vote: bool
    granted: bool
    epoch: int
    leader_id: int = NO_NODE


class EpochBegun(NamedTuple):
    """A BeginQuorumEpoch request: a leader announces itself. Answered by one `Reply`."""

    leader_id: int
    epoch: int


class EpochEnded(NamedTuple):
    """An EndQuorumEpoch request: a leader resigns, and names preferred successors in order.
    Answered by one `Reply`."""

    leader_id: int
    epoch: int
    preferred: tuple[int, ...] = ()


class EpochTold(NamedTuple):
    """Any other answer that has an epoch and, if known, its leader."""

    epoch: int
    leader_id: int = NO_NODE


class LeaderAnswered(NamedTuple):
    """A fetch from the leader of `epoch` succeeded."""

    epoch: int


class LeaderLost(NamedTuple):
    """The connection to the leader of `epoch` broke or is refused: it may be gone."""

    epoch: int


class ReplicaFetched(NamedTuple):
    """A replica fetches from `offset` on: it holds everything below, on disk."""

    replica_id: int
    offset: int
    directory_id: bytes = NO_DIRECTORY


class Seat(NamedTuple):
    """This node's part in a quorum whose voters the log names (KIP-853).

    `stands`: it may be elected, because it votes, or because the record that removes it may not be
    committed: the others may need it for that (Raft dissertation, 4.2.2).
    """

    is_voter: bool
    stands: bool


class VotersChanged(NamedTuple):
    """The log names these voters, committed or not. `seat` is None for those of the settings: the
    records of the first named ones were cut."""

    voters: tuple[int, ...]
    seat: Seat | None


class LocalFlushed(NamedTuple):
    """This node holds everything below `offset` on disk."""

    offset: int


class Leave(NamedTuple):
    """This node is stopping: a leader resigns."""


Event = (
    Tick
    | VoteAsked
    | VoteAnswered
    | EpochBegun
    | EpochEnded
    | EpochTold
    | LeaderAnswered
    | LeaderLost
    | ReplicaFetched
    | VotersChanged
    | LocalFlushed
    | Leave
)


# ---- effects -------------------------------------------------------------------------------------


class Persist(NamedTuple):
    """Make this durable before anything that follows."""

    election: Election


class Reply(NamedTuple):
    """Answer the request, with the core's epoch and leader as they are now."""

    error: ErrorCode = ErrorCode.NONE
    granted: bool = False


class AskVotes(NamedTuple):
    """Ask all other voters, with retries until this election ends."""

    epoch: int
    pre_vote: bool


class BeginEpoch(NamedTuple):
    """Announce to these voters that this node leads."""

    epoch: int
    voters: tuple[int, ...]


class EndEpoch(NamedTuple):
    """Announce to all other voters that this node resigns."""

    epoch: int
    preferred: tuple[int, ...]


class RoleChanged(NamedTuple):
    """Role, epoch or leader changed: read the core again. A new leader appends the record of its
    epoch at once, at the log's end."""


class HighWatermarkMoved(NamedTuple):
    """Everything below `offset` is committed (leader only)."""

    offset: int


Effect = Persist | Reply | AskVotes | BeginEpoch | EndEpoch | RoleChanged | HighWatermarkMoved
