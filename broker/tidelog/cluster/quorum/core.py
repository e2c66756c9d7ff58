"""One voter of the metadata quorum: Kafka's KRaft as a state machine (KIP-595, KIP-996).

It owns role, epoch, vote, and as a leader the progress of the others and the high watermark. Pure:
`step(event, now)` returns effects; time is in seconds, randomness comes from the Rng seam, and only
the log's end is known. `driver.py` calls it.

Voters are static, or those that the log names (KIP-853): the newest set counts from the moment that
its record is in a node's log. Sets differ by one voter, so the majorities of two that follow each
other have a node in common. A node may have to vote before its log names it, and for a candidate
that its log does not name: the candidate decides by its own set whose votes count.

Roles and what they wait for:

- UNATTACHED: knows no leader to fetch from. It may have voted in this epoch. After its election
  timeout a voter becomes prospective; an observer keeps looking for the leader.
- FOLLOWER: fetches from the leader. After the fetch timeout without an answer, prospective.
- PROSPECTIVE: sends pre-votes in its current epoch, which bind no voter (KIP-996): a node that was
  cut off does not disturb a working quorum. Majority: candidate. Refused or timed out: back to
  follower or unattached.
- CANDIDATE: asks for votes in a new epoch. Majority: leader. Refused: prospective again after a
  random time, so that equal candidates do not split the votes forever.
- LEADER: appends, counts replicas, announces itself. It resigns when most voters have not fetched
  for a while, because another leader may have replaced it.
- RESIGNED: led in this epoch and no longer does. After the election timeout it leaves the epoch,
  in which no other node can ever lead.

Why this is safe: a vote is durable before it is sent, there is one per epoch, and it only goes to
a log that is not behind the voter's. So records on the disks of a majority are in the log of each
later leader. Records of earlier epochs are committed only with one of the leader's (Raft 5.4.2).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.quorum_state import EPOCH_MAX
from tidelog.cluster.quorum.events import (
    NO_DIRECTORY,
    NO_NODE,
    AskVotes,
    BeginEpoch,
    Effect,
    Election,
    EndEpoch,
    EpochBegun,
    EpochEnded,
    EpochTold,
    Event,
    HighWatermarkMoved,
    LeaderAnswered,
    LeaderLost,
    Leave,
    LocalFlushed,
    LogEnd,
    Persist,
    ReplicaFetched,
    Reply,
    RoleChanged,
    Seat,
    Tick,
    VoteAnswered,
    VoteAsked,
    VotersChanged,
)
from tidelog.cluster.quorum.progress import Progress, progress_of
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidelog.seams import Rng

__all__ = ["QuorumCore", "Role", "Timeouts"]


class Role(Enum):
    """See the module's docstring."""

    UNATTACHED = auto()
    FOLLOWER = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    LEADER = auto()
    RESIGNED = auto()


TRANSITIONS: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.LEADER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
}

CHECK_QUORUM_FACTOR = 1.5  # of the fetch timeout, as Kafka's LeaderState
EPOCH_STEP_MAX = 1 << 20
"""How far ahead of this node's epoch a request may be, and how many epochs below the end of int32
are for elections alone. Kafka has no such limit: one request could use up all epochs. A node that
is further behind learns the epoch from the answers to its own requests."""


class Timeouts:
    """Kafka's `quorum.*` settings, in seconds."""

    __slots__ = ("backoff_max_s", "election_s", "fetch_s", "request_s", "start_s")

    def __init__(
        self,
        election_s: float = 1.0,
        fetch_s: float = 2.0,
        backoff_max_s: float = 1.0,
        request_s: float = 2.0,
        start_s: float = 0.1,
    ) -> None:
        """`start_s` spaces the first elections of nodes that start together. It is tidelog's own:
        pre-votes make early requests harmless."""
        self.election_s = election_s
        self.fetch_s = fetch_s
        self.backoff_max_s = backoff_max_s
        self.request_s = request_s
        self.start_s = start_s


class QuorumCore:
    """The state of one node; see the module's docstring.

    Invariants: `epoch` never goes back; in one epoch `leader_id` goes from none to one node and
    `voted_id` from none to one node, once; `high_watermark` never goes back.
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: Collection[int],
        stored: Election,
        log_end: Callable[[], LogEnd],
        rng: Rng,
        timeouts: Timeouts,
    ) -> None:
        """`log_end` is called whenever logs are compared. Call `start` next."""
        self.node_id = node_id
        self.is_dynamic = False
        is_voter = node_id in voters
        self._set_voters(voters, Seat(is_voter, is_voter))
        self.timeouts = timeouts
        self._log_end = log_end
        self._rng = rng
        self.role = Role.UNATTACHED
        self.epoch = stored.epoch
        self.leader_id = stored.leader_id
        self.voted_id = stored.voted_id
        self._voted_directory = stored.voted_directory
        self.stored = stored
        if self.leader_id == node_id:
            # Unsynced records are gone: this node must not continue in an epoch that it led. The
            # only voter elects itself at once, in the next one.
            self.epoch = stored.epoch + bool(self.others)
            self.leader_id, self.voted_id = NO_NODE, NO_NODE
        self.high_watermark = -1
        self.epoch_start_offset = -1
        self.progress: dict[int, Progress] = {}
        self._flushed = -1
        self._has_fetched = False
        self._granted: set[int] = set()
        self._refused: set[int] = set()
        self._announce_at = float("inf")
        self._effects: list[Effect] = []
        self._timeout_at = float("inf")

    def _set_voters(self, voters: Collection[int], seat: Seat) -> None:
        self.voters = tuple(sorted(voters))
        self.is_voter, self.stands = seat
        # A node that lost its disk is not the voter of its id.
        own_id = self.node_id if self.is_voter else NO_NODE
        self.others = tuple(voter for voter in self.voters if voter != own_id)

    def start(self, now: float, seat: Seat | None = None) -> None:
        """Begin to wait for a leader, voters one after the other; `seat` is None for static
        voters."""
        if seat is not None:
            self.is_dynamic = True
            self._set_voters(self.voters, seat)
        rank = self.voters.index(self.node_id) if self.is_voter else 0
        self._timeout_at = now + rank * self.timeouts.start_s

    def __repr__(self) -> str:
        return f"QuorumCore({self.node_id}, {self.role.name}, epoch={self.epoch})"

    @property
    def majority(self) -> int:
        """The number of voters that decide."""
        return len(self.voters) // 2 + 1

    @property
    def is_leader(self) -> bool:
        """Whether this node leads its epoch; its appends may still get lost."""
        return self.role is Role.LEADER

    @property
    def leads_committed(self) -> bool:
        """Whether everything committed before this epoch is below the high watermark, or this is
        the only voter there ever was: what was committed is in its log."""
        if self.role is not Role.LEADER:
            return False
        is_only_voter = self.is_voter and not self.others and not self.is_dynamic
        return is_only_voter or self.high_watermark > self.epoch_start_offset

    @property
    def deadline(self) -> float:
        """When the next `Tick` is due."""
        if self.role is Role.LEADER:
            return min(self._announce_at, self._check_quorum_at())
        if not self.stands and self.role is Role.UNATTACHED:
            return float("inf")
        return self._timeout_at

    def unanswered(self) -> tuple[int, ...]:
        """Voters that have not answered yet."""
        return tuple(v for v in self.others if v not in self._granted and v not in self._refused)

    # ---- the entry point ----------------------------------------------------------------------

    def step(self, event: Event, now: float) -> list[Effect]:
        """Process an event at `now`; return the effects in order."""
        assert not self._effects, "a step runs to its end"
        _HANDLERS[type(event)](self, event, now)
        effects, self._effects = self._effects, []
        directory = NO_DIRECTORY if self.voted_id == NO_NODE else self._voted_directory
        election = Election(self.epoch, self.leader_id, self.voted_id, directory)
        if election != self.stored:
            assert election.epoch >= self.stored.epoch, "epochs never go back"
            self.stored = election
            effects.insert(0, Persist(election))
        return effects

    # ---- roles --------------------------------------------------------------------------------

    def _become(self, role: Role, timeout_at: float) -> None:
        assert role in TRANSITIONS[self.role], f"{self.role.name} to {role.name}"
        self.role = role
        self._timeout_at = timeout_at
        self._has_fetched = False
        self._granted.clear()
        self._refused.clear()
        self._effects.append(RoleChanged())

    def _election_timeout(self) -> float:
        return self._rng.uniform(self.timeouts.election_s, 2 * self.timeouts.election_s)

    def _enter_epoch(self, epoch: int, leader_id: int) -> None:
        assert self.epoch <= epoch <= EPOCH_MAX
        if epoch > self.epoch:
            self.epoch, self.voted_id, self.leader_id = epoch, NO_NODE, NO_NODE
        if leader_id != NO_NODE:
            assert self.leader_id in (NO_NODE, leader_id), "one leader per epoch"
            self.leader_id = leader_id

    def _unattached(self, epoch: int, now: float) -> None:
        self._enter_epoch(epoch, NO_NODE)
        self._become(Role.UNATTACHED, now + self._election_timeout())

    def _follow(self, leader_id: int, epoch: int, now: float) -> None:
        self._enter_epoch(epoch, leader_id)
        self._become(Role.FOLLOWER, now + self.timeouts.fetch_s)

    def _prospective(self, now: float) -> None:
        self._become(Role.PROSPECTIVE, now + self._election_timeout())
        self._effects.append(AskVotes(self.epoch, pre_vote=True))
        self._grant_own()
        self._count_votes(now)

    def _candidate(self, now: float) -> None:
        self._enter_epoch(self.epoch + 1, NO_NODE)
        self._become(Role.CANDIDATE, now + self._election_timeout())
        self.voted_id, self._voted_directory = self.node_id, NO_DIRECTORY
        self._effects.append(AskVotes(self.epoch, pre_vote=False))
        self._grant_own()
        self._count_votes(now)

    def _grant_own(self) -> None:
        if self.is_voter:
            self._granted.add(self.node_id)

    def _lead(self, now: float) -> None:
        self._enter_epoch(self.epoch, self.node_id)
        self.voted_id = NO_NODE  # as in Kafka: a known leader replaces the vote
        self._become(Role.LEADER, float("inf"))
        self.epoch_start_offset = self._log_end().offset
        self.progress = {voter: Progress() for voter in self.others}
        for progress in self.progress.values():
            progress.fetched_at = now  # a grace period
        self._flushed = -1
        self._announce(now, self.others)

    def _announce(self, now: float, voters: tuple[int, ...]) -> None:
        self._announce_at = now + self.timeouts.fetch_s / 2 if self.others else float("inf")
        if voters:
            self._effects.append(BeginEpoch(self.epoch, voters))

    def _resign(self, now: float) -> None:
        """Resign; prefer voters with the longest logs, which can be elected."""
        ends = sorted(
            (-p.end_offset, voter) for voter, p in self.progress.items() if voter in self.others
        )
        self._become(Role.RESIGNED, now + self._election_timeout())
        self._effects.append(EndEpoch(self.epoch, tuple(voter for _, voter in ends)))

    # ---- time ---------------------------------------------------------------------------------

    def _on_tick(self, event: Tick, now: float) -> None:
        if now < self.deadline:
            return
        if self.role is Role.LEADER:
            if now >= self._check_quorum_at():
                self._resign(now)
            else:
                silent = now - self.timeouts.fetch_s / 2
                self._announce(
                    now, tuple(v for v in self.others if self.progress[v].fetched_at <= silent)
                )
        elif self.role is Role.RESIGNED:
            self._unattached(self.epoch + 1, now)
        elif not self.stands:
            self._forget_leader(now)
        elif self.role is Role.PROSPECTIVE:
            self._give_up(now)
        else:
            self._prospective(now)

    def _check_quorum_at(self) -> float:
        """Return when this node must resign because too few voters have fetched."""
        needed = self.majority - self.is_voter
        if not needed:
            return float("inf")
        latest = sorted((self.progress[v].fetched_at for v in self.others), reverse=True)
        return latest[needed - 1] + CHECK_QUORUM_FACTOR * self.timeouts.fetch_s

    def _forget_leader(self, now: float) -> None:
        """Let an observer look for the leader again, in the same epoch."""
        self._become(Role.UNATTACHED, now)

    def _give_up(self, now: float) -> None:
        """Give up an election: follow the leader, if one is known, and retry after a random time,
        unless the leader answers."""
        longest = self.timeouts.backoff_max_s
        role = Role.UNATTACHED if self.leader_id == NO_NODE else Role.FOLLOWER
        self._become(role, now + self._rng.uniform(longest / 4, longest))

    # ---- votes --------------------------------------------------------------------------------

    def _on_vote_asked(self, event: VoteAsked, now: float) -> None:
        error = self.vote_refusal(event)
        if error:
            self._effects.append(Reply(error))
            return
        if event.epoch > self.epoch:
            self._unattached(event.epoch, now)
        granted = self._grants(event)
        if granted and not event.pre_vote and self.voted_id == NO_NODE:
            self.voted_id, self._voted_directory = event.candidate_id, event.directory_id
            self._timeout_at = now + self._election_timeout()
        self._effects.append(Reply(granted=granted))

    def vote_refusal(self, event: VoteAsked) -> ErrorCode:
        """Return why a Vote request is refused; NONE if it is valid."""
        end = event.log_end
        epoch_max = event.epoch if event.pre_vote else event.epoch - 1
        if end.offset < 0 or not 0 <= end.epoch <= epoch_max:
            return ErrorCode.INVALID_REQUEST
        error = self._refusal(event.candidate_id, event.epoch)
        if not error and not (self.is_voter or self.is_dynamic):
            return ErrorCode.INCONSISTENT_VOTER_SET
        return error

    def _refusal(self, sender: int, epoch: int) -> ErrorCode:
        """Return why a voter's request in this epoch is refused; NONE if it is valid. The order is
        Kafka's (KafkaRaftClient.validateVoterOnlyRequest)."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if not self.is_dynamic and sender not in self.others:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if sender < 0 or sender == self.node_id:
            return ErrorCode.INVALID_REQUEST
        if epoch > min(self.epoch + EPOCH_STEP_MAX, max(self.epoch, EPOCH_MAX - EPOCH_STEP_MAX)):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _leader_refusal(self, leader_id: int, epoch: int) -> ErrorCode:
        """Like `_refusal`, for a request of the leader of this epoch, which has only one."""
        error = self._refusal(leader_id, epoch)
        if not error and epoch == self.epoch and self.leader_id not in (NO_NODE, leader_id):
            return ErrorCode.INVALID_REQUEST
        return error

    def _grants(self, event: VoteAsked) -> bool:
        up_to_date = event.log_end >= self._log_end()
        if event.pre_vote:
            if self.role is Role.LEADER:
                return False
            # A follower of a live leader refuses to elect another (KIP-996).
            return up_to_date and not (self.role is Role.FOLLOWER and self._has_fetched)
        if self.voted_id != NO_NODE:
            voted = (self.voted_id, self._voted_directory)
            return voted == (event.candidate_id, event.directory_id)
        return up_to_date and self.leader_id == NO_NODE and self.role is not Role.RESIGNED

    def _on_vote_answered(self, event: VoteAnswered, now: float) -> None:
        if self._heard(event.epoch, event.leader_id, now):
            return
        expected = Role.PROSPECTIVE if event.pre_vote else Role.CANDIDATE
        if self.role is not expected or event.asked_epoch != self.epoch:
            return
        if event.voter_id not in self.others:
            return
        # An answer of an older epoch, from before the voter knew this one, does not count.
        (self._granted if event.granted else self._refused).add(event.voter_id)
        self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        if len(self._granted) >= self.majority:
            if self.role is Role.PROSPECTIVE:
                self._candidate(now)
            else:
                self._lead(now)
        elif len(self.voters) - len(self._refused) < self.majority:
            if self.role is Role.PROSPECTIVE:
                self._give_up(now)
            else:
                pause = self._rng.uniform(0, self.timeouts.backoff_max_s)
                self._timeout_at = min(self._timeout_at, now + pause)

    # ---- leaders ------------------------------------------------------------------------------

    def _heard(self, epoch: int, leader_id: int, now: float, *, by_leader: bool = False) -> bool:
        """Apply an epoch and its leader; return whether this node's role changed."""
        if epoch < self.epoch:
            return False
        known = (epoch, leader_id) == (self.epoch, self.leader_id)
        if known and self.role is Role.PROSPECTIVE and not by_leader:
            return False  # others also know the leader that does not answer this node
        if leader_id in (NO_NODE, self.node_id):
            if epoch == self.epoch:
                return False
            self._unattached(epoch, now)
            return True
        if epoch == self.epoch:
            if self.role in (Role.LEADER, Role.RESIGNED):
                raise AssertionError(f"{leader_id} and {self.node_id} lead in epoch {epoch}")
            if self.role is Role.FOLLOWER:
                assert self.leader_id == leader_id, "one leader per epoch"
                return False
        self._follow(leader_id, epoch, now)
        return True

    def _on_epoch_told(self, event: EpochTold, now: float) -> None:
        self._heard(event.epoch, event.leader_id, now)

    def _on_epoch_begun(self, event: EpochBegun, now: float) -> None:
        error = self._leader_refusal(event.leader_id, event.epoch)
        if not error:
            self._heard(event.epoch, event.leader_id, now, by_leader=True)
        self._effects.append(Reply(error))

    def _on_epoch_ended(self, event: EpochEnded, now: float) -> None:
        error = self._leader_refusal(event.leader_id, event.epoch)
        if error:
            self._effects.append(Reply(error))
            return
        self._heard(event.epoch, event.leader_id, now)
        if self.role in (Role.FOLLOWER, Role.UNATTACHED) and self.leader_id == event.leader_id:
            # The best log first, the others one after the other: no votes are split.
            place = event.preferred.index(self.node_id) if self.node_id in event.preferred else 1
            pause = place * self.timeouts.backoff_max_s / max(len(event.preferred), 1)
            self._has_fetched = False
            self._timeout_at = min(self._timeout_at, now + pause)
        self._effects.append(Reply())

    def _on_leader_answered(self, event: LeaderAnswered, now: float) -> None:
        if self.role is Role.FOLLOWER and event.epoch == self.epoch:
            self._has_fetched = True
            self._timeout_at = now + self.timeouts.fetch_s

    def _on_leader_lost(self, event: LeaderLost, now: float) -> None:
        """Elect early: a dead process closes its connections, so the full timeout is not needed.

        Harmless if it is alive: its next answer corrects this, and a majority must agree.
        """
        if self.role is Role.FOLLOWER and event.epoch == self.epoch and self._has_fetched:
            self._has_fetched = False
            pause = self._rng.uniform(self.timeouts.election_s / 4, self.timeouts.election_s / 2)
            self._timeout_at = min(self._timeout_at, now + pause)

    def _on_leave(self, event: Leave, now: float) -> None:
        if self.role is Role.LEADER:
            self._resign(now)

    # ---- commitment ---------------------------------------------------------------------------

    def _on_replica_fetched(self, event: ReplicaFetched, now: float) -> None:
        if self.role is not Role.LEADER or event.replica_id == self.node_id:
            return
        progress = progress_of(self.progress, self.voters, event.replica_id)
        end = self._log_end().offset
        if event.offset >= end:
            progress.caught_up_at = now
        elif 0 <= progress.leader_end_offset <= event.offset:
            progress.caught_up_at = max(progress.caught_up_at, progress.fetched_at)
        progress.fetched_at = now
        progress.directory_id = event.directory_id
        progress.leader_end_offset = end
        progress.end_offset = event.offset
        self._count_replicas()

    def _on_voters_changed(self, event: VotersChanged, now: float) -> None:
        """Work with another set of voters from now on."""
        self.is_dynamic = event.seat is not None
        is_named = self.node_id in event.voters
        seat, new = Seat(self.is_voter, self.stands), event.seat or Seat(is_named, is_named)
        if (event.voters, new) == (self.voters, seat):
            return
        self._set_voters(event.voters, new)
        self._granted.intersection_update(self.voters)
        self._refused.intersection_update(self.voters)
        if self.role is Role.LEADER:
            for voter in self.others:
                if voter not in self.progress:
                    self.progress[voter] = Progress()
                    self.progress[voter].fetched_at = now  # a grace period
            self._announce(now, ())
            self._count_replicas()
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE) and not self.stands:
            self._become(Role.UNATTACHED, now)
        elif self.role is Role.UNATTACHED and seat.stands != self.stands:
            self._become(Role.UNATTACHED, now + self._election_timeout())

    def _on_local_flushed(self, event: LocalFlushed, now: float) -> None:
        if self.role is Role.LEADER:
            self._flushed = max(self._flushed, event.offset)
            self._count_replicas()

    def _count_replicas(self) -> None:
        ends = [self.progress[voter].end_offset for voter in self.others]
        if self.is_voter:
            ends.append(self._flushed)
        committed = sorted(ends, reverse=True)[self.majority - 1]
        if committed > self.epoch_start_offset and committed > self.high_watermark:
            self.high_watermark = committed
            self._effects.append(HighWatermarkMoved(committed))


_HANDLERS: dict[type, Callable[[QuorumCore, Any, float], None]] = {
    Tick: QuorumCore._on_tick,
    VoteAsked: QuorumCore._on_vote_asked,
    VoteAnswered: QuorumCore._on_vote_answered,
    EpochBegun: QuorumCore._on_epoch_begun,
    EpochEnded: QuorumCore._on_epoch_ended,
    EpochTold: QuorumCore._on_epoch_told,
    LeaderAnswered: QuorumCore._on_leader_answered,
    LeaderLost: QuorumCore._on_leader_lost,
    Leave: QuorumCore._on_leave,
    ReplicaFetched: QuorumCore._on_replica_fetched,
    LocalFlushed: QuorumCore._on_local_flushed,
    VotersChanged: QuorumCore._on_voters_changed,
}
